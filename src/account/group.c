/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Memory groups: their records, limits and charges; group.h has the invariants. Every change of a
 * record is made under group_lock. Threads that look whether their group still exists read its
 * generation, relaxed, without the lock.
 */
#define _GNU_SOURCE
#include "account/group.h"

#include "machine/message.h"
#include "base/metadata.h"
#include "machine/system.h"

#include <errno.h>
#include <string.h>

struct group_lock group_lock;
struct kmem_group *process_group;

static struct list group_list = {&group_list, &group_list}; /* under group_lock */
static struct kmem_group process_record;
static struct list free_records = {&free_records, &free_records};
static uint32_t turned_on;

/*
 * The thread's group and the generation it had when the thread entered it. A group that has ended
 * since has another generation, so nobody has to tell its threads. Initial-exec: access must never
 * allocate.
 */
static _Thread_local struct {
        struct kmem_group *group;
        uint32_t generation;
} entered __attribute__((tls_model("initial-exec")));

#define group_locked_check() debug_check(load_relaxed(&group_lock.held))

/*
 * The lock is held for a few dozen cycles, so spinning is nearly always enough. If the holder was
 * preempted, it needs a CPU: then the waiter naps, which also lets a holder of lower priority run.
 */
void group_lock_wait(void)
{
        for (unsigned int round = 0; !group_lock_try(); round++) {
                if (round < 200)
                        cpu_relax();
                else
                        system_sleep_ns(50000);
        }
}

static size_t limit_of(size_t limit_bytes)
{
        return limit_bytes ? limit_bytes : SIZE_MAX;
}

static void name_copy(struct kmem_group *group, const char *name)
{
        size_t length = min_of(strlen(name), sizeof(group->name) - 1);

        memcpy(group->name, name, length);
        group->name[length] = '\0';
}

void group_limit_process(size_t limit_bytes)
{
        process_record.state = GROUP_ALIVE;
        process_record.limit = limit_of(limit_bytes);
        name_copy(&process_record, "process");
        list_add_tail(&process_record.list, &group_list);
        process_group = &process_record;
}

bool groups_are_on(void)
{
        return load_relaxed(&turned_on);
}

void groups_turn_on(void)
{
        store_relaxed(&turned_on, 1);
}

/*
 * A record that is in no list, with counters of zero and its old generation. The generation has no
 * other value at any moment, because threads that were in the group before read it without the
 * lock.
 */
static struct kmem_group *record_take_locked(void)
{
        struct kmem_group *group;
        const size_t behind = offsetof(struct kmem_group, generation) + sizeof(group->generation);

        group_locked_check();
        if (free_records.next == &free_records)
                return metadata_alloc(sizeof(*group));
        group = container_of(free_records.next, struct kmem_group, list);
        list_remove(&group->list);
        memset(group, 0, offsetof(struct kmem_group, generation));
        memset((char *)group + behind, 0, sizeof(*group) - behind);
        return group;
}

struct kmem_group *group_make(const char *name, struct kmem_group *parent, size_t limit_bytes,
                              int *error)
{
        struct kmem_group *group = NULL;

        *error = EINVAL;
        group_lock_take();
        if (!parent)
                parent = process_group;
        if (!parent || parent->state == GROUP_ALIVE) {
                *error = ENOMEM;
                group = record_take_locked();
        }
        if (group) {
                name_copy(group, name);
                group->limit = limit_of(limit_bytes);
                group->parent = parent;
                group->state = GROUP_ALIVE;
                if (parent)
                        parent->children++;
                list_add_tail(&group->list, &group_list);
        }
        group_lock_drop();
        return group;
}

/* Ends the records of zombies without bytes, from a group up to its first ancestor that stays. */
static void bury_locked(struct kmem_group *group)
{
        group_locked_check();
        while (group && group->state == GROUP_ZOMBIE && group->bytes == 0) {
                struct kmem_group *parent = group->parent;

                group->state = GROUP_FREE;
                list_remove(&group->list);
                list_add(&group->list, &free_records);
                group = parent;
        }
}

long group_end(struct kmem_group *group, int *error)
{
        long live = -1;

        group_lock_take();
        if (group->state != GROUP_ALIVE || group == process_group) {
                *error = EINVAL;
        } else if (group->children) {
                *error = EBUSY;
        } else {
                live = (long)group->objects;
                group->state = GROUP_ZOMBIE;
                store_relaxed(&group->generation, group->generation + 1);
                if (group->parent)
                        group->parent->children--;
                bury_locked(group);
        }
        group_lock_drop();
        return live;
}

