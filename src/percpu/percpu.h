/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The per-CPU layer: every cache's sheaves, between callers and the back end.
 */
#ifndef KMEM_PERCPU_PERCPU_H
#define KMEM_PERCPU_PERCPU_H

#include "engines/fresh.h"
#include "percpu/slot.h"
#include "percpu/statistics.h"

/*
 * Whether malloc takes this size class in place of others while the heap is small (heap/classes.c):
 * with classes=auto powers of two, and three times a power of two.
 */
KMEM_HIDDEN bool class_is_coarse(uint32_t size);

/* Gives a new cache its index, barn and limits; 0 or ENOMEM, ENOSPC. Under cache_mutex. */
KMEM_HIDDEN int percpu_setup(struct kmem_cache *cache);
/* Undoes percpu_setup; the sheaves must have been flushed. Under cache_mutex. */
KMEM_HIDDEN void percpu_retire(struct kmem_cache *cache);

/*
 * Changes how many objects a new sheaf or array holds; up to sheaf_room for sheaves. All of the
 * cache's sheaves are emptied. Not for CACHING_NONE. Under cache_mutex.
 */
KMEM_HIDDEN void percpu_change_capacity(struct kmem_cache *cache, uint32_t capacity);

/*
 * Gives a class of pages the larger sheaves of sparse blocks, or its own (REST-4), unless somebody has set their
 * capacity. No lock may be held that comes after cache_mutex.
 */
KMEM_HIDDEN void percpu_suit_sparse(struct kmem_cache *cache, bool sparse);

/*
 * Closes a cache (cache_is_closed) that other threads may be using. Returns 0, or EPERM if the
 * sheaves of other slots cannot be taken (no membarrier), or ENOSPC if all indexes are in use.
 * Under cache_mutex.
 */
KMEM_HIDDEN int percpu_close(struct kmem_cache *cache);

/* The slow half of allocation; NULL only without memory. */
KMEM_HIDDEN void *percpu_alloc_slow(struct kmem_cache *cache);
/* An object of the calling CPU's main sheaf; NULL if it has none, or if the cache is closed. */
KMEM_HIDDEN void *percpu_alloc_resting(struct kmem_cache *cache);
/*
 * An object of node @node, which is below system_nodes(). If that node has none, the object comes
 * from another node, or the call fails if it wants @only that node. The engine knows nodes. NULL
 * without memory.
 */
KMEM_HIDDEN void *percpu_alloc_on_node(struct kmem_cache *cache, int node, bool only);
/*
 * The slow half of free. False if the object already lies on top of the sheaf that would receive
 * it, which is a double free; then nothing happened.
 */
KMEM_HIDDEN bool percpu_free_slow(struct kmem_cache *cache, void *object);
/*
 * Whether an object with the mark of free objects is free: empties the cache's sheaves, so that its
 * slab knows. Without membarrier the sheaves of other slots stay, and an object there counts as in
 * use.
 */
KMEM_HIDDEN bool percpu_is_free(struct kmem_cache *cache, const void *object);

enum { BULK_PIECE = 1 << 20 };

/*
 * The slow halves of the bulk calls (percpu/bulk.c). Allocation returns how many objects it got,
 * fewer than asked only without memory. Free takes addresses in the heap only and leaves garbage in
 * the array. BULK_PIECE objects at most.
 */
KMEM_HIDDEN unsigned int percpu_alloc_bulk_slow(struct kmem_cache *cache, void **objects,
                                                unsigned int count);
KMEM_HIDDEN void percpu_free_bulk_slow(struct kmem_cache *cache, void **objects,
                                       unsigned int count);

/* Whether a freed object goes to its slab at once, and the engine passes over other caches' ones. */
static inline bool percpu_frees_to_slabs(const struct kmem_cache *cache)
{
        return cache->engine->finds_foreign && !load_relaxed(&cache->sheaf_capacity) &&
               !cache_is_closed(cache);
}

/*
 * Gives the cache's objects among @objects back to their slabs, chain by chain (S5-21); the cache
 * frees to slabs. Objects of other caches move to the front of the array; returns their number.
 */
KMEM_HIDDEN unsigned int percpu_free_own(struct kmem_cache *cache, void **objects,
                                         unsigned int count);

