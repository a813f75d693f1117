/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Figures of the SLUB back end, and its tables of operations, with and without CPU slabs.
 */
#include "engines/slub/slab.h"

void slub_report(struct kmem_cache *cache, struct engine_report *report)
{
        for (unsigned int number = 0; number < system_nodes(); number++) {
                struct engine_node *node = &cache->node[number];
                struct engine_node_report *counts = &report->node[number];

                lock_take(&node->list_lock);
                for (struct page *slab = page_list_first(&node->partial); slab;
                     slab = page_list_next(slab)) {
                        struct slab_state state = state_unpack(load_relaxed(&slab->state));

                        counts->partial_inuse += state.inuse;
                        counts->listed_free += state.objects - state.inuse;
                }
                node_show_partial_locked(node);
                counts->partial_slabs += node->partial.length;
                counts->slabs += load_relaxed(&node->slabs);
                counts->objects += load_relaxed(&node->objects);
                lock_drop(&node->list_lock);
        }
}

/* A list is counted for the node of its head, and only beside a CPU slab, as in the kernel. */
void slub_report_slot(struct kmem_cache *cache, struct engine_slot *slot,
                      struct engine_report *report)
{
        (void)cache;
        lock_take(&slot->lock);
        if (slot->slab)
                report->node[slot->slab->node].cpu_slabs++;
        if (slot->slab && slot->partial) {
                const struct page *head = page_at(slot->partial);

                report->node[head->node].cpu_slabs += head->prev;
        }
        lock_drop(&slot->lock);
        report->taken += load_relaxed(&slot->taken);
        report->given += load_relaxed(&slot->given);
}

bool slub_is_object(const struct kmem_cache *cache, const void *address)
{
        const struct page *slab = slub_slab_of(cache, address);

        return slub_index(cache, slab, slab_objects(slab), address) != INDEX_END;
}

bool slub_is_free(const struct kmem_cache *cache, const void *object)
{
        const struct page *slab = slub_slab_of(cache, object);
        uint32_t index = slub_index(cache, slab, slab_objects(slab), object);

        return index != INDEX_END && slab_next(slab, slab_objects(slab), index) != INDEX_IN_USE;
}

int slub_node_of(const struct kmem_cache *cache, const void *object)
{
        return slub_slab_of(cache, object)->node;
}

const struct engine slub_node_engine = {
        .name = "slub",
        .title = "SLUB",
        .number = ENGINE_SLUB,
        .samples = true,
        .setup = slub_setup,
        .take = slub_node_take,
        .take_on_node = slub_node_take_on_node,
        .node_of = slub_node_of,
        .give = slub_give,
        .finds_foreign = true,
        .flush_slot = slub_flush_slot,
        .shrink = slub_shrink,
        .purge = slub_purge,
        .free_parts = slub_free_parts,
        .free_parts_of_slot = slub_free_parts_of_slot,
        .teardown = slub_teardown,
        .report = slub_report,
        .report_slot = slub_report_slot,
        .is_object = slub_is_object,
        .is_free = slub_is_free,
};

const struct engine slub_engine = {
        .name = "slub",
        .title = "SLUB",
        .number = ENGINE_SLUB,
        .samples = true,
        .setup = slub_setup,
        .take = slub_take,
        .has_slabs = slub_has_slabs,
        .would_grow = slub_would_grow,
        .take_on_node = slub_take_on_node,
        .node_of = slub_node_of,
        .give = slub_give,
        .finds_foreign = true,
        .flush_slot = slub_flush_slot,
        .shrink = slub_shrink,
        .purge = slub_purge,
        .free_parts = slub_free_parts,
        .free_parts_of_slot = slub_free_parts_of_slot,
        .teardown = slub_teardown,
        .report = slub_report,
        .report_slot = slub_report_slot,
        .is_object = slub_is_object,
        .is_free = slub_is_free,
};
