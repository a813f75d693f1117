/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of percpu/slot_source.c: a slot for each CPU of the explored machine, made at its first
 * need. To the rest of the library they look like slots of restartable sequences.
 *
 * With option slots=locked the library's own source serves, which this file includes under other
 * names. A thread prefers the slot of its CPU's number there.
 */
#define _GNU_SOURCE
#include "machine/thread.h"

#include "place.h"

#include "machine/state.h"

#define thread_choice(count) (sim.cpu % (count))

#define slot_source_init library_source_init
#define slots_refuse library_refuse
#define slots_follow_cpus library_follow_cpus
#define slot_may_have_left library_may_have_left
#define slots_are_rseq library_are_rseq
#define slot_current library_current
#define slot_replace library_replace
#define slots_can_drain library_can_drain
#define slots_fence library_fence
#include "../../../src/percpu/slot_source.c"
#undef slot_source_init
#undef slots_refuse
#undef slots_follow_cpus
#undef slot_may_have_left
#undef slots_are_rseq
#undef slot_current
#undef slot_replace
#undef slots_can_drain
#undef slots_fence

void slot_source_init(void);
void slots_refuse(void);
void slots_follow_cpus(void);
bool slot_may_have_left(const struct slot *slot);
bool slots_are_rseq(void);
struct slot *slot_current(void);
bool slot_replace(struct slot *slot, uint32_t pair_offset, const struct pair *expected,
                  const struct pair *new_pair);
bool slots_can_drain(void);
bool slots_fence(void);

static bool is_locked(void)
{
        return options.slots == SLOTS_LOCKED;
}

/* The kernel of the explored machine has no restartable sequences. */
bool area_use(void)
{
        return false;
}

void area_use_none(void)
{
}

intptr_t area_offset(void)
{
        return 0;
}

bool area_is_registered(void)
{
        return false;
}

void slot_source_init(void)
{
        if (!is_locked())
                return;
        sequences_refused = true;
        library_source_init();
}

void slots_refuse(void)
{
}

void slots_follow_cpus(void)
{
        if (is_locked())
                library_follow_cpus();
}

bool slot_may_have_left(const struct slot *slot)
{
        return is_locked() ? library_may_have_left(slot) : !system_cpu_is_usable(slot->id);
}

bool slots_are_rseq(void)
{
        return !is_locked();
}

struct pair *const *sequence_slot(void)
{
        return &front()->slots[sim.cpu];
}

struct slot *slot_current(void)
{
        struct slot *slot;

        if (is_locked())
                return library_current();
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
        if (is_locked())
                return library_replace(slot, pair_offset, expected, new_pair);
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
        sequences_fence(THIS_PLACE("membarrier()"));
        return true;
}
