/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a slot keeps for a cache of an engine with CACHING_ARRAY: one array, the pair's main
 * (S6-01). The slow halves of its allocation and free.
 */
#ifndef KMEM_PERCPU_ARRAY_H
#define KMEM_PERCPU_ARRAY_H

#include "percpu/slot.h"

/*
 * Up to @count objects for a request that the caller's slot did not have them for; how many. 0 only
 * without memory; fewer also while the array cannot be had.
 */
KMEM_HIDDEN unsigned int array_alloc(struct kmem_cache *cache, struct slot *slot,
                                     struct slot_cache *record, void **objects, unsigned int count);
/* Takes objects whose push failed, because the slot's array is full or cold. */
KMEM_HIDDEN void array_free(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                            void **objects, unsigned int count);

#endif
