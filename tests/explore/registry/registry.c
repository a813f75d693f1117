/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of registry/registry.c: figures in plain memory, which nobody reads but a scenario's
 * check. There are none before a scenario says that the registry is due.
 */
#include "registry/registry.h"

#include "scenario.h"

#include <string.h>

enum { RECORDS_BYTES = 64 << 10 };

static struct registry_head head;
static _Alignas(64) char records[RECORDS_BYTES];
static uint32_t used_bytes;
static uint32_t seen;
static uint32_t no_seen; /* as no_registry.asked: there is none any more */
static struct registry_head head_at_fork;
static char records_at_fork[RECORDS_BYTES];

struct registry_head no_registry;
struct registry_head *registry = &no_registry;
uint32_t *registry_seen = &seen;
uint32_t registry_generation;
void (*registry_honour)(void);
bool registry_due;

void registry_init(void)
{
}

bool registry_is_made(void)
{
        return load_acquire(&registry) != &no_registry;
}

bool registry_is_due(void)
{
        return registry_due;
}

bool registry_make(void)
{
        head.asked = 1;
        store_relaxed(&seen, 1);
        store_release(&registry, &head);
        return true;
}

/* The kernel clears the page in a child. What it shares with its parent stays as it was. */
void registry_begin_child(void)
{
        if (!registry_is_made())
                return;
        head_at_fork = head;
        memcpy(records_at_fork, records, sizeof(records));
        seen = 0;
        registry_due = false;
}

/* Its own memory comes in place of its parent's, at these addresses. */
void registry_leave(void)
{
        if (!registry_is_made() || registry_last_seen())
                return;
        if (memcmp(&head_at_fork, &head, sizeof(head)) != 0 ||
            memcmp(records_at_fork, records, sizeof(records)) != 0)
                explore_fail("a child has written figures into its parent's registry");
        memset(&head, 0, sizeof(head));
        memset(records, 0, sizeof(records));
        add_relaxed(&registry_generation, 1);
        store_relaxed(&registry_seen, &no_seen);
        store_release(&registry, &no_registry);
}

void *registry_alloc(size_t bytes)
{
        size_t whole = (bytes + 63) & ~(size_t)63;
        uint32_t end;

        if (!registry_is_made())
                return NULL;
        if (!registry_last_seen())
                return NULL;
        end = add_relaxed(&used_bytes, (uint32_t)whole);
        if (end > RECORDS_BYTES)
                explore_fail("the explorer's registry is full: expected at most %d bytes",
                             RECORDS_BYTES);
        return records + end - whole;
}

void registry_free(void *record, size_t bytes)
{
        (void)record;
        (void)bytes;
}

void registry_publish(void *record, enum registry_record kind, size_t bytes)
{
        (void)bytes;
        store_release(&((struct registry_record_head *)record)->kind, (uint32_t)kind);
}

long registry_open_faults(void)
{
        return -1;
}

void registry_close(void)
{
}
