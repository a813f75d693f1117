/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The set of caches: the mutex that guards it, and every cache by its index.
 */
#ifndef KMEM_ENGINES_CACHES_H
#define KMEM_ENGINES_CACHES_H

#include "engines/engine.h"

/* Largest size with a class; the kernel's classes end at two pages (S8-23). */
enum { CLASS_BYTES_MAX = PAGE_SHIFT <= 14 ? 32768 : 2 << PAGE_SHIFT };

/* The set of caches; outermost of all locks. */
extern KMEM_HIDDEN struct lock cache_mutex;
/* All caches by index; NULL for a free index. Written under cache_mutex. */
extern KMEM_HIDDEN struct kmem_cache *caches_by_index[CACHES_MAX];

/* Reserves a free index for a pair; 0 if all are taken. Under cache_mutex. */
KMEM_HIDDEN uint32_t cache_index_take(void);
KMEM_HIDDEN void cache_index_give(uint32_t index);

/* Whether objects are so small that a page has several, which CPUs should not have in common. */
static inline bool cache_shares_pages(const struct kmem_cache *cache)
{
        return cache->size <= PAGE_SIZE / 8;
}

/*
 * The cache that an address of its slabs belongs to; NULL for large blocks and for addresses that
 * are not ours.
 */
static inline struct kmem_cache *cache_of(const void *address)
{
        return heap_contains(address)
                       ? caches_by_index[heap.map[address_page(address)] >> PAIR_SHIFT]
                       : NULL;
}

/* The cache of an index, if it is still the one of that birth; NULL if that cache is gone. */
static inline struct kmem_cache *cache_born(uint32_t index, uint64_t birth)
{
        /* Acquire, with percpu_setup and percpu_retire. */
        struct kmem_cache *cache = load_acquire(&caches_by_index[index]);

        return cache && cache->birth == birth ? cache : NULL;
}

#endif
