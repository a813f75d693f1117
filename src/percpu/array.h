/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a slot keeps for a cache of an engine with CACHING_ARRAY: one array, the pair's main
 * (S6-01). The slow halves of its allocation and free.
 */
#ifndef KMEM_PERCPU_ARRAY_H
#define KMEM_PERCPU_ARRAY_H

#include "percpu/slot.h"

/* The caller's slot has no object to pop; NULL only without memory. */
KMEM_HIDDEN void *array_alloc(struct kmem_cache *cache, struct slot *slot,
                              struct slot_cache *record);
/* The push onto the caller's slot failed because the array is full or cold. */
KMEM_HIDDEN void array_free(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                            void *object);
/* Whether the caller's slot has the object in its array. */
KMEM_HIDDEN bool array_holds(struct kmem_cache *cache, struct slot *slot,
                             struct slot_cache *record, const void *object);

#endif
