/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects in and out of slabs, and the lists of a node (S6-10, S6-31, S6-42).
 *
 * All of it runs under the node's list_lock, except slab_pop_objects on a slab that no other thread
 * can see yet.
 */
#include "engines/slab/slab.h"

static struct page_list *slab_list(struct kmem_cache *cache, const struct page *slab)
{
        struct slab_node *data = &slab_data(cache)->node[slab->node];

        if (slab->active == cache->objects)
                return &data->full;
        return slab->active ? &cache->node[slab->node].partial : &data->free;
}

/*
 * Writes the table of a slab anew from its in-use bits. The table may lie in a free object, which a
 * program may have written to after its free; the in-use bits lie outside.
 */
static KMEM_COLD void slab_mend(struct kmem_cache *cache, struct page *slab)
{
        slab_entry *table = slab->table;
        uint32_t holder = slab_data(cache)->placement == PLACE_OBJECT
                                  ? slab_index(cache, slab, table)
                                  : (uint32_t)NO_INDEX;
        uint32_t place = slab->active;

        message("cache \"%s\": the free list at %p of the slab at %p was overwritten%s; mended",
                cache->name, (void *)table, page_address(slab),
                holder == NO_INDEX ? "" : " (it lies in a free object: used after free?)");
        for (uint32_t index = 0; index < cache->objects; index++)
                if (index != holder && !slab_is_used(cache, slab, index))
                        table[place++] = (slab_entry)index;
        if (holder != NO_INDEX)
                table[place++] = (slab_entry)holder;
        check_or_die(place == cache->objects);
}

/* Hands out up to @count objects of a slab and returns how many; does not move the slab. */
unsigned int slab_pop_objects(struct kmem_cache *cache, struct page *slab, void **objects,
                              unsigned int count)
{
        uint64_t *bits = slab_bits(cache, slab);
        const slab_entry *table = slab->table;
        char *first = slab_object(cache, slab, 0);
        uint32_t all = cache->objects;
        uint32_t size = cache->size;
        uint32_t active = slab->active;
        unsigned int taken = 0;

        while (taken < count && active < all) {
                uint32_t index = table[active];
                char *object = first + (size_t)index * size;

                /*
                 * The object that holds the table is the last (SLAB-3), also if the table says
                 * otherwise.
                 */
                if (unlikely(index >= all || bit_get(bits, index) ||
                             (object == (const char *)table && active + 1 < all))) {
                        slab->active = (uint16_t)active;
                        slab_mend(cache, slab);
                        continue;
                }
                bit_set(bits, index);
                active++;
                objects[taken++] = object;
        }
        slab->active = (uint16_t)active;
        if (active == all && slab_data(cache)->placement == PLACE_OBJECT)
                slab->table = NULL;
        return taken;
}

/* Takes an object back into its slab; the slab is not moved. */
static void slab_push_object(struct kmem_cache *cache, struct page *slab, uint32_t index)
{
        bit_clear(slab_bits(cache, slab), index);
        slab->active--;
        if (!slab->table)
                slab->table = slab_object(cache, slab, index);
        ((slab_entry *)slab->table)[slab->active] = (slab_entry)index;
}

/* Also in place of a plain lock_drop where nothing has changed: it is a few stores. */
void slab_drop_node(struct kmem_cache *cache, uint32_t number)
{
        struct engine_node *node = &cache->node[number];
        const struct slab_node *data = &slab_data(cache)->node[number];
        struct registry_node *figures = load_acquire(&node->figures);

        if (figures) {
                store_relaxed(&figures->slabs, node->slabs);
                store_relaxed(&figures->objects, node->objects);
                store_relaxed(&figures->partial, node->partial.length);
                store_relaxed(&figures->free_slabs, data->free.length);
                store_relaxed(&figures->free_objects, data->free_objects);
                store_relaxed(&figures->refused, data->refused);
                store_relaxed(&figures->shared_objects, data->shared ? data->shared->available : 0);
        }
        lock_drop(&node->list_lock);
}

/* Adds a slab that its maker has finished with (S6-32): untouched slabs to the tail. */
void slab_list_new_locked(struct kmem_cache *cache, struct page *slab)
{
        struct engine_node *node = &cache->node[slab->node];
        struct slab_node *data = &slab_data(cache)->node[slab->node];

        debug_check(lock_is_held(&node->list_lock));
        if (slab->active)
                page_list_add_head(slab_list(cache, slab), slab);
        else
                page_list_add_tail(&data->free, slab);
        add_owned(&node->slabs, 1);
        add_owned(&node->objects, cache->objects);
        add_owned(&data->free_objects, cache->objects - slab->active);
}

