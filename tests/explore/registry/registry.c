/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of registry/registry.c: figures in plain memory, which nobody reads but a scenario's
 * check. There are none before a scenario says that the registry is due.
 */
#include "registry/registry.h"

#include "scenario.h"

enum { RECORDS_BYTES = 64 << 10 };

static struct registry_head head;
static _Alignas(64) char records[RECORDS_BYTES];
static uint32_t used_bytes;
static uint32_t seen;

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

void registry_leave(void)
{
        explore_fail("the registry was left, and there is no other process");
}

void *registry_alloc(size_t bytes)
{
        size_t whole = (bytes + 63) & ~(size_t)63;
        uint32_t end;

        if (!registry_is_made())
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