bool group_change_limit(struct kmem_group *group, size_t limit_bytes)
{
        bool alive;

        if (!group)
                group = process_group;
        if (!group)
                return false;
        group_lock_take();
        alive = group->state == GROUP_ALIVE;
        if (alive)
                group->limit = limit_of(limit_bytes);
        group_lock_drop();
        return alive;
}

bool group_read(struct kmem_group *group, struct kmem_group *copy)
{
        if (!group)
                group = process_group;
        if (!group)
                return false;
        group_lock_take();
        *copy = *group;
        group_lock_drop();
        return copy->state == GROUP_ALIVE;
}

bool group_read_number(size_t number, struct kmem_group *copy, char parent[GROUP_NAME_BYTES])
{
        struct list *node;

        group_lock_take();
        list_for_each (node, &group_list)
                if (number-- == 0)
                        break;
        if (node != &group_list) {
                *copy = *container_of(node, struct kmem_group, list);
                memcpy(parent, copy->parent ? copy->parent->name : "none",
                       copy->parent ? GROUP_NAME_BYTES : sizeof("none"));
        }
        group_lock_drop();
        return node != &group_list;
}

struct kmem_group *group_current(void)
{
        struct kmem_group *group = entered.group;

        /* Relaxed: if another thread ends the group at this moment, either order is right. */
        return group && load_relaxed(&group->generation) == entered.generation ? group : NULL;
}

bool group_enter(struct kmem_group *group)
{
        bool alive = true;

        if (group == process_group)
                group = NULL;
        if (group) {
                group_lock_take();
                alive = group->state == GROUP_ALIVE;
                if (alive)
                        entered.generation = group->generation;
                group_lock_drop();
        }
        if (alive)
                entered.group = group;
        return alive;
}

/* The first group from @group up that has no room for the bytes, or NULL. */
static struct kmem_group *find_full_locked(struct kmem_group *group, size_t bytes)
{
        for (; group; group = group->parent)
                if (group->bytes > group->limit || bytes > group->limit - group->bytes)
                        return group;
        return NULL;
}

/*
 * Check, then commit: nobody else runs between the two. @bytes is the sum of all @count objects.
 * Returns the group that refuses, or NULL.
 */
static struct kmem_group *charge_locked(struct kmem_group *group, size_t count, size_t bytes)
{
        struct kmem_group *full = find_full_locked(group, bytes);

        group_locked_check();
        if (unlikely(full))
                return full;
        for (; group; group = group->parent) {
                group->bytes += bytes;
                group->objects += count;
                group->peak = max_of(group->peak, group->bytes);
        }
        return NULL;
}

bool group_charge(bool accounted, size_t count, size_t bytes, struct kmem_group **owner)
{
        struct kmem_group *group = accounted ? group_current() : NULL;
        struct kmem_group *full;

        *owner = NULL;
        if (likely(!group && !process_group))
                return true;
        group_lock_take();
        /* The group may have ended since; nothing is charged to a zombie. */
        if (!group || group->generation != entered.generation)
                group = process_group;
        full = charge_locked(group, count, count * bytes);
        if (unlikely(full))
                full->refusals++;
        else
                *owner = group;
        group_lock_drop();
        return !full;
}

bool group_charge_more(struct kmem_group *owner, size_t bytes)
{
        bool charged;

        group_lock_take();
        charged = !charge_locked(owner, 0, bytes);
        group_lock_drop();
        return charged;
}

/* Two threads that free an object twice at the same moment must not bring counters below zero. */
static void uncharge_locked(struct kmem_group *owner, size_t count, size_t bytes)
{
        group_locked_check();
        for (struct kmem_group *group = owner; group; group = group->parent) {
                debug_check(bytes <= group->bytes && count <= group->objects);
                group->bytes -= min_of(bytes, group->bytes);
                group->objects -= min_of(count, group->objects);
        }
        bury_locked(owner);
}

void group_charge_less(struct kmem_group *owner, size_t bytes)
{
        group_lock_take();
        uncharge_locked(owner, 0, bytes);
        group_lock_drop();
}

void group_uncharge(struct kmem_group *owner, size_t count, size_t bytes)
{
        group_lock_take();
        uncharge_locked(owner, count, count * bytes);
        group_lock_drop();
}

void group_disown(struct kmem_group *owner, size_t count, size_t bytes)
{
        group_lock_take();
        owner->unowned += count;
        uncharge_locked(owner, count, count * bytes);
        group_lock_drop();
}
