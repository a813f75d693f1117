/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The owners of objects: a vector of owners for each page of a slab (S11-01), made when the first
 * object that starts there is charged, and an owner for each large block.
 *
 * Back ends know nothing of owners. Objects whose starts are at least start_step bytes apart differ
 * in offset / start_step within their page, so that quotient is an object's place in its page's
 * vector. With a step of a page or more the page's own word holds the owner, with bit 0 set. In
 * pages that several caches share, objects start at multiples of 8 bytes (S4-21), and the step is
 * 8.
 */
#ifndef KMEM_ACCOUNT_OWNERS_H
#define KMEM_ACCOUNT_OWNERS_H

#include "account/group.h"
#include "engines/engine.h"

/* Computes start_step, the least distance between objects of a new cache. */
KMEM_HIDDEN void owners_setup(struct kmem_cache *cache);

/*
 * Whether objects that the page map gives to this cache may have owners: closed caches, and the
 * cache that stands for all caches of a back end with shared pages.
 */
static inline bool cache_has_owners(const struct kmem_cache *cache)
{
        return cache_is_closed(cache) || cache == cache->engine->shared;
}

/* The charge of an object: its stride and the word in the vector (S11-03). */
static inline size_t object_charge(const struct kmem_cache *cache)
{
        return (size_t)cache->size + sizeof(void *);
}

/* The charge of a block of exactly @bytes, rounded as the block's usable bytes can tell. */
static inline size_t exact_charge(size_t bytes)
{
        return round_up(bytes, sizeof(uint64_t)) + sizeof(void *);
}

/* Notes the owner of an object that is handed out; false without memory for the vector. */
KMEM_HIDDEN bool owner_put(const struct kmem_cache *cache, const void *object,
                           struct kmem_group *owner);

/* Clears the owner of an object that is given back, and takes its charge back. */
KMEM_HIDDEN void owner_forget(const struct kmem_cache *cache, const void *object);
/* owner_forget for many objects; NULL, and objects of other caches, are left out. */
KMEM_HIDDEN void owner_forget_bulk(const struct kmem_cache *cache, size_t count,
                                   void *const *objects);

/* The charge of a large block of @bytes: its pages, of 4 KiB. */
static inline size_t large_charge(size_t bytes)
{
        return round_up(bytes ? bytes : 1, PAGE_SIZE);
}

/* Owners of large blocks, which keep their charge beside the owner. */
KMEM_HIDDEN bool large_owner_put(void *block, struct kmem_group *owner, size_t charge);
KMEM_HIDDEN struct kmem_group *large_owner(const void *block, size_t *charge);
KMEM_HIDDEN struct kmem_group *large_owner_take(void *block, size_t *charge);

#endif
