/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of percpu/slot_source.c: a slot for each CPU of the explored machine, made at its first
 * need. To the rest of the library they look like slots of restartable sequences.
 */
#include "percpu/slot_source.h"

#include "machine/message.h"
#include "machine/system.h"
#include "percpu/area.h"

struct kmem_inline_layout fast;

void slot_source_init(void)
{
}

void slots_refuse(void)
{
}

void slots_follow_cpus(void)
{
}

bool slot_may_have_left(const struct slot *slot)
{
        return !system_cpu_is_usable(slot->id);
}

bool slots_are_rseq(void)
{
        return true;
}

struct pair *const *sequence_slot(void)
{
        return &front()->slots[sim.cpu];
}

struct slot *slot_current(void)
{
        struct slot *slot;

        if (!fast.map)
                return &shared_slot;
        slot = slot_at(sim.cpu);
        if (unlikely(slot == &shared_slot))
                slot = slot_make(sim.cpu);
        return slot ? slot : &shared_slot;
}

bool slot_replace(struct slot *slot, uint32_t pair_offset, const struct pair *expected,
                  const struct pair *new_pair)
{
        if (slot == &shared_slot || expected->main == &closed_sheaf)
                return false;
        return rseq_replace(slot, pair_offset, expected, new_pair);
}

bool area_thread_is_ours(void)
{
        return false;
}

/* The explorer's own forks are no forks of the library's process. */
void area_fork_child(void)
{
}

enum area_lent area_lend(void)
{
        return AREA_UNUSED;
}

void area_take_back(enum area_lent lent)
{
        (void)lent;
}

bool slots_can_drain(void)
{
        return true;
}

bool slots_fence(void)
{
        sequences_fence(PLACE("membarrier()"));
        return true;
}

/* Never called, since slots_are_rseq. */
void *locked_slot_pop(uint32_t pair_offset)
{
        message_fatal("explored: there are no locked slots (offset %u)", pair_offset);
}

enum push_result locked_slot_push(uint32_t pair_offset, void *object)
{
        message_fatal("explored: there are no locked slots (offset %u, %p)", pair_offset, object);
}
