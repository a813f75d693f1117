/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The bulk calls (S5). Counts beyond 32 bits are done in pieces.
 */
#include "account/owners.h"
#include "heap/accounted.h"
#include "heap/owner.h"
#include "percpu/stock.h"

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

/* Starts anew, with the charge first: @taken objects came from a cache that was open then. */
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

/* What the sheaf did not cover of a request: @taken objects are there already. */
static KMEM_NOINLINE int alloc_bulk_rest(struct kmem_cache *cache, gfp_t flags, size_t count,
                                         void **objects, size_t taken)
{
        if (heap_is_foreign())
                return bound.heap_owner->cache_alloc_bulk(cache, flags, count, objects);
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
                taken = rseq_pop_bulk(cache->pair_offset, objects, count);
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

/* One object takes the short way of a single call, whose registers need no saving. */
KMEM_PUBLIC int kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t count,
                                      void **objects)
{
        if (count == 1 && likely(!(flags & (__GFP_ZERO | __GFP_ACCOUNT)))) {
                void *object = percpu_alloc_fast(cache->pair_offset);

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
        return !(distances & load_relaxed(&heap.outside)) && fast.heap_bytes != 0;
}

/* What the cache's pair had no room for: of a closed cache everything. */
static KMEM_NOINLINE void free_slow(struct kmem_cache *cache, unsigned int count, void **objects,
                                    const void *site)
{
        unsigned int pushed = 0;

        for (unsigned int i = 0; is_recording() && i < count; i++)
                record_free(objects[i], site);
        if (cache_has_owners(cache)) {
                /* Handed out again, an object of another cache would have its owner in a wrong place. */
                count = objects_keep_own(cache, objects, count);
                owner_forget_bulk(cache, count, objects);
                pushed = rseq_push_bulk(sheaf_offset(cache), objects, count);
        }
        if (pushed < count)
                percpu_free_bulk_slow(cache, objects + pushed, count - pushed);
}

/* What the sheaf had no room for, in pieces; strangers among them one by one. */
static KMEM_NOINLINE void free_bulk_rest(struct kmem_cache *cache, size_t count, void **objects)
{
        const void *site = CALL_SITE;

        if (heap_is_foreign()) {
                bound.heap_owner->cache_free_bulk(cache, count, objects);
                return;
        }
        while (count) {
                unsigned int piece = (unsigned int)min_of(count, (size_t)BULK_PIECE);

                if (likely(all_in_heap(piece, objects)))
                        free_slow(cache, piece, objects, site);
                else
                        for (unsigned int i = 0; i < piece; i++)
                                kmem_cache_free(cache, objects[i]);
                objects += piece;
                count -= piece;
        }
}

static KMEM_NOINLINE void free_same_cache(struct kmem_cache *cache, size_t count, void **objects)
{
        unsigned int pushed = 0;

        if (likely(count <= BULK_PIECE) && likely(fast.heap_bytes != 0))
                pushed = rseq_push_bulk(cache->pair_offset, objects, count);
        if (unlikely(pushed < count))
                free_bulk_rest(cache, count - pushed, objects + pushed);
}

/* The page map entry of an object that is looked up by address, 0 if that needs the slow path. */
static KMEM_ALWAYS_INLINE uint32_t map_entry(const void *object)
{
        uintptr_t offset = (uintptr_t)object - fast.heap_base;

        return likely(offset < fast.heap_bytes) ? fast.map[offset >> PAGE_SHIFT] : 0;
}

/*
 * The entry again, but from the last call, if that had the same: the processor then goes on to the
 * sheaf while it still reads object and page map, instead of waiting for both. The empty statement
 * hides from the compiler that the two are equal, or it would use the one that is waited for.
 */
static KMEM_ALWAYS_INLINE uint32_t foreseen_entry(uint32_t entry)
{
        static __thread uint32_t last_entry __attribute__((tls_model("initial-exec")));
        uint32_t last = last_entry;
        uint32_t foreseen = last;

        __asm__("" : "+r"(foreseen));
        if (likely(entry == last))
                return foreseen;
        last_entry = entry;
        return entry;
}

/* What the pair had no room for; blocks of exact sizes have no pair and go one by one. */
static KMEM_NOINLINE void free_any_slow(struct kmem_cache *cache, unsigned int count,
                                        void **objects, const void *site)
{
        if (!cache->engine->free_bytes) {
                free_slow(cache, count, objects, site);
                return;
        }
        for (unsigned int i = 0; i < count; i++)
                block_free_at(objects[i], "kfree_bulk", site);
}

/* How many objects from the first on have its page map entry, which is @entry. */
static KMEM_ALWAYS_INLINE unsigned int count_run(size_t count, void **objects, uint32_t entry)
{
        unsigned int most = (unsigned int)min_of(count, (size_t)BULK_PIECE);
        unsigned int run = 1;

        while (run < most && map_entry(objects[run]) == entry)
                run++;
        return run;
}

/*
 * Neighbours of the same cache go together; large blocks, NULL and strangers one by one. Of the
 * first @run objects, whose entry is @entry, @pushed are on their sheaf already.
 */
static KMEM_NOINLINE void free_any_rest(size_t count, void **objects, uint32_t entry,
                                        unsigned int run, unsigned int pushed)
{
        const void *site = CALL_SITE;

        for (;;) {
                if (pushed < run)
                        free_any_slow(caches_by_index[entry >> PAIR_SHIFT], run - pushed,
                                      objects + pushed, site);
                objects += run;
                count -= run;
                if (!count)
                        return;
                entry = map_entry(objects[0]);
                if (likely(entry)) {
                        run = count_run(count, objects, entry);
                        pushed = rseq_push_bulk(foreseen_entry(entry), objects, run);
                } else {
                        if (!ZERO_OR_NULL_PTR(objects[0]))
                                block_free_at(objects[0], "kfree_bulk", site);
                        run = pushed = 1;
                }
        }
}

/* The first run, which is often all there is, without a frame for calls. */
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

KMEM_PUBLIC void kmem_cache_free_bulk(struct kmem_cache *cache, size_t count, void **objects)
{
        if (!cache)
                kfree_bulk(count, objects);
        else if (count == 1)
                kmem_cache_free(cache, objects[0]);
        else
                free_same_cache(cache, count, objects);
}

KMEM_PUBLIC void kfree_bulk(size_t count, void **objects)
{
        if (count != 1)
                free_any_cache(count, objects);
        else if (unlikely(!percpu_free_fast(foreseen_entry(map_entry(objects[0])), objects[0])))
                block_kfree_slow(objects[0], "kfree_bulk");
}
