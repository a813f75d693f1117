/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The back end of debug caches: its table of operations, and how a cache ends.
 */
#include "engines/debug/object.h"

#include "engines/debug/traces.h"
#include "page/deferred.h"

/* Slabs leave the counts in the hold of list_lock in which they leave the list (DEBUG-2). */
static void node_shrink(struct kmem_cache *cache, struct engine_node *node)
{
        uint32_t empty;

        lock_take(&node->list_lock);
        empty = node_shrink_locked(cache, node);
        for (uint32_t number = empty; number; number = page_at(number)->next)
                node_count_slab(cache, page_at(number), false);
        lock_drop(&node->list_lock);
        slabs_check_and_end(cache, empty);
}

/* Returns how many slabs are left. */
static uint64_t nodes_shrink(struct kmem_cache *cache)
{
        uint64_t slabs = 0;

        for (unsigned int node = 0; node < system_nodes(); node++) {
                node_shrink(cache, &cache->node[node]);
                slabs += load_relaxed(&cache->node[node].slabs);
        }
        return slabs;
}

static bool debug_shrink(struct kmem_cache *cache)
{
        uint64_t slabs = nodes_shrink(cache);

        pages_release_deferred();
        return slabs != 0;
}

static bool debug_teardown(struct kmem_cache *cache)
{
        uint64_t slabs = nodes_shrink(cache);

        if (!slabs)
                return false;
        engine_report_leaked(cache, debug_report_leftovers(cache), slabs);
        return true;
}

/* A slot keeps nothing of a debug cache (S10-01). */
static void debug_flush_slot(struct kmem_cache *cache, struct engine_slot *slot)
{
}

const struct engine debug_engine = {
        .name = "slub",
        .title = "SLUB",
        .number = ENGINE_SLUB,
        .caching = CACHING_NONE,
        .checks_at_end = true,
        .setup = debug_setup,
        .take = debug_take,
        .take_on_node = debug_take_on_node,
        .node_of = slub_node_of,
        .give = debug_give,
        .flush_slot = debug_flush_slot,
        .shrink = debug_shrink,
        .teardown = debug_teardown,
        .report = slub_report,
        .report_slot = slub_report_slot,
        .is_object = slub_is_object,
        .is_free = slub_is_free,
        .request = debug_request,
        .set_request = debug_set_request,
        .report_stranger = debug_report_stranger,
        .validate = debug_validate,
        .errors = debug_errors,
        .traces = debug_traces,
};
