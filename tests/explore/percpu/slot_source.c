/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of percpu/slot_source.c: a slot for each CPU of the explored machine, made at its first
 * need. To the rest of the library they look like slots of restartable sequences.
 */
#include "percpu/slot_source.h"

#include "machine/system.h"

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

bool slots_can_drain(void)
{
        return true;
}

bool slots_fence(void)
{
        sequences_fence(PLACE("membarrier()"));
        return true;
}
