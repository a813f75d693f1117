/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects leave the back end: a refill of a CPU array (S6-31, S6-32).
 *
 * Any number of threads may be here at once, each with an array of its own to fill. A node's
 * list_lock protects the slabs that they take from; a new slab belongs to its maker until it is
 * listed.
 */
#include "engines/slab/slab.h"

#include "machine/system.h"

/* The node with the lists that the calling thread uses first. Tests with more nodes replace it. */
__attribute__((weak)) uint32_t slab_local_node(void)
{
        return system_current_node();
}

/* Whether to take the lock at all; a stale answer costs a slab too many, or a look in vain. */
static bool node_may_have_objects(const struct slab_node *data)
{
        const struct object_array *shared = load_acquire(&data->shared);

        return load_relaxed(&data->free_objects) || (shared && load_relaxed(&shared->available));
}

/* From the shared array, else from slabs. */
static unsigned int node_take(struct kmem_cache *cache, uint32_t node, void **objects,
                              unsigned int count)
{
        struct slab_node *data = &slab_data(cache)->node[node];
        unsigned int taken;

        if (!node_may_have_objects(data))
                return 0;
        lock_take(&cache->node[node].list_lock);
        taken = shared_take_locked(data, objects, count);
        if (!taken)
                taken = node_pop_locked(cache, node, objects, count);
        slab_drop_node(cache, node);
        return taken;
}

/* Makes a slab and takes the first objects out of it before any other thread sees it. */
static unsigned int node_grow(struct kmem_cache *cache, uint32_t node, void **objects,
                              unsigned int count)
{
        struct page *slab = slab_make(cache, node);
        unsigned int taken;

        if (!slab)
                return 0;
        taken = slab_pop_objects(cache, slab, objects, count);
        lock_take(&cache->node[node].list_lock);
        slab_list_new_locked(cache, slab);
        slab_drop_node(cache, node);
        return taken;
}

/*
 * Objects are stored in the order in which they leave a slab, so the array, popped from its end,
 * hands out the last of them first, as the kernel's does.
 */
unsigned int slab_take(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                       unsigned int count)
{
        uint32_t here = slab_local_node();
        unsigned int taken = 0;

        if (count) {
                taken = node_take(cache, here, objects, count);
                if (!taken)
                        taken = node_grow(cache, here, objects, count);
        }
        /* Without memory here, other nodes may still have objects, or memory. */
        for (uint32_t step = 1; count && !taken && step < system_nodes(); step++)
                taken = node_take(cache, system_near_node(here, step), objects, count);
        for (uint32_t step = 1; count && !taken && step < system_nodes(); step++)
                taken = node_grow(cache, system_near_node(here, step), objects, count);
        slot_count_taken_unlocked(slot, taken);
        return taken;
}

/*
 * Takes an object from the slabs of the node, else from a new slab there (S6-33); the node's shared
 * array is for refills only.
 */
void *slab_take_on_node(struct kmem_cache *cache, struct engine_slot *slot, int node)
{
        uint32_t home = (uint32_t)node;
        void *object = NULL;
        unsigned int taken = 0;

        if (load_relaxed(&slab_data(cache)->node[home].free_objects)) {
                lock_take(&cache->node[home].list_lock);
                taken = node_pop_locked(cache, home, &object, 1);
                slab_drop_node(cache, home);
        }
        if (!taken)
                taken = node_grow(cache, home, &object, 1);
        slot_count_taken_unlocked(slot, taken);
        return object;
}
