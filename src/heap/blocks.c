/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Frees of many objects at once: runs of objects of a cache go together, the rest step by step. */
#include "heap/blocks.h"

#include "account/owners.h"
#include "base/options.h"
#include "percpu/rest.h"
#include "percpu/stock.h"
#include "profile/sample.h"
#include "record/record.h"

__thread uint32_t last_map_entry;

void objects_free(struct kmem_cache *cache, unsigned int count, void **objects, const void *site)
{
        unsigned int pushed = 0;

        for (unsigned int i = 0; is_recording() && i < count; i++)
                record_free(objects[i], site);
        if (cache_has_owners(cache)) {
                /*
                 * An object of another cache must not lie in this pair: handed out again, it would
                 * have its owner in a wrong place.
                 */
                count = objects_keep_own(cache, objects, count);
                owner_forget_bulk(cache, count, objects);
                pushed = rseq_push_bulk(sheaf_offset(cache), objects, count);
        }
        if (pushed < count)
                percpu_free_bulk_slow(cache, objects + pushed, count - pushed);
}

/*
 * Whether each object is freed by itself: blocks of exact sizes have no pair, and of blocks of pages each may be a sample,
 * and may come to rest or not (REST-1).
 */
static bool goes_alone(const struct kmem_cache *cache)
{
        return cache->engine->free_bytes || cache_is_of_pages(cache);
}

/* Frees the objects that the pair had no room for. */
static void free_run(struct kmem_cache *cache, unsigned int count, void **objects, const char *call,
                     const void *site)
{
        if (!goes_alone(cache)) {
                objects_free(cache, count, objects, site);
                return;
        }
        for (unsigned int i = 0; i < count; i++)
                block_free_at(objects[i], call, site);
}

void blocks_refuse_null(void *block, const char *call)
{
        if (options.bulk_null == BULK_NULL_REFUSE)
                report_bad_free(call, block, "not an object (bulk_null=refuse)");
}

static void free_unmapped(void *block, const char *call, const void *site)
{
        if (ZERO_OR_NULL_PTR(block))
                blocks_refuse_null(block, call);
        else
                block_free_at(block, call, site);
}

/*
 * Frees what goes to no slab at once: large blocks, NULL, objects of caches with sheaves. Returns
 * how many objects are left, at the front.
 */
static unsigned int free_unchained(unsigned int count, void **objects, const char *call,
                                   const void *site)
{
        unsigned int left = 0;

        for (unsigned int i = 0; i < count; i++) {
                uint32_t entry = map_entry(objects[i]);
                struct kmem_cache *cache = entry ? caches_by_index[entry >> PAIR_SHIFT] : NULL;

                if (!cache)
                        free_unmapped(objects[i], call, site);
                else if (percpu_frees_to_slabs(cache) && !goes_alone(cache))
                        objects[left++] = objects[i];
                else
                        free_run(cache, 1, &objects[i], call, site);
        }
        return left;
}

/*
 * Frees objects of several caches slab by slab, as the mail on bulk calls does. The look-ahead of a
 * chain passes over neighbours of other caches, so objects of two caches that take turns need few
 * slow frees. All chains of a cache are built before those of the next.
 */
static void free_chains(size_t count, void **objects, const char *call, const void *site)
{
        while (count) {
                unsigned int piece = (unsigned int)min_of(count, (size_t)BULK_PIECE);
                unsigned int left = free_unchained(piece, objects, call, site);

                while (left) {
                        uint32_t entry = map_entry(objects[left - 1]);

                        left = percpu_free_own(caches_by_index[entry >> PAIR_SHIFT], objects, left);
                }
                objects += piece;
                count -= piece;
        }
}

/*
 * Neighbours of the same cache are freed together; large blocks, NULL and strangers separately. The
 * first object of a cache that frees to slabs, with others behind its run, sends the rest to
 * free_chains.
 */
void blocks_free(size_t count, void **objects, uint32_t entry, unsigned int run,
                 unsigned int pushed, const char *call, const void *site)
{
        for (;;) {
                if (pushed < run) {
                        struct kmem_cache *cache = caches_by_index[entry >> PAIR_SHIFT];

                        if (run < count && percpu_frees_to_slabs(cache)) {
                                free_chains(count - pushed, objects + pushed, call, site);
                                return;
                        }
                        free_run(cache, run - pushed, objects + pushed, call, site);
                }
                objects += run;
                count -= run;
                if (!count)
                        return;
                entry = map_entry(objects[0]);
                if (likely(entry)) {
                        run = count_run(count, objects, entry);
                        pushed = rseq_push_bulk(foreseen_entry(entry), objects, run);
                } else {
                        free_unmapped(objects[0], call, site);
                        run = pushed = 1;
                }
        }
}
