/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects leave slabs without CPU slabs (option cpu_slabs=0, S13-04, S13-07): a refill takes whole
 * slabs off a node's partial list, and a request for a single object takes that object out of a slab
 * on the list. Frees are slub's own (give.c, S13-06): nothing ever is a CPU slab or frozen, so they
 * take list_lock only if the slab was full, or becomes empty.
 *
 * No lock of the slot is held. Invariants:
 *  REFILL-1  A slab that a refill has unlinked belongs to the refill until it has swapped out the
 *            whole list, which makes the slab FULL, or has put it back. Other threads may free into
 *            it meanwhile: they find it neither full nor marked node_partial, and leave its place
 *            alone, also if they empty it.
 *  REFILL-2  Free objects are counted under list_lock, before the swaps. Frees in between make the
 *            count too low, never too high, so a refill may get more than it counted.
 *  REFILL-3  A single object leaves a slab on the list by one swap under list_lock. Only pushes can
 *            come in between (SLUB-2), and each changes the head.
 */
#include "engines/slub/batch.h"

#include "page/deferred.h"

/* How many objects a refill wants. */
struct wanted {
        unsigned int min;
        unsigned int max;
};

/* Whether the slabs taken so far are enough, so that another with @more free objects stays (S13-07). */
static bool is_enough(const struct wanted *wanted, uint32_t free_objects, uint32_t more)
{
        return free_objects >= wanted->max ||
               (free_objects >= wanted->min && free_objects + more > wanted->max);
}

/*
 * Unlinks slabs from the head of the list until their free objects are enough; returns them, linked
 * through next, page number of the first.
 */
static uint32_t unlink_slabs_locked(struct kmem_cache *cache, struct engine_node *node,
                                    const struct wanted *wanted)
{
        uint32_t free_objects = 0;
        uint32_t first = 0;
        uint32_t last = 0;
        struct page *slab;

        while ((slab = page_list_first(&node->partial))) {
                struct slab_state state = state_unpack(load_relaxed(&slab->state));
                uint32_t more = state.objects - state.inuse;

                if (is_enough(wanted, free_objects, more))
                        break;
                slab_enter(cache, slab, STAGE_NODE_PARTIAL, STAGE_TRANSIT);
                node_remove_partial_locked(node, slab);
                slab->next = 0;
                if (first)
                        page_at(last)->next = page_number(slab);
                else
                        first = page_number(slab);
                last = page_number(slab);
                free_objects += more;
        }
        return first;
}

/*
 * Puts slabs that a refill did not need back at the head of the list, or ends those that frees have
 * emptied, if the node has enough slabs.
 */
static void put_back(struct kmem_cache *cache, struct engine_slot *slot, struct engine_node *node,
                     uint32_t chain)
{
        struct slab_cost cost = {0};
        uint64_t empties = 0;
        uint32_t empty = 0;

        if (!chain)
                return;
        node_lock(node, &cost);
        while (chain) {
                struct page *slab = page_at(chain);

                chain = slab->next;
                slab->next = 0;
                if (state_unpack(load_relaxed(&slab->state)).inuse == 0 &&
                    node->partial.length >= load_relaxed(&cache->min_partial)) {
                        slab->next = empty;
                        empty = page_number(slab);
                        empties++;
                } else {
                        node_add_partial_locked(cache, node, slab, slot->home, false);
                }
        }
        node_unlock(node, &cost);
        count_cost(slot, NODE_TO_SHEAF, &cost);
        count_events(slot, FREE_SLAB, empties);
        slabs_discard(cache, empty);
}

/*
 * False if the list seems empty, or with @try if another thread holds the lock. A stale length costs
 * a new slab or an idle lock hold, nothing else (S1-40).
 */
static bool lock_list(struct engine_node *node, bool try, struct slab_cost *cost)
{
        if (load_relaxed(&node->partial.length) == 0)
                return false;
        if (try)
                return node_try_lock(node, cost);
        node_lock(node, cost);
        return true;
}

/*
 * Takes objects from a node's partial slabs: a single hold of list_lock, then a swap a slab. With
 * @try the lock is only tried. Objects beyond the batch go back to the last slab.
 */
