/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Figures of the SLAB back end (S6-70), and the engine's table of operations.
 */
#include "engines/slab/slab.h"

static void slab_report(struct kmem_cache *cache, struct engine_report *report)
{
        for (uint32_t number = 0; number < system_nodes(); number++) {
                struct engine_node *node = &cache->node[number];
                const struct slab_node *data = &slab_data(cache)->node[number];
                struct engine_node_report *counts = &report->node[number];

                lock_take(&node->list_lock);
                counts->slabs += node->slabs;
                counts->objects += node->objects;
                counts->partial_slabs += node->partial.length;
                counts->partial_inuse +=
                        (node->partial.length + data->free.length) * cache->objects -
                        data->free_objects;
                counts->listed_free += data->free_objects;
                report->free_slabs += data->free.length;
                if (data->shared)
                        report->shared_objects += data->shared->available;
                /*
                 * Objects in arrays are counted as given since they entered; negative here, for a
                 * sum.
                 */
                report->given -= data->refused;
                slab_drop_node(cache, number);
        }
        report->limit = cache->sheaf_capacity;
        report->batchcount = cache->batchcount;
        report->shared = cache->shared;
}

static void slab_report_slot(struct kmem_cache *cache, struct engine_slot *slot,
                             struct engine_report *report)
{
        (void)cache;
        report->taken += load_relaxed(&slot->taken);
        report->given += load_relaxed(&slot->given);
}

/* There is nothing to flush: a slot's only objects are in its array. */
static void slab_flush_slot(struct kmem_cache *cache, struct engine_slot *slot)
{
        (void)cache;
        (void)slot;
}

/*
 * Also called for a cache that is about to end and has no arrays any more: a handler may fork then.
 */
static void slab_each_lock(struct kmem_cache *cache, void (*act)(struct lock *))
{
        if (!slab_data(cache))
                return;
        for (uint32_t here = 0; here < system_nodes(); here++)
                for (uint32_t home = 0; home < system_nodes(); home++) {
                        struct object_array *alien = slab_data(cache)->node[here].alien[home];

                        if (alien)
                                act(&alien->lock);
                }
}

static bool slab_is_object(const struct kmem_cache *cache, const void *address)
{
        return slab_index(cache, slab_of(cache, address), address) != NO_INDEX;
}

static bool slab_is_free(const struct kmem_cache *cache, const void *object)
{
        struct page *slab = slab_of(cache, object);
        uint32_t index = slab_index(cache, slab, object);

        return index != NO_INDEX && !slab_is_used(cache, slab, index);
}

static int slab_node_of(const struct kmem_cache *cache, const void *object)
{
        return slab_of(cache, object)->node;
}

const struct engine slab_engine = {
        .name = "slab",
        .title = "SLAB",
        .number = ENGINE_SLAB,
        .caching = CACHING_ARRAY,
        .setup = slab_setup,
        .take = slab_take,
        .take_on_node = slab_take_on_node,
        .node_of = slab_node_of,
        .give = slab_give,
        .flush_count = slab_flush_count,
        .flush = slab_flush,
        .reap = slab_reap,
        .each_lock = slab_each_lock,
        .flush_slot = slab_flush_slot,
        .shrink = slab_shrink,
        .teardown = slab_teardown,
        .report = slab_report,
        .report_slot = slab_report_slot,
        .is_object = slab_is_object,
        .is_free = slab_is_free,
};
