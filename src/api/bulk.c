/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The bulk calls (S5). Counts beyond 32 bits are done in pieces. */
#include "api/owner.h"
#include "heap/accounted.h"
#include "heap/blocks.h"

#include <limits.h>
#include <string.h>

static void clear_objects(struct kmem_cache *cache, void **objects, size_t count)
{
        for (size_t i = 0; i < count; i++)
                memset(objects[i], 0, cache->object_size);
}

static KMEM_COLD int alloc_bulk_failed(struct kmem_cache *cache, gfp_t flags, void **objects,
                                       size_t taken)
{
        kmem_cache_free_bulk(cache, taken, objects);
        cache_alloc_failed(cache, flags);
        return 0;
}

/*
 * Starts the request anew, with the charge first: its first @taken objects came from a cache that
 * was open then.
 */
static int alloc_bulk_accounted(struct kmem_cache *cache, gfp_t flags, size_t count, void **objects,
                                size_t taken, const void *site)
{
        if (taken)
                kmem_cache_free_bulk(cache, taken, objects);
        if (!accounted_alloc_bulk(cache, flags, count, objects, site))
                return alloc_bulk_failed(cache, flags, objects, 0);
        if (flags & __GFP_ZERO)
                clear_objects(cache, objects, count);
        return (int)count;
}

/* Takes the objects of a request that the sheaf did not cover; @taken objects are there already. */
static KMEM_NOINLINE int alloc_bulk_rest(struct kmem_cache *cache, gfp_t flags, size_t count,
                                         void **objects, size_t taken)
{
        if (heap_is_foreign())
                return bound.calls->cache_alloc_bulk(cache, flags, count, objects);
        cache_check(cache, "kmem_cache_alloc_bulk");
        if (count > INT_MAX)
                return alloc_bulk_failed(cache, flags, objects, taken);
        if (cache_is_closed(cache) || wants_account(flags))
                return alloc_bulk_accounted(cache, flags, count, objects, taken, CALL_SITE);
        while (taken < count) {
                unsigned int piece = (unsigned int)min_of(count - taken, (size_t)BULK_PIECE);
                unsigned int got = percpu_alloc_bulk_slow(cache, objects + taken, piece);

                taken += got;
                if (got < piece)
                        return alloc_bulk_failed(cache, flags, objects, taken);
        }
        if (flags & __GFP_ZERO)
                clear_objects(cache, objects, count);
        return (int)count;
}

static KMEM_NOINLINE int alloc_many(struct kmem_cache *cache, gfp_t flags, size_t count,
                                    void **objects)
{
        unsigned int taken = 0;

        if (likely(count <= BULK_PIECE))
                taken = rseq_pop_bulk(cache->fast_offset, objects, count);
        if (unlikely(taken < count))
                return alloc_bulk_rest(cache, flags, count, objects, taken);
        if (unlikely(flags & (__GFP_ZERO | __GFP_ACCOUNT))) {
                if (wants_account(flags))
                        return alloc_bulk_accounted(cache, flags, count, objects, count, CALL_SITE);
                if (flags & __GFP_ZERO)
                        clear_objects(cache, objects, count);
        }
        return (int)count;
}

/* A request for a single object takes the short way of a single call, which saves no registers. */
KMEM_PUBLIC int kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t count,
                                      void **objects)
{
        if (count == 1 && likely(!(flags & (__GFP_ZERO | __GFP_ACCOUNT)))) {
                void *object = percpu_alloc_fast(cache->fast_offset);

                if (unlikely(!object))
                        return alloc_bulk_rest(cache, flags, 1, objects, 0);
                objects[0] = object;
                return 1;
        }
        return alloc_many(cache, flags, count, objects);
}

/* Whether no entry is NULL or outside the reservation, and check=sheaf is off. */
static bool all_in_heap(size_t count, void **objects)
{
        uintptr_t distances = 0;

        for (size_t i = 0; i < count; i++)
                distances |= (uintptr_t)objects[i] - heap.base;
        return !(distances & load_relaxed(&heap.outside)) && load_folded(&fast.heap_bytes) != 0;
}

static void free_bulk_entry(struct kmem_cache *cache, void *object)
{
        if (!object)
                blocks_refuse_null(object, "kmem_cache_free_bulk");
        else
                kmem_cache_free(cache, object);
}

/* Frees the objects that the sheaf had no room for, in pieces; the pieces may contain strangers. */
static KMEM_NOINLINE void free_bulk_rest(struct kmem_cache *cache, size_t count, void **objects)
{
        const void *site = CALL_SITE;

        if (heap_is_foreign()) {
                bound.calls->cache_free_bulk(cache, count, objects);
                return;
        }
        cache_check_free(cache, "kmem_cache_free_bulk");
        while (count) {
                unsigned int piece = (unsigned int)min_of(count, (size_t)BULK_PIECE);

                if (likely(all_in_heap(piece, objects)))
                        objects_free(cache, piece, objects, site);
                else
                        for (unsigned int i = 0; i < piece; i++)
                                free_bulk_entry(cache, objects[i]);
                objects += piece;
                count -= piece;
        }
}

static KMEM_NOINLINE void free_same_cache(struct kmem_cache *cache, size_t count, void **objects)
{
        unsigned int pushed = 0;

        if (likely(count <= BULK_PIECE) && likely(load_folded(&fast.heap_bytes) != 0))
                pushed = rseq_push_bulk(cache->fast_offset, objects, count);
        if (unlikely(pushed < count))
                free_bulk_rest(cache, count - pushed, objects + pushed);
}

static KMEM_NOINLINE void free_any_rest(size_t count, void **objects, uint32_t entry,
                                        unsigned int run, unsigned int pushed)
{
        if (heap_is_foreign())
                bound.calls->cache_free_bulk(NULL, count, objects);
        else
                blocks_free(count, objects, entry, run, pushed, "kfree_bulk", CALL_SITE);
}

/*
 * Frees the first run of objects of a cache, which is often all, without a stack frame for calls.
 */
static KMEM_NOINLINE void free_any_cache(size_t count, void **objects)
{
        uint32_t entry = count ? map_entry(objects[0]) : 0;
        unsigned int run = 0;
        unsigned int pushed = 0;

        if (likely(entry)) {
                run = count_run(count, objects, entry);
                pushed = rseq_push_bulk(foreseen_entry(entry), objects, run);
        }
        if (unlikely(pushed < count))
                free_any_rest(count, objects, entry, run, pushed);
}

static KMEM_NOINLINE void free_single_slow(void **objects)
{
        if (ZERO_OR_NULL_PTR(objects[0]))
                free_any_rest(1, objects, 0, 0, 0);
        else
                owner_block_kfree_slow(objects[0], "kfree_bulk");
}

KMEM_PUBLIC void kmem_cache_free_bulk(struct kmem_cache *cache, size_t count, void **objects)
{
        if (!cache)
                kfree_bulk(count, objects);
        else if (count == 1 && likely(objects[0]))
                kmem_cache_free(cache, objects[0]);
        else
                free_same_cache(cache, count, objects);
}

KMEM_PUBLIC void kfree_bulk(size_t count, void **objects)
{
        if (count != 1)
                free_any_cache(count, objects);
        else if (unlikely(!percpu_free_fast(foreseen_entry(map_entry(objects[0])), objects[0])))
                free_single_slow(objects);
}
