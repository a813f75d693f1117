/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The slow halves of allocation and free for a cache of an engine with CACHING_ARRAY. The slot has
 * one array for it, the pair's main (S6-01).
 */
#ifndef KMEM_PERCPU_ARRAY_H
#define KMEM_PERCPU_ARRAY_H

#include "percpu/slot.h"

/*
 * Takes up to @count objects for a request that the caller's slot could not serve, and returns how
 * many. 0 only without memory; fewer than @count also while the array cannot be had.
 */
KMEM_HIDDEN unsigned int array_alloc(struct kmem_cache *cache, struct slot *slot,
                                     struct slot_cache *record, void **objects, unsigned int count);
/* Takes objects after their push failed because the slot's array is full or cold. */
KMEM_HIDDEN void array_free(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                            void **objects, unsigned int count);

#endif
