/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Figures for the program itself: of the heap, and of each cache in a walk.
 *
 * A walk keeps the birth of the cache it is at, not the cache, and holds no lock between calls.
 */
#include "api/owner.h"
#include "base/metadata.h"
#include "introspect/totals.h"

#include <errno.h>
#include <string.h>

_Static_assert(KMEM_NAME_BYTES == CACHE_NAME_BYTES, "a name fits");

static int failed(int error)
{
        errno = error;
        return -1;
}

/* Whether the caller's struct has room for its first field. */
static bool has_size(const size_t *size)
{
        return size && *size >= sizeof(*size);
}

/* Copies as much of a struct as the caller's struct has room for; its first field is its size. */
static void hand_out(void *to, size_t room, const void *from, size_t bytes)
{
        size_t known = min_of(room, bytes);

        memset(to, 0, room);
        memcpy(to, from, known);
        memcpy(to, &known, sizeof(known));
}

KMEM_PUBLIC int kmem_stats_get(struct kmem_stats *stats)
{
        struct heap_totals totals;
        struct kmem_stats known;

        if (!stats || !has_size(&stats->size))
                return failed(EINVAL);
        if (heap_is_foreign())
                return bound.calls->stats_get(stats);
        if (!heap_ready())
                return failed(ENOMEM);
        heap_total(&totals);
        known = (struct kmem_stats){
                .caches = totals.caches,
                .slabs = totals.slabs,
                .objects_inuse = totals.objects_inuse,
                .objects_free = totals.objects_free,
                .objects_resting = totals.resting,
                .object_bytes_inuse = totals.object_bytes_inuse,
                .object_bytes_free = totals.bytes_free,
                .large_blocks = totals.large.blocks,
                .large_bytes = totals.large.bytes,
                .huge_blocks = totals.large.huge_blocks,
                .huge_bytes = totals.large.huge_bytes,
                .huge_kept_bytes = totals.large.huge_kept_bytes,
                .bytes_inuse = totals.bytes_inuse,
                .page_bytes = PAGE_SIZE,
                .pages_accessible = totals.pages.accessible_pages,
                .pages_used = totals.pages.used_pages,
                .pages_free = totals.pages.free_pages,
                .pages_free_touched = totals.pages.free_touched_pages,
                .pages_purged = totals.pages.purged_pages,
                .metadata_bytes = metadata_mapped_bytes(),
                .metadata_used_bytes = metadata_used_bytes(),
                .objects_taken = totals.objects_taken,
                .large_taken = totals.large.handed_out,
        };
        hand_out(stats, stats->size, &known, sizeof(known));
        return 0;
}

static void look_locked(struct kmem_cache *cache, struct kmem_cache_info *info)
{
        struct cache_totals totals;

        cache_total(cache, &totals);
        *info = (struct kmem_cache_info){
                .id = cache->birth,
                .object_size = cache->object_size,
                .slab_size = cache->size,
                .align = cache->align,
                .flags = cache->flags,
                .aliases = max_of(cache->references, 1u) - 1,
                .objperslab = cache->objects,
                .pagesperslab = (uint32_t)pages_of_slab(cache, cache->order),
                .limit = totals.report.limit,
                .batchcount = totals.report.batchcount,
                .sharedfactor = totals.report.shared,
                .objects_inuse = totals.inuse,
                .objects_resting = totals.resting,
                .active_objs = active_objects(&totals.nodes),
                .num_objs = totals.nodes.objects,
                .active_slabs = totals.nodes.slabs - totals.report.free_slabs,
                .num_slabs = totals.nodes.slabs,
                .sharedavail = totals.report.shared_objects,
                .partial_slabs = totals.nodes.partial_slabs,
                .min_partial = cache->min_partial,
                .cpu_partial = cache->cpu_partial,
                .sheaf_capacity = load_relaxed(&cache->sheaf_capacity),
                .taken = totals.report.taken,
                .given = min_of(totals.report.given, totals.report.taken),
        };
        memcpy(info->name, cache->name, sizeof(info->name));
        strncpy(info->engine, cache->engine->name, sizeof(info->engine) - 1);
}

static bool exists_locked(const struct kmem_cache *cache)
{
        const struct list *node;

        list_for_each (node, &cache_list)
                if (container_of(node, struct kmem_cache, list) == cache)
                        return true;
        return false;
}

KMEM_PUBLIC int kmem_cache_info(struct kmem_cache *cache, struct kmem_cache_info *info)
{
        struct kmem_cache_info known;
        bool exists;

        if (!info || !has_size(&info->size))
                return failed(EINVAL);
        if (heap_is_foreign())
                return bound.calls->cache_info(cache, info);
        if (!heap_ready())
                return failed(EINVAL);
        lock_take(&cache_mutex);
        exists = exists_locked(cache);
        if (exists)
                look_locked(cache, &known);
        lock_drop(&cache_mutex);
        if (!exists)
                return failed(EINVAL);
        hand_out(info, info->size, &known, sizeof(known));
        return 0;
}

/* Births begin with 1; after the oldest cache the walk stays there. */
enum { POSITION_END = 1 };

KMEM_PUBLIC int kmem_cache_next(uint64_t *position, struct kmem_cache_info *info)
{
        struct kmem_cache_info known;
        struct kmem_cache *cache;

        if (!position || !info || !has_size(&info->size))
                return failed(EINVAL);
        if (heap_is_foreign())
                return bound.calls->cache_next(position, info);
        if (!heap_ready())
                return 0;
        lock_take(&cache_mutex);
        cache = cache_before_locked(*position);
        if (cache)
                look_locked(cache, &known);
        lock_drop(&cache_mutex);
        *position = cache ? known.id : POSITION_END;
        if (!cache)
                return 0;
        hand_out(info, info->size, &known, sizeof(known));
        return 1;
}
