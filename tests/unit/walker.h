/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A walk over every page descriptor that checks the invariants of slabs (S1-70 to S1-76) and of
 * the page map. The heap must be at rest: no other thread may allocate or free.
 */
#ifndef TESTS_UNIT_WALKER_H
#define TESTS_UNIT_WALKER_H

#include "engines/engine.h"

struct walk_counts {
        uint64_t slabs;
        uint64_t slab_pages;
        uint64_t large_pages;
        uint64_t cpu_slabs;
        uint64_t cpu_partial;
        uint64_t node_partial;
        uint64_t full;
        uint64_t inuse; /* objects that are neither on a list nor uncarved; if all are counted, also
                           blocks of engine slob, those that its type-safe caches keep among them */
};

/* CPU records that belong to no slot: a test's own. Count 0 forgets them. */
void walk_own_slots(const struct kmem_cache *cache, const struct engine_slot *slots,
                    unsigned int count);

/* Dies with a message if an invariant is broken. @cache: count only its slabs; NULL: all. */
void walk_heap(const struct kmem_cache *cache, struct walk_counts *counts);

#endif
