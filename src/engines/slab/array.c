/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The arrays of a node: the shared array, between the CPUs of the node, and an alien array for each
 * other node, for that node's objects that are freed here (S6-41, S6-44). The lock of an alien
 * array protects only the array: objects that leave it belong to the thread that took them out,
 * before it takes list_lock.
 */
#include "engines/slab/slab.h"

#include <string.h>

enum { ON_STACK = 64 }; /* objects that are drained at a time */

struct object_array *object_array_new(uint32_t limit)
{
        struct object_array *array = metadata_alloc(sizeof(*array) + limit * sizeof(void *));

        if (array)
                store_relaxed(&array->limit, limit); /* relaxed: as `available` */
        return array;
}

void object_array_free(struct object_array *array)
{
        if (array)
                metadata_free(array, sizeof(*array) + array->limit * sizeof(void *));
}

/* As many of the first objects as the node's shared array has room for. */
unsigned int shared_put_locked(struct slab_node *data, void *const *objects, unsigned int count)
{
        struct object_array *shared = data->shared;
        unsigned int moved;

        if (!shared)
                return 0;
        moved = min_of(count, shared->limit - shared->available);
        memcpy(shared->object + shared->available, objects, moved * sizeof(*objects));
        store_relaxed(&shared->available, shared->available + moved);
        return moved;
}

/* Up to @count of the newest objects of the node's shared array (S6-31). */
unsigned int shared_take_locked(struct slab_node *data, void **objects, unsigned int count)
{
        struct object_array *shared = data->shared;
        unsigned int moved;

        if (!shared || !shared->available)
                return 0;
        moved = min_of(count, shared->available);
        store_relaxed(&shared->available, shared->available - moved);
        memcpy(objects, shared->object + shared->available, moved * sizeof(*objects));
        shared->touched = true;
        return moved;
}

/*
 * Returns the oldest objects of the node's shared array, if there is an array, to their slabs. They
 * leave the array first: a wrong object is reported without the lock, and meanwhile other threads
 * may use the array or replace it.
 */
void shared_drain_locked(struct kmem_cache *cache, uint32_t node, unsigned int count,
                         uint32_t *doomed)
{
        struct slab_node *data = &slab_data(cache)->node[node];
        struct object_array *shared;
        void *objects[ON_STACK];

        while (count && (shared = data->shared) && shared->available) {
                unsigned int moved = min_of(count, shared->available);

                moved = min_of(moved, (unsigned int)ON_STACK);
                memcpy(objects, shared->object, moved * sizeof(*objects));
                store_relaxed(&shared->available, shared->available - moved);
                memmove(shared->object, shared->object + moved,
                        shared->available * sizeof(*objects));
                data->refused += moved - node_push_locked(cache, node, objects, moved, doomed);
                count -= moved;
        }
}

/* Takes all objects out of an alien array, at most ALIEN_LIMIT; returns how many. */
static unsigned int alien_take_locked(struct object_array *alien, void **objects)
{
        unsigned int taken = alien->available;

        debug_check(lock_is_held(&alien->lock));
        memcpy(objects, alien->object, taken * sizeof(*objects));
        store_relaxed(&alien->available, 0u);
        return taken;
}

/*
 * Gives the objects of an alien array to their home node: to its shared array first, the rest to
 * slabs. The array's lock is not held, because a wrong object is reported (node_push_locked).
 */
static void home_give(struct kmem_cache *cache, uint32_t home, void *const *objects,
                      unsigned int count)
{
        struct slab_node *data = &slab_data(cache)->node[home];
        uint32_t doomed = 0;
        unsigned int moved;
        unsigned int rest;

        lock_take(&cache->node[home].list_lock);
        /* The newest objects go into the shared array, as in every transfer between arrays. */
        moved = data->shared ? min_of(count, data->shared->limit - data->shared->available) : 0;
        rest = count - moved;
        shared_put_locked(data, objects + rest, moved);
        data->refused += rest - node_push_locked(cache, home, objects, rest, &doomed);
        slab_drop_node(cache, home);
        slab_end_all(cache, doomed);
}

void alien_drain(struct kmem_cache *cache, uint32_t here, uint32_t home)
{
        struct object_array *alien = slab_data(cache)->node[here].alien[home];
        void *objects[ALIEN_LIMIT];
        unsigned int count;

        if (!alien)
                return;
        lock_take(&alien->lock);
        count = alien_take_locked(alien, objects);
        lock_drop(&alien->lock);
        if (count)
                home_give(cache, home, objects, count);
}

/* Keeps an object of another node; false if there is no array for it. */
bool alien_put(struct kmem_cache *cache, uint32_t here, uint32_t home, void *object)
{
        struct object_array *alien = slab_data(cache)->node[here].alien[home];
        void *objects[ALIEN_LIMIT];
        unsigned int count = 0;

        if (!alien)
                return false;
        lock_take(&alien->lock);
        if (alien->available == alien->limit)
                count = alien_take_locked(alien, objects);
        alien->object[alien->available] = object;
        store_relaxed(&alien->available, alien->available + 1);
        lock_drop(&alien->lock);
        if (count)
                home_give(cache, home, objects, count);
        return true;
}
