/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of percpu/slot_source.c: a slot for every simulated CPU, made at the CPU's first need.
 * To the rest of the library they look like slots of restartable sequences.
 */
#include "percpu/slot_source.h"

#include "machine/message.h"
#include "machine/system.h"

struct kmem_inline_layout fast;

void slot_source_init(void)
{
        sim.slot = &shared_slot;
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

struct slot *slot_current(void)
{
        sim.counts.slow_paths++;
        if (unlikely(sim.slot == &shared_slot)) {
                struct slot *slot = slot_make(sim.cpu);

                if (!slot)
                        return &shared_slot;
                sim.slot = slot;
        }
        return sim.slot;
}

bool slot_replace(struct slot *slot, uint32_t pair_offset, const struct pair *expected,
                  const struct pair *new_pair)
{
        struct pair *pair = slot_pair(slot, pair_offset);

        if (slot == &shared_slot || slot->stopped || expected->main == &closed_sheaf ||
            pair->main != expected->main || pair->spare != expected->spare)
                return false;
        *pair = *new_pair;
        return true;
}

bool slots_can_drain(void)
{
        return true;
}

bool slots_fence(void)
{
        sim.counts.fences++;
        return true;
}

/* Never called, since slots_are_rseq. */
void *locked_slot_pop(uint32_t pair_offset)
{
        message_fatal("simulated: there are no locked slots (offset %u)", pair_offset);
}

enum push_result locked_slot_push(uint32_t pair_offset, void *object)
{
        message_fatal("simulated: there are no locked slots (offset %u, %p)", pair_offset, object);
}