/* Takes from partial slabs first, then from free slabs (S6-31, without the shared array). */
unsigned int node_pop_locked(struct kmem_cache *cache, uint32_t node, void **objects,
                             unsigned int count)
{
        struct page_list *partial = &cache->node[node].partial;
        struct slab_node *data = &slab_data(cache)->node[node];
        unsigned int taken = 0;

        debug_check(lock_is_held(&cache->node[node].list_lock));
        while (taken < count) {
                struct page *slab = page_list_first(partial);
                unsigned int popped;

                if (!slab) {
                        data->free_touched = true;
                        slab = page_list_first(&data->free);
                        if (!slab)
                                break;
                }
                page_list_remove(slab_list(cache, slab), slab);
                popped = slab_pop_objects(cache, slab, objects + taken, count - taken);
                check_or_die(popped);
                taken += popped;
                page_list_add_head(slab_list(cache, slab), slab);
        }
        add_owned(&data->free_objects, -(uint64_t)taken);
        return taken;
}

/*
 * Takes the free slab that has been idle longest off its list, to be ended; NULL if there is none.
 * From here on the page map does not lead to the slab, so that an object freed twice is not looked
 * up in a slab that is being ended.
 */
struct page *node_unlink_free_locked(struct kmem_cache *cache, uint32_t node)
{
        struct slab_node *data = &slab_data(cache)->node[node];
        struct page *slab;

        debug_check(lock_is_held(&cache->node[node].list_lock));
        if (!data->free.last)
                return NULL;
        slab = page_at(data->free.last);
        page_list_remove(&data->free, slab);
        page_map_set(slab, order_pages(cache->order), 0);
        add_owned(&data->free_objects, -(uint64_t)cache->objects);
        add_owned(&cache->node[node].slabs, (uint64_t)-1);
        add_owned(&cache->node[node].objects, -(uint64_t)cache->objects);
        return slab;
}

/* Moves a slab that has got an object back: empty to the head, others always to the tail. */
static void slab_relink_locked(struct kmem_cache *cache, struct page *slab, struct page_list *from)
{
        struct page_list *to = slab_list(cache, slab);

        if (to == from && to->last == page_number(slab))
                return;
        page_list_remove(from, slab);
        if (slab->active)
                page_list_add_tail(to, slab);
        else
                page_list_add_head(to, slab);
}

/*
 * The reason why an object cannot go into a slab of the node, or NULL; then *slab and *index are
 * the object's.
 */
static const char *find_object(struct kmem_cache *cache, const void *object, struct page **slab,
                               uint32_t *index)
{
        if (!heap_contains(object) ||
            load_relaxed(&heap.map[address_page(object)]) != cache->pair_offset)
                return "is not an object of this cache";
        *slab = slab_of(cache, object);
        *index = slab_index(cache, *slab, object);
        if (*index == NO_INDEX)
                return "is inside an object (invalid object pointer)";
        return slab_is_used(cache, *slab, *index) ? NULL : "is free already (double free)";
}

/*
 * Takes objects of this node back into their slabs (S6-42) and returns how many were right.
 * A wrong object is reported without the lock, because a program may catch the signal of an abort.
 * Slabs to be ended are chained to *doomed, for when the lock has been dropped.
 *
 * If an object is in the slab of the object before, its distance from the slab's first object tells
 * so; only others are looked up. The rules are find_object's, which also gives the reason for the
 * report. While the lock is dropped the slab may end.
 */
unsigned int node_push_locked(struct kmem_cache *cache, uint32_t node, void *const *objects,
                              unsigned int count, uint32_t *doomed)
{
        struct lock *lock = &cache->node[node].list_lock;
        struct slab_node *data = &slab_data(cache)->node[node];
        uint64_t reciprocal = cache->reciprocal;
        uint32_t size = cache->size;
        uint64_t all_bytes = (uint64_t)cache->objects * size;
        unsigned int right = 0;
        struct page *slab = NULL;
        uintptr_t first = 0;
        uint64_t bytes = 0; /* of the slab's objects; 0: no slab is known */

        debug_check(lock_is_held(lock));
        for (unsigned int i = 0; i < count; i++) {
                uint64_t offset = (uintptr_t)objects[i] - first;
                uint32_t index = (uint32_t)((offset * reciprocal) >> RECIPROCAL_SHIFT);
                struct page_list *from;

                if (offset >= bytes || (uint64_t)index * size != offset ||
                    !slab_is_used(cache, slab, index)) {
                        const char *wrong = find_object(cache, objects[i], &slab, &index);

                        if (unlikely(wrong)) {
                                lock_drop(lock);
                                engine_bad_free(cache, objects[i], wrong);
                                lock_take(lock);
                                bytes = 0;
                                continue;
                        }
                        first = (uintptr_t)slab_object(cache, slab, 0);
                        bytes = all_bytes;
                }
                from = slab_list(cache, slab);
                slab_push_object(cache, slab, index);
                slab_relink_locked(cache, slab, from);
                add_owned(&data->free_objects, 1);
                right++;
        }
        while (data->free_objects > data->free_limit) {
                slab = node_unlink_free_locked(cache, node);
                if (!slab)
                        break;
                slab->next = *doomed;
                *doomed = page_number(slab);
        }
        return right;
}
