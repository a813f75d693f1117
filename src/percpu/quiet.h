/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Takes away, for the reclaim thread (heap/reclaim.c), the content of slots that nobody uses. */
#ifndef KMEM_PERCPU_QUIET_H
#define KMEM_PERCPU_QUIET_H

#include "percpu/slot.h"

/*
 * Looks at all records of slots, and empties, by one drain, the records that nobody has used since
 * the last look. False if there was nothing to take and nothing has changed. Under cache_mutex.
 */
KMEM_HIDDEN bool percpu_take_quiet(void);

/*
 * Called before the slot's @cache takes objects from its slabs. If the heap has grown by an eighth, and by a
 * MiB, since the last look, it looks at the slot's other caches with objects above a page, and empties those
 * that nobody has used since then: so a program that goes on to other sizes gets the pages that its former
 * sizes left. No lock may be held that comes after cache_mutex.
 */
KMEM_HIDDEN void percpu_look_grown(struct slot *slot, const struct kmem_cache *cache);

/*
 * Called for each block of @cache that comes while the slot is full of blocks of pages (REST-1). Every
 * 64th has the same caches looked at in that way, so that blocks of sizes that the program no longer
 * uses make room. Locks as above.
 */
KMEM_HIDDEN void percpu_look_full(struct slot *slot, const struct kmem_cache *cache);

/* For pages_end_rest: the calling thread's slot gives up all objects above a page, if they are much of the heap. */
KMEM_HIDDEN void percpu_end_rest(void);

/*
 * A number that changes whenever objects of the cache leave the back end or come back to it, or a
 * slot gives up a slab. While it stays, the cache's slabs do not change. Under cache_mutex.
 */
KMEM_HIDDEN uint64_t percpu_activity(struct kmem_cache *cache);
/* A number that changes with the free objects in sheaves, stocks and barns, which are read without a lock. */
KMEM_HIDDEN uint64_t percpu_resting(struct kmem_cache *cache);

#endif
