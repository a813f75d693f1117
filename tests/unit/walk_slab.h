/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A walk over the slabs of a cache of engine slab that checks SLAB-1 to SLAB-5 (engines/slab/slab.h). The
 * cache must be at rest.
 */
#ifndef TESTS_UNIT_WALK_SLAB_H
#define TESTS_UNIT_WALK_SLAB_H

#include "engines/engine.h"

struct walk_slab_counts {
        uint64_t full;
        uint64_t partial;
        uint64_t free;
        uint64_t active;  /* objects handed out as far as slabs know */
        uint64_t arrays;  /* of them, in shared and alien arrays */
        bool above_limit; /* a node has free slabs and more free objects than its limit */
};

/* Dies with a message if an invariant is broken. */
void walk_slab_cache(struct kmem_cache *cache, struct walk_slab_counts *counts);

#endif
