/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a simulated or explored machine lacks: areas of restartable sequences that threads lend to
 * programs, and locked slots.
 */
#include "machine/message.h"
#include "percpu/area.h"
#include "percpu/slot_source.h"

bool area_thread_is_ours(void)
{
        return false;
}

/* No process of the library's forks here; the explorer's own forks are none. */
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

/* Never called, since slots_are_rseq. */
void *locked_slot_pop(uint32_t pair_offset)
{
        message_fatal("simulated: there are no locked slots (offset %u)", pair_offset);
}

enum push_result locked_slot_push(uint32_t pair_offset, void *object)
{
        message_fatal("simulated: there are no locked slots (offset %u, %p)", pair_offset, object);
}
