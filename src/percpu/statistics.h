/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Statistics of sheaves and barns, as kernels with sheaves have them (S13-12): for caches with
 * options stats and sheaf_rule=7.0. They are counted in the slot that the thread runs on.
 */
#ifndef KMEM_PERCPU_STATISTICS_H
#define KMEM_PERCPU_STATISTICS_H

#include "engines/slub/counters.h"
#include "percpu/slot.h"

/* kernel_rule.c */
KMEM_HIDDEN void sheaf_events_add(struct kmem_cache *cache, enum slub_counter counter,
                                  uint64_t events);

static inline void count_sheaf_events(struct kmem_cache *cache, enum slub_counter counter,
                                      uint64_t events)
{
        if (unlikely(cache->counts_sheaves))
                sheaf_events_add(cache, counter, events);
}

#endif
