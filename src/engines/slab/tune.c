/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * New tunables of a cache that is in use (S6-51): the part of the nodes. The limit of the CPU
 * arrays is the per-CPU layer's part.
 *
 * The caller holds cache_mutex, so no reaper and no second tuner runs. Shared arrays are exchanged
 * under list_lock. A reader that looks at a shared array without the lock, for a hint, may look at
 * memory that was an array before: that costs a lock in vain, a slab too many or a smaller batch.
 */
#include "engines/slab/slab.h"

#include <errno.h>

/*
 * Makes a shared array for each node, or NULL if @limit is 0; false without memory, and then none
 * is left.
 */
static bool make_shared(struct object_array *arrays[NODES_MAX], uint32_t limit)
{
        for (uint32_t node = 0; limit && node < system_nodes(); node++) {
                arrays[node] = object_array_new(limit);
                if (arrays[node])
                        continue;
                while (node--)
                        object_array_free(arrays[node]);
                return false;
        }
        return true;
}

/* Objects in the old array go to their slabs. */
static void replace_shared(struct kmem_cache *cache, uint32_t node, struct object_array *shared)
{
        struct slab_node *data = &slab_data(cache)->node[node];
        struct object_array *old;
        uint32_t doomed = 0;

        lock_take(&cache->node[node].list_lock);
        shared_drain_locked(cache, node, UINT32_MAX, &doomed);
        old = data->shared;
        /* Release: pairs with readers of the pointer that do not hold the lock. */
        store_release(&data->shared, shared);
        data->free_limit = slab_free_limit(cache, node);
        slab_drop_node(cache, node);
        slab_end_all(cache, doomed);
        object_array_free(old);
}

int slab_tune(struct kmem_cache *cache, uint32_t batchcount, uint32_t shared)
{
        struct object_array *arrays[NODES_MAX] = {NULL};

        if (!make_shared(arrays, shared * batchcount))
                return ENOMEM;
        store_relaxed(&cache->batchcount, batchcount);
        cache->shared = shared;
        for (uint32_t node = 0; node < system_nodes(); node++)
                replace_shared(cache, node, arrays[node]);
        return 0;
}
