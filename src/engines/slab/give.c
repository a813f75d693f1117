/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects come back: flushed out of a full CPU array, by way of shared and alien arrays (S6-41,
 * S6-44), or drained, straight to their slabs (S6-61, S6-62).
 *
 * In the kernel an object of another node does not enter the CPU array. Here the push does not
 * look at nodes, so objects of other nodes are sorted out when they leave the array.
 *
 * @objects belongs to the caller's thread. Nothing is locked on entry.
 */
#include "engines/slab/slab.h"

/*
 * The home node of an object. Its slab is trusted only if the page map says it is the cache's;
 * other objects count as local, and are reported when their slab is looked at.
 */
static uint32_t home_node(const struct kmem_cache *cache, const void *object, uint32_t here)
{
        if (system_nodes() == 1 || !heap_contains(object) ||
            load_relaxed(&heap.map[address_page(object)]) != cache->pair_offset)
                return here;
        return load_relaxed(&slab_of(cache, object)->node);
}

/* Gives objects to the slabs of a node; returns how many objects were right. */
static unsigned int node_give(struct kmem_cache *cache, uint32_t node, void *const *objects,
                              unsigned int count)
{
        uint32_t doomed = 0;
        unsigned int right;

        lock_take(&cache->node[node].list_lock);
        right = node_push_locked(cache, node, objects, count, &doomed);
        slab_drop_node(cache, node);
        slab_end_all(cache, doomed);
        return right;
}

/*
 * Brings the objects of a node to the front, in their order; returns how many there are. The others
 * follow, in any order.
 */
static unsigned int sort_home(const struct kmem_cache *cache, uint32_t home, uint32_t here,
                              void **objects, unsigned int count)
{
        unsigned int front = 0;

        if (system_nodes() == 1)
                return count;
        for (unsigned int i = 0; i < count; i++) {
                void *object = objects[i];

                if (home_node(cache, object, here) != home)
                        continue;
                objects[i] = objects[front];
                objects[front++] = object;
        }
        return front;
}

unsigned int slab_give(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                       unsigned int count)
{
        uint32_t here = slab_local_node();
        unsigned int right = 0;

        for (uint32_t node = 0; count && node < system_nodes(); node++) {
                unsigned int its = sort_home(cache, node, here, objects, count);

                if (its)
                        right += node_give(cache, node, objects, its);
                objects += its;
                count -= its;
        }
        slot_count_given(slot, right);
        return 0;
}

/*
 * S6-41: a flush is of a batch, but not of more than the shared array has room for, unless it has
 * none. Its room is read without the lock: objects that do not fit after all go to the slabs.
 * Flushes in turn take the oldest objects in their order, so several flushes have the effect of a
 * single flush of their sum.
 */
unsigned int slab_flush_count(struct kmem_cache *cache, unsigned int size, unsigned int wanted)
{
        const struct object_array *shared =
                load_acquire(&slab_data(cache)->node[slab_local_node()].shared);
        uint32_t room =
                shared ? load_relaxed(&shared->limit) - load_relaxed(&shared->available) : 0;
        uint32_t batchcount = load_relaxed(&cache->batchcount);
        unsigned int count = 0;

        do {
                uint32_t next = room ? min_of(batchcount, room) : batchcount;

                count += next;
                room -= min_of(room, next);
        } while (count < wanted && count < size);
        return count;
}

/* Objects of other nodes go to alien arrays; a wrong object among the rest is found by its slab. */
static unsigned int flush_aliens(struct kmem_cache *cache, uint32_t here, void **objects,
                                 unsigned int count)
{
        unsigned int right = 0;

        for (unsigned int i = 0; i < count; i++) {
                uint32_t home = home_node(cache, objects[i], here);

                if (alien_put(cache, here, home, objects[i]))
                        right++;
                else
                        right += node_give(cache, home, &objects[i], 1);
        }
        return right;
}

void slab_flush(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                unsigned int count)
{
        uint32_t here = slab_local_node();
        struct slab_node *data = &slab_data(cache)->node[here];
        unsigned int its = sort_home(cache, here, here, objects, count);
        uint32_t doomed = 0;
        unsigned int right;

        lock_take(&cache->node[here].list_lock);
        right = shared_put_locked(data, objects, its);
        if (right < its)
                right += node_push_locked(cache, here, objects + right, its - right, &doomed);
        slab_drop_node(cache, here);
        slab_end_all(cache, doomed);
        if (its < count)
                right += flush_aliens(cache, here, objects + its, count - its);
        slot_count_given(slot, right);
}