static void refill_from_node(struct kmem_cache *cache, struct engine_slot *slot,
                             struct engine_node *node, struct batch *batch, unsigned int min,
                             bool try)
{
        unsigned int taken = batch->count - batch->room;
        const struct wanted wanted = {.min = min - min_of(taken, min), .max = batch->room};
        struct slab_cost cost = {0};
        uint32_t chain;

        if (!lock_list(node, try, &cost))
                return;
        chain = unlink_slabs_locked(cache, node, &wanted);
        node_unlock(node, &cost);
        while (chain && batch->room) {
                struct page *slab = page_at(chain);
                bool narrow = is_narrow(slab_objects(slab));
                uint32_t rest;

                chain = slab->next;
                slab->next = 0;
                rest = slab_take_list(cache, slab, STAGE_TRANSIT, &cost);
                count_cost(slot, NODE_TO_SHEAF, &cost);
                rest = batch_take_list(batch, cache, slab, narrow, rest);
                if (rest != INDEX_END)
                        slab_give_rest(cache, slot, slab, rest);
        }
        put_back(cache, slot, node, chain);
}

/*
 * Other nodes' lists, the nearest first, while they have more slabs than they would keep. @anything:
 * also slabs that they would keep, because there is no memory for a slab here.
 */
static void refill_from_others(struct kmem_cache *cache, struct engine_slot *slot,
                               struct batch *batch, unsigned int min, bool anything)
{
        unsigned int here = system_current_node();

        for (unsigned int step = 1; step < system_nodes(); step++) {
                struct engine_node *node = &cache->node[system_near_node(here, step)];

                if (batch->count - batch->room >= min)
                        return;
                if (anything ||
                    load_relaxed(&node->partial.length) > load_relaxed(&cache->min_partial))
                        refill_from_node(cache, slot, node, batch, min, !anything);
        }
}

/* Links the objects of a new slab from @first on, which no other thread can see yet. */
static void link_rest(struct page *slab, uint32_t first, uint32_t objects)
{
        for (uint32_t index = first; index < objects; index++)
                slab_set_next(slab, objects, index, index + 1 < objects ? index + 1 : INDEX_END);
}

/*
 * Takes objects of a new slab. A slab that has objects left goes to the head of its node's list.
 * False without memory.
 */
static bool refill_from_new(struct kmem_cache *cache, struct engine_slot *slot, struct batch *batch,
                            int node)
{
        struct slab_cost cost = {0};
        struct slab_state state;
        struct page *slab;
        uint32_t count;

        pages_release_deferred();
        slab = slabs_new(cache, node, 1);
        if (!slab)
                return false;
        state = state_unpack(slab->state);
        count = min_of(state.objects, batch->room);
        batch_take_new(batch, cache, slab, 0, count);
        link_rest(slab, count, state.objects);
        state.inuse = count;
        state.head = count < state.objects ? count : INDEX_END;
        /* Relaxed: the list's lock publishes the slab, or the frees of its objects do. */
        store_relaxed(&slab->state, state_pack(state));
        count_event(slot, ALLOC_SLAB);
        if (slab->order != cache->order)
                count_event(slot, ORDER_FALLBACK);
        if (state.head == INDEX_END) {
                slab_enter(cache, slab, STAGE_NEW, STAGE_FULL);
        } else {
                struct engine_node *home = slab_node(cache, slab);

                slab_enter(cache, slab, STAGE_NEW, STAGE_TRANSIT);
                node_lock(home, &cost);
                node_add_partial_locked(cache, home, slab, slot->home, false);
                node_unlock(home, &cost);
        }
        count_cost(slot, NEW_TO_SHEAF, &cost);
        return true;
}

