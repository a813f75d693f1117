/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Frees of many objects at once: runs of objects of a cache go together, the rest step by step. */
#include "heap/blocks.h"

#include "account/owners.h"
#include "percpu/stock.h"
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
 * Frees the objects that the pair had no room for. Blocks of exact sizes have no pair and are freed
 * each by itself.
 */
static void free_run(struct kmem_cache *cache, unsigned int count, void **objects, const char *call,
                     const void *site)
{
        if (!cache->engine->free_bytes) {
                objects_free(cache, count, objects, site);
                return;
        }
        for (unsigned int i = 0; i < count; i++)
                block_free_at(objects[i], call, site);
}

/* Neighbours of the same cache are freed together; large blocks, NULL and strangers separately. */
void blocks_free(size_t count, void **objects, uint32_t entry, unsigned int run,
                 unsigned int pushed, const char *call, const void *site)
{
        for (;;) {
                if (pushed < run)
                        free_run(caches_by_index[entry >> PAIR_SHIFT], run - pushed,
                                 objects + pushed, call, site);
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
                                block_free_at(objects[0], call, site);
                        run = pushed = 1;
                }
        }
}
