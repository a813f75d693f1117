/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Adds up the figures of a cache, and of the whole heap. */
#include "introspect/totals.h"

#include "percpu/freed.h"

void cache_total(struct kmem_cache *cache, struct cache_totals *totals)
{
        uint64_t away;

        *totals = (struct cache_totals){0};
        percpu_report(cache, &totals->report, &totals->resting);
        totals->nodes = engine_report_total(&totals->report);
        away = totals->report.taken - min_of(totals->report.given, totals->report.taken);
        totals->inuse = away - min_of(totals->resting, away);
}

/* Of a cache that marks them, objects that were freed; not those that a refill brought. */
static bool has_mark(const void *object)
{
        return freed_is_marked(object);
}

size_t cache_free_parts(struct kmem_cache *cache, size_t part_bytes, bool due_only, bool in_sheaves)
{
        /* A program may have made pages of its own unreadable: such an object has a whole page. */
        bool may_read = cache->marks_freed && cache->size < system_page_bytes();
        struct parts_wanted wanted = {
                .bytes = part_bytes,
                .due_only = due_only,
                .rests = in_sheaves && may_read ? has_mark : NULL,
        };
        const struct engine *engine = cache->engine;
        size_t bytes = 0;

        for (unsigned int node = 0; node < system_nodes(); node++)
                bytes += engine->free_parts(cache, node, &wanted);
        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                struct slot *slot = number ? slot_made(number - 1) : &shared_slot;
                struct slot_cache *record = slot_peek(slot, cache_index(cache));

                if (record)
                        bytes += engine->free_parts_of_slot(cache, &record->engine, &wanted);
        }
        return bytes;
}

/* Large hardened blocks count as objects, too: they are in none of the figures of pages, nor in slabs. */
static void add_hardened(struct heap_totals *totals)
{
        uint64_t in_slabs;

        hardened_count(&totals->hardened);
        totals->objects_inuse += totals->hardened.blocks;
        totals->objects_taken += totals->hardened.taken;
        totals->bytes_inuse += totals->hardened.bytes;
        in_slabs = totals->hardened.bytes - totals->hardened.large_bytes;
        totals->bytes_free +=
                totals->hardened.slab_bytes - min_of(in_slabs, totals->hardened.slab_bytes);
}

void heap_total(struct heap_totals *totals)
{
        struct list *node;

        *totals = (struct heap_totals){0};
        lock_take(&cache_mutex);
        list_for_each (node, &cache_list) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);
                struct cache_totals one;
                uint64_t objects_free;

                cache_total(cache, &one);
                objects_free = one.nodes.objects - min_of(one.inuse, one.nodes.objects);
                totals->objects_inuse += one.inuse;
                totals->objects_free += objects_free;
                totals->objects_taken += one.report.taken;
                totals->bytes_inuse +=
                        one.report.has_bytes ? one.report.bytes_inuse : one.inuse * cache->size;
                totals->bytes_free +=
                        one.report.has_bytes ? one.report.bytes_free : objects_free * cache->size;
                totals->resting += one.resting;
                totals->slabs += one.nodes.slabs;
                totals->caches++;
        }
        lock_drop(&cache_mutex);
        pages_count(&totals->pages);
        large_count(&totals->large);
        if (hardened_is_on())
                add_hardened(totals);
        totals->object_bytes_inuse = totals->bytes_inuse;
        totals->bytes_inuse += totals->large.bytes + totals->large.huge_bytes;
}
