/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Where a slab of a debug cache hangs (DEBUG-2).
 */
#include "engines/debug/object.h"

void slab_link_locked(struct kmem_cache *cache, struct page *slab, bool tail)
{
        struct engine_node *node = slab_node(cache, slab);
        struct slab_state state = state_read(slab);

        debug_check(lock_is_held(&node->list_lock));
        if (state.frozen) {
                node->disabled++;
                slab_enter(cache, slab, STAGE_TRANSIT, STAGE_DISABLED);
        } else if (state.head == INDEX_END) {
                page_list_add_head(&node->full, slab);
                slab_enter(cache, slab, STAGE_TRANSIT, STAGE_FULL);
        } else {
                node_add_partial_locked(cache, node, slab, ENGINE_HOMES, tail);
        }
}

void slab_unlink_locked(struct kmem_cache *cache, struct page *slab)
{
        struct engine_node *node = slab_node(cache, slab);

        debug_check(lock_is_held(&node->list_lock) && !state_read(slab).frozen);
        if (slab->node_partial) {
                slab_enter(cache, slab, STAGE_NODE_PARTIAL, STAGE_TRANSIT);
                node_remove_partial_locked(node, slab);
        } else {
                slab_enter(cache, slab, STAGE_FULL, STAGE_TRANSIT);
                page_list_remove(&node->full, slab);
        }
}
