/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Slot sources: restartable sequences where the kernel and libc allow them, else locked records;
 * chosen once at start. The simulator replaces this file by a third source.
 */
#define _GNU_SOURCE
#include "percpu/slot_source.h"

#include "machine/message.h"
#include "base/options.h"
#include "machine/system.h"
#include "percpu/area.h"

#include <errno.h>
#include <linux/membarrier.h>

#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27
#endif

/* Programs find it under a name with the layout's number; see kmem-sequence.h. */
struct kmem_inline_layout fast __attribute__((aligned(CACHE_LINE)));
extern KMEM_PUBLIC struct kmem_inline_layout kmem_inline_layout_1
        __attribute__((alias("fast"), used));

/*
 * Number of locked slots in use, which are the first of all slots. Release and acquire, so that the
 * records are seen. An old count costs waiting, or leaves an object in a slot that is not used any
 * more.
 */
static unsigned int locked_in_use;
static bool rseq_mode;
static bool fence_refused;

static bool membarrier_register(void)
{
        return system_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ) == 0;
}

/* False if the kernel refuses. */
static bool rseq_init(void)
{
        if (!area_use())
                return false;
        /*
         * glibc 2.36 says size 20, but registers the 32 bytes that the kernel fills. So the
         * kernel's own feature size tells whether mm_cid is there.
         */
        fast.slot_field = area_offset() +
                          (system_auxv(AT_RSEQ_FEATURE_SIZE) >= offsetof(struct rseq_area, padding)
                                   ? (intptr_t)offsetof(struct rseq_area, mm_cid)
                                   : (intptr_t)offsetof(struct rseq_area, cpu_id));
        fence_refused = !membarrier_register();
        return true;
}

void slots_refuse(void)
{
        area_use_none();
        fast.slot_field = fast.rseq + (intptr_t)offsetof(struct rseq_area, mm_cid);
}

void slot_source_init(void)
{
        slots_refuse();
        if (options.slots != SLOTS_LOCKED && system_cpus(CPUS_POSSIBLE) <= SLOTS_MAX)
                rseq_mode = rseq_init();
        if (!rseq_mode) {
                slots_refuse();
                if (options.slots == SLOTS_RSEQ)
                        message("option slots=rseq: the kernel or libc refuses restartable "
                                "sequences; using locked slots");
        }
        slots_follow_cpus();
}

/* With locked slots, as many slots are in use as there are CPUs. */
void slots_follow_cpus(void)
{
        unsigned int wanted = min_of(system_cpus(CPUS_USABLE), (unsigned int)SLOTS_MAX);

        if (rseq_mode)
                return;
        while (slots_made_count() < wanted && slot_make(slots_made_count()))
                ;
        store_release(&locked_in_use, min_of(wanted, slots_made_count()));
}

bool slot_may_have_left(const struct slot *slot)
{
        bool ids_are_cpus = fast.slot_field - area_offset() == offsetof(struct rseq_area, cpu_id);

        if (!rseq_mode)
                return slot->id >= locked_in_use;
        return !ids_are_cpus || !system_cpu_is_usable(slot->id);
}

bool slots_are_rseq(void)
{
        return rseq_mode;
}

/*
 * Takes some slot's lock: the slot that the thread prefers, else any free slot, else waits. NULL
 * if there is no slot. The holder of the lock owns the sheaves of the slot's pairs.
 */
static struct slot *locked_slot_take(void)
{
        unsigned int slots = load_acquire(&locked_in_use);
        unsigned int choice;

        if (!slots)
                return NULL;
        choice = thread_choice(slots);
        for (unsigned int step = 0; step < slots; step++) {
                struct slot *slot = slot_made((choice + step) % slots);

                if (lock_try(&slot->lock))
                        return slot;
        }
        lock_take(&slot_made(choice)->lock);
        return slot_made(choice);
}

void *locked_slot_pop(uint32_t pair_offset)
{
        void *object = NULL;
        struct slot *slot;
        struct sheaf *main;

        slot = locked_slot_take();
        if (!slot)
                return NULL;
        main = slot_pair(slot, pair_offset)->main;
        if (main->size) {
                uint32_t left = main->size - 1;

                object = main->object[left];
                sheaf_set_size(main, left);
        }
        lock_drop(&slot->lock);
        return object;
}

enum push_result locked_slot_push(uint32_t pair_offset, void *object)
{
        enum push_result result = PUSH_FULL;
        struct slot *slot;
        struct sheaf *main;

        slot = locked_slot_take();
        if (!slot)
                return PUSH_FULL;
        main = slot_pair(slot, pair_offset)->main;
        if (main->size && main->object[main->size - 1] == object) {
                result = PUSH_ON_TOP;
        } else if (main->size < main->capacity) {
                sheaf_push(main, object);
                result = PUSH_DONE;
        }
        lock_drop(&slot->lock);
        return result;
}

/*
 * Replaces a pair of a locked slot under the slot's lock. The drainer takes that lock after it has
 * set a stop mark that is to stay.
 */
static bool locked_slot_replace(struct slot *slot, uint32_t pair_offset,
                                const struct pair *expected, const struct pair *new_pair)
{
        struct pair *pair = slot_pair(slot, pair_offset);
        bool replaced;

        lock_take(&slot->lock);
        replaced = !load_relaxed(&slot->stopped) && pair->main == expected->main &&
                   pair->spare == expected->spare;
        if (replaced) {
                /* Release: a sheaf is whole before it is seen. Partner: slot_read_pair, without the lock. */
                store_release(&pair->main, new_pair->main);
                store_release(&pair->spare, new_pair->spare);
        }
        lock_drop(&slot->lock);
        return replaced;
}

bool slot_replace(struct slot *slot, uint32_t pair_offset, const struct pair *expected,
                  const struct pair *new_pair)
{
        if (slot == &shared_slot || expected->main == &closed_sheaf)
                return false;
        return rseq_mode ? rseq_replace(slot, pair_offset, expected, new_pair)
                         : locked_slot_replace(slot, pair_offset, expected, new_pair);
}

struct slot *slot_current(void)
{
        struct slot *slot;
        uint32_t id;

        if (!rseq_mode) {
                unsigned int slots = load_acquire(&locked_in_use);

                return slots ? slot_made(thread_choice(slots)) : &shared_slot;
        }
        if (unlikely(!area_is_registered()))
                return &shared_slot;
        id = load_relaxed((uint32_t *)((char *)thread_pointer() + fast.slot_field));
        slot = slot_at(id);
        if (unlikely(slot == &shared_slot))
                slot = slot_make(id);
        return slot ? slot : &shared_slot;
}

bool slots_can_drain(void)
{
        return !rseq_mode || (!fence_refused && !system_sandbox_was_told());
}

enum { FENCE_ROUNDS = 1000 };

bool slots_fence(void)
{
        int error = EPERM;

        if (fence_refused)
                return false;
        /* ENOMEM may pass; EPERM means that this process (a forked child) must register anew. */
        for (int round = 0; round < FENCE_ROUNDS; round++) {
                error = system_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ);
                if (error == 0 || (error == EPERM && !membarrier_register()) ||
                    (error != EPERM && error != ENOMEM))
                        break;
        }
        return error == 0;
}