unsigned int slub_refill(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                         unsigned int min, unsigned int max)
{
        struct batch batch = {.objects = objects, .count = max, .room = max};
        unsigned int taken;

        refill_from_node(cache, slot, &cache->node[system_current_node()], &batch, min, false);
        if (max - batch.room < min && remote_search_is_due(cache))
                refill_from_others(cache, slot, &batch, min, false);
        while (max - batch.room < min && refill_from_new(cache, slot, &batch, NODE_ANY))
                ;
        if (batch.room == max)
                refill_from_others(cache, slot, &batch, min, true);
        taken = max - batch.room;
        if (batch.room)
                __builtin_memmove(objects, objects + batch.room, taken * sizeof(*objects));
        return taken;
}

/* Takes the first object of a slab on the list; false if another thread has freed into it. */
static bool pop_object_locked(struct kmem_cache *cache, struct engine_node *node, struct page *slab,
                              void **object, struct slab_cost *cost)
{
        uint64_t old = load_acquire(&slab->state);
        struct slab_state state = state_unpack(old);
        struct slab_state new = state;
        bool last = state.inuse + 1 == state.objects;
        uint32_t home = slab->node_partial;
        uint32_t index = state.head;

        new.head = slab_next(slab, state.objects, index);
        new.inuse++;
        /* A full slab is on no list, before others can see that it is full. */
        if (last) {
                slab_enter(cache, slab, STAGE_NODE_PARTIAL, STAGE_TRANSIT);
                node_remove_partial_locked(node, slab);
        }
        if (!slab_swap(cache, slab, &old, new, last ? STAGE_TRANSIT : STAGE_ANY,
                       last ? STAGE_FULL : STAGE_ANY, cost)) {
                if (last)
                        node_add_partial_locked(cache, node, slab, home, false);
                return false;
        }
        slab_set_next(slab, state.objects, index, INDEX_IN_USE);
        *object = slub_object(cache, slab, index);
        return true;
}

/* A single object from a node's partial slabs, or NULL (S13-04). */
static void *take_from_list(struct kmem_cache *cache, struct engine_slot *slot,
                            struct engine_node *node, bool try)
{
        struct slab_cost cost = {0};
        void *object = NULL;
        struct page *slab;

        if (!lock_list(node, try, &cost))
                return NULL;
        while ((slab = page_list_first(&node->partial)) &&
               !pop_object_locked(cache, node, slab, &object, &cost))
                ;
        node_unlock(node, &cost);
        count_cost(slot, NODE_TO_SHEAF, &cost);
        return object;
}

static void *take_from_other_lists(struct kmem_cache *cache, struct engine_slot *slot,
                                   bool anything)
{
        unsigned int here = system_current_node();
        void *object = NULL;

        for (unsigned int step = 1; step < system_nodes() && !object; step++) {
                struct engine_node *node = &cache->node[system_near_node(here, step)];

                if (anything ||
                    load_relaxed(&node->partial.length) > load_relaxed(&cache->min_partial))
                        object = take_from_list(cache, slot, node, !anything);
        }
        return object;
}

/* NODE_ANY: any node. */
static void *take_single(struct kmem_cache *cache, struct engine_slot *slot, int wish)
{
        unsigned int node = wish == NODE_ANY ? system_current_node() : (unsigned int)wish;
        void *object = take_from_list(cache, slot, &cache->node[node], false);
        struct batch batch = {.objects = &object, .count = 1, .room = 1};

        count_event(slot, ALLOC_SLOWPATH);
        if (!object && wish == NODE_ANY && remote_search_is_due(cache))
                object = take_from_other_lists(cache, slot, false);
        if (!object && !refill_from_new(cache, slot, &batch, wish) && wish == NODE_ANY)
                object = take_from_other_lists(cache, slot, true);
        return object;
}

unsigned int slub_node_take(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                            unsigned int count)
{
        unsigned int taken;

        if (count == 1) {
                objects[0] = take_single(cache, slot, NODE_ANY);
                taken = objects[0] != NULL;
        } else {
                taken = slub_refill(cache, slot, objects, count, count);
        }
        slot_count_taken_unlocked(slot, taken);
        return taken;
}

void *slub_node_take_on_node(struct kmem_cache *cache, struct engine_slot *slot, int node)
{
        void *object = take_single(cache, slot, node);

        slot_count_taken_unlocked(slot, object != NULL);
        return object;
}