/*
 * Empties all sheaves of a cache, of all slots and the barn, into the back end, and flushes the
 * back end's part of the slots. @unused: nobody uses the cache any more (destroy), so no fences are
 * needed. False if the sheaves of other slots could not be taken (no membarrier).
 */
KMEM_HIDDEN bool percpu_flush(struct kmem_cache *cache, bool unused);
/* percpu_flush for all caches, with one pair of fences; cache_mutex is held. */
KMEM_HIDDEN void percpu_flush_all(void);

/*
 * Empties the slots made so far and keeps them without sheaves, so that all their calls go to the
 * back end, until percpu_go_on is called with the number of slots that this call stored.
 * drain_mutex is held in between. False if the sheaves of other slots could not be taken: then
 * nothing is stopped and no lock held. Under cache_mutex, which may be dropped before percpu_go_on.
 */
KMEM_HIDDEN bool percpu_stop(unsigned int *slots);
KMEM_HIDDEN void percpu_go_on(unsigned int slots);

/*
 * Reads the CPUs again. Caches made from now on have orders by the new counts (S3-11). The slots of
 * CPUs that have left are emptied to the back end (S12-01), if the kernel lets us take their
 * sheaves (membarrier). The call reads some files, so malloc and free may not make it: a program in
 * a sandbox may no longer open files. Under cache_mutex.
 */
KMEM_HIDDEN void percpu_follow_cpus(void);
/* percpu_follow_cpus, at most every 100 ms. */
KMEM_HIDDEN void percpu_follow_cpus_seldom(void);

/* The cache's figures with objects resting in sheaves counted in *resting. */
KMEM_HIDDEN void percpu_report(struct kmem_cache *cache, struct engine_report *report,
                               uint64_t *resting);

/*
 * Whether no lock that the fork handlers take is held. One caller at a time; under cache_mutex,
 * where other threads may destroy caches.
 */
KMEM_HIDDEN bool percpu_locks_free(void);

/* For fork: all locks of this layer and the back ends. Under cache_mutex. */
KMEM_HIDDEN void percpu_fork_take(void (*take)(struct lock *lock));
KMEM_HIDDEN void percpu_fork_release(void (*release)(struct lock *lock));
KMEM_HIDDEN void percpu_fork_child(void);

/*
 * Pops an object from the calling CPU's sheaf; NULL if the slow path is needed. With locked slots
 * every call takes the slow path, which pops.
 */
static KMEM_ALWAYS_INLINE void *percpu_alloc_fast(uint64_t pair_offset)
{
        return rseq_pop(pair_offset);
}

/* An object of a size class, as it rested, becomes a program's. */
static KMEM_ALWAYS_INLINE void *object_unmarked(void *object)
{
        if (unlikely(object_is_fresh(object)))
                return object_without_fresh(object);
        freed_clear(object);
        return object;
}

/* percpu_alloc_fast from the pair of a size class, whose objects are marked while they are free. */
static KMEM_ALWAYS_INLINE void *percpu_alloc_class(uint64_t pair_offset)
{
        void *object = percpu_alloc_fast(pair_offset);

        return likely(object) ? object_unmarked(object) : NULL;
}

/* What percpu_alloc_class does, for an object or NULL of percpu_alloc or its kind. */
static inline void *percpu_unmarked(const struct kmem_cache *cache, void *object)
{
        return likely(object) && cache->marks_freed ? object_unmarked(object) : object;
}

static KMEM_ALWAYS_INLINE bool percpu_free_fast(uint64_t pair_offset, void *object)
{
        return rseq_push(pair_offset, object) == PUSH_DONE;
}

/* heap_regain (heap/reclaim.h), once the heap is up. */
extern KMEM_HIDDEN bool (*percpu_regain)(void);

/*
 * An object from the cache's sheaves, open or closed. One of a size class is as it rested there:
 * percpu_unmarked makes it a program's.
 */
static KMEM_ALWAYS_INLINE void *percpu_alloc(struct kmem_cache *cache)
{
        void *object = percpu_alloc_fast(sheaf_offset(cache));

        if (unlikely(!object))
                return percpu_alloc_slow(cache);
        count_sheaf_events(cache, ALLOC_FASTPATH, 1);
        return object;
}

#endif
