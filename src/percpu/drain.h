/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Taking sheaves away from slots of other CPUs, and what fork does to slots.
 */
#ifndef KMEM_PERCPU_DRAIN_H
#define KMEM_PERCPU_DRAIN_H

#include "percpu/figures.h"
#include "percpu/slot.h"

/* Set in a forked child until its first slow path has collected the other slots' sheaves. */
extern KMEM_HIDDEN bool slots_orphaned;

KMEM_HIDDEN void collect_orphans(void);

/* A child leaves its parent's registry before it changes a figure (REG-2). */
static inline void percpu_after_fork(void)
{
        figures_poll();
        if (unlikely(load_relaxed(&slots_orphaned)))
                collect_orphans();
}

/*
 * Empties the records marked quiet of the first @slots slots behind one pair of fences. If the
 * kernel refuses the fences, the sheaves in pairs stay and the result is false. Under cache_mutex.
 */
KMEM_HIDDEN bool percpu_drain_quiet(unsigned int slots);
/*
 * Empties the records marked quiet of the calling thread's slot, by ordinary replaces, unless another thread
 * drains; clears the marks. Under cache_mutex.
 */
KMEM_HIDDEN void percpu_drain_own(struct slot *slot);
/*
 * Empties the quiet part of a cache outside slots: sheaves in barns that nobody has needed since
 * the last call, and the shared slot's record if it is marked quiet. Under cache_mutex.
 */
KMEM_HIDDEN void percpu_drain_surplus(struct kmem_cache *cache);

#endif
