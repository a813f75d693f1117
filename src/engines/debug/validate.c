/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Walks all slabs of a cache: attribute validate, and the objects that are left at the cache's end.
 */
#include "engines/debug/object.h"

/*
 * Checks free objects as free, others as in use (S10-30), regardless of the list (DEBUG-3).
 */
static void validate_slab_locked(struct debug_report *report, struct page *slab)
{
        uint32_t objects = slab_objects(slab);

        slab_check(report, slab);
        slab_check_list(report, slab);
        for (uint32_t index = 0; index < objects; index++)
                object_check(report, slab, slub_object(report->cache, slab, index),
                             !is_marked_free(slab, objects, index));
}

static uint64_t validate_list_locked(struct debug_report *report, const struct page_list *list)
{
        uint64_t slabs = 0;

        for (struct page *slab = page_list_first(list); slab; slab = page_list_next(slab)) {
                validate_slab_locked(report, slab);
                slabs++;
        }
        return slabs;
}

static void expect_count(struct debug_report *report, const char *what, uint64_t counted,
                         uint64_t counter)
{
        if (counted == counter)
                return;
        report_count(report);
        report_add(report, "SLUB: ");
        report_add_name(report, report->cache->name);
        report_add(report, " %lu %sslabs counted but counter=%lu\n", (unsigned long)counted, what,
                   (unsigned long)counter);
}

uint64_t debug_validate(struct kmem_cache *cache)
{
        uint64_t slabs = 0;

        for (unsigned int number = 0; number < system_nodes(); number++) {
                struct engine_node *node = &cache->node[number];
                struct debug_report report;
                uint64_t partial;
                uint64_t full;

                report_begin(&report, cache);
                lock_take(&node->list_lock);
                partial = validate_list_locked(&report, &node->partial);
                full = validate_list_locked(&report, &node->full);
                expect_count(&report, "partial ", partial, node->partial.length);
                expect_count(&report, "", partial + full + node->disabled,
                             load_relaxed(&node->slabs));
                lock_drop(&node->list_lock);
                report_send(&report);
                slabs += partial + full;
        }
        return slabs;
}

/* Each object counts as an error, and so does the heading. */
static uint64_t report_used_locked(struct debug_report *report, struct page *slab)
{
        uint32_t objects = slab_objects(slab);
        uint64_t used = 0;

        report_error(report, slab, NULL, "Objects remaining on __kmem_cache_shutdown()");
        for (uint32_t index = 0; index < objects; index++) {
                void *object = slub_object(report->cache, slab, index);

                if (is_marked_free(slab, objects, index))
                        continue;
                report_count(report);
                report_add(report, "Object 0x%016lx @offset=%zu\n",
                           (unsigned long)(uintptr_t)object,
                           (uintptr_t)object - (uintptr_t)page_address(slab));
                report_add_tracks(report, object);
                used++;
        }
        return used;
}

static uint64_t report_list_locked(struct debug_report *report, const struct page_list *list)
{
        uint64_t used = 0;

        for (struct page *slab = page_list_first(list); slab; slab = page_list_next(slab))
                used += report_used_locked(report, slab);
        return used;
}

uint64_t debug_report_leftovers(struct kmem_cache *cache)
{
        uint64_t used = 0;

        for (unsigned int number = 0; number < system_nodes(); number++) {
                struct engine_node *node = &cache->node[number];
                struct debug_report report;

                report_begin(&report, cache);
                lock_take(&node->list_lock);
                used += report_list_locked(&report, &node->partial);
                used += report_list_locked(&report, &node->full);
                lock_drop(&node->list_lock);
                report_send(&report);
        }
        return used;
}
