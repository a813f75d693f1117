/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The engine's table of operations: set-up, taking back, and operations for which SLOB has nothing
 * to do.
 */
#include "engines/slob/slob.h"

#include "base/metadata.h"

#include <errno.h>

enum { HWCACHE_LINE = 64 };

struct kmem_cache slob_shared = {
        .name = "slob",
        .engine = &slob_engine,
        .object_size = PAGE_SIZE,
        .size = PAGE_SIZE,
        .references = 1,
        .remote_node_defrag_ratio = REMOTE_NODE_DEFRAG_RATIO,
};

/* HWCACHE_ALIGN asks for a whole line, however small the object (S7-43). */
static uint32_t effective_align(const struct kmem_cache *cache)
{
        uint32_t least = cache->flags & SLAB_HWCACHE_ALIGN ? HWCACHE_LINE : SLOB_ALIGN;

        return max_of(cache->align, least);
}

/* The size in whole units; SLAB_TYPESAFE_BY_RCU adds a footer (S7-43). */
static size_t effective_size(const struct kmem_cache *cache)
{
        if (cache->flags & SLAB_TYPESAFE_BY_RCU)
                return round_up(cache->object_size, SLOB_ALIGN) + slob_footer_bytes();
        return round_up(cache->object_size, SLOB_UNIT);
}

/* Under cache_mutex. */
static int slob_setup(struct kmem_cache *cache)
{
        struct slob_cache *own;

        if (effective_size(cache) > order_bytes(ORDER_MAX))
                return EINVAL;
        if (!slob_list_count)
                slob_lists_init();
        cache->align = effective_align(cache);
        cache->size = (uint32_t)effective_size(cache);
        cache->order = get_order(cache->size);
        cache->min_order = cache->order;
        own = metadata_alloc(sizeof(*own));
        if (!own)
                return ENOMEM;
        own->cache = cache;
        cache->engine_data = own;
        return 0;
}

/* Objects that are still in use go unnoticed, and their memory is lost (S7-45). */
static bool slob_teardown(struct kmem_cache *cache)
{
        slob_free_idle(cache);
        metadata_free(cache->engine_data, sizeof(struct slob_cache));
        cache->engine_data = NULL;
        return false;
}

/*
 * slob_shared stands for callers that do not know the cache: free and kfree, which take kmalloc's
 * blocks only (S5-32).
 */
static unsigned int slob_give(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                              unsigned int count)
{
        (void)slot;
        for (unsigned int i = 0; i < count; i++) {
                const char *wrong = cache == &slob_shared ? slob_kfree(objects[i])
                                                          : slob_free_object(cache, objects[i]);

                if (unlikely(wrong))
                        engine_bad_free(cache, objects[i], wrong);
        }
        return 0;
}

static void slob_flush_slot(struct kmem_cache *cache, struct engine_slot *slot)
{
        (void)cache;
        (void)slot;
}

/* There are no slabs to free, and none remain (S7-45). */
static bool slob_shrink(struct kmem_cache *cache)
{
        (void)cache;
        return false;
}

/* The caches have objects and no slabs, slob_shared the pages and no objects. */
static void slob_engine_report(struct kmem_cache *cache, struct engine_report *report)
{
        struct slob_cache *own = slob_cache(cache);

        lock_take(&slob_lock);
        report->has_bytes = true;
        if (cache == &slob_shared) {
                slob_count_pages(0);
                report->node[0].slabs = slob_counts.pages;
                report->bytes_free = slob_counts.pages * PAGE_SIZE - slob_counts.allocated;
        } else {
                slob_show(own);
                report->taken = own->taken;
                report->given = own->given;
                report->node[0].objects = own->taken - own->given;
                report->bytes_inuse = own->bytes;
        }
        lock_drop(&slob_lock);
}

static void slob_report_slot(struct kmem_cache *cache, struct engine_slot *slot,
                             struct engine_report *report)
{
        (void)cache;
        (void)slot;
        (void)report;
}

static bool starts_something_locked(const struct page *page, const void *address)
{
        enum slob_start start = slob_start_locked(page, address);

        return start == SLOB_OBJECT || start == SLOB_KMALLOC;
}

/* Caches with objects of equal size share pages, so the address alone does not tell the cache. */
static bool slob_is_object(const struct kmem_cache *cache, const void *address)
{
        bool is_object = false;
        struct page *page;

        lock_take(&slob_lock);
        page = slob_page_locked(address);
        if (page)
                is_object = cache == &slob_shared ? starts_something_locked(page, address)
                                                  : slob_is_own_locked(cache, page, address);
        lock_drop(&slob_lock);
        return is_object;
}

const struct engine slob_engine = {
        .name = "slob",
        .title = "SLOB",
        .number = ENGINE_SLOB,
        .caching = CACHING_NONE,
        .shared = &slob_shared,
        .setup = slob_setup,
        .take = slob_take,
        .give = slob_give,
        .alloc_bytes = slob_alloc_bytes,
        .usable_bytes = slob_usable_bytes,
        .block_bytes = slob_block_bytes,
        .free_bytes = slob_kfree,
        .flush_slot = slob_flush_slot,
        .shrink = slob_shrink,
        .teardown = slob_teardown,
        .report = slob_engine_report,
        .report_slot = slob_report_slot,
        .is_object = slob_is_object,
};
