/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects leave a slab of the node's partial list, or a new slab, each by itself under list_lock
 * (S1-22). Against: the lock keeps other threads away that take from and give to slabs of the node.
 */
#include "engines/debug/object.h"

#include "page/deferred.h"

/* Flag F: whether the slab's first free object may be handed out. */
static bool may_take(struct debug_report *report, struct page *slab, void *object)
{
        return slab_check(report, slab) && object_check(report, slab, object, false);
}

/*
 * The next free object behind an object that leaves. Without flag F nothing has checked its free
 * pointer yet: a corrupt pointer loses the objects behind it, and all of them count as in use from
 * now on.
 */
static uint32_t next_free(struct debug_report *report, struct page *slab, void *object)
{
        void **place = free_pointer_place(report->cache, object);
        uint32_t next;

        if (free_index(report->cache, slab, *place, &next) &&
            (next == INDEX_END ||
             next != slub_index(report->cache, slab, slab_objects(slab), object)))
                return next;
        report_error(report, slab, object, "Freechain corrupt");
        report_fix(report, "Isolate corrupted freechain");
        *place = NULL;
        return INDEX_END;
}

/*
 * Takes the first free object of a slab that is on the partial list (@linked), or new and on no
 * list. NULL if a check of the slab fails: then it is DISABLED (S10-21).
 */
static void *take_from_slab_locked(struct debug_report *report, struct page *slab, bool linked)
{
        struct kmem_cache *cache = report->cache;
        struct slab_state state = state_read(slab);
        void *object = slub_object(cache, slab, state.head);
        bool right = !has_flag(cache, SLAB_CONSISTENCY_CHECKS) || may_take(report, slab, object);

        if (right) {
                uint32_t index = state.head;

                state.head = next_free(report, slab, object);
                state.inuse = state.head == INDEX_END ? state.objects : state.inuse + 1;
                slab_set_next(slab, state.objects, index, INDEX_IN_USE);
                object_init(cache, object, true);
                if (debug_has_request(cache))
                        *request_place(cache, object) = cache->object_size;
                track_set(report, object, TRACK_ALLOC);
        } else {
                report_fix(report, "Marking all objects used");
                state.head = INDEX_END;
                state.inuse = state.objects;
                state.frozen = true;
        }
        if (linked && state.head == INDEX_END)
                slab_unlink_locked(cache, slab);
        state_write(slab, state);
        if (!linked || state.head == INDEX_END)
                slab_link_locked(cache, slab, false);
        if (right)
                report_trace(report, slab, object, true);
        return right ? object : NULL;
}

static void *take_from_node(struct debug_report *report, struct engine_node *node,
                            struct slab_cost *cost)
{
        void *object = NULL;
        struct page *slab;

        /* A stale length costs a new slab or an idle lock hold, nothing else (S1-40). */
        if (load_relaxed(&node->partial.length) == 0)
                return NULL;
        node_lock(node, cost);
        while (!object && (slab = page_list_first(&node->partial)))
                object = take_from_slab_locked(report, slab, true);
        node_unlock(node, cost);
        return object;
}

/* As partial.c's take_from_others. */
static void *take_from_others(struct debug_report *report, unsigned int here, bool anything,
                              struct slab_cost *cost)
{
        struct kmem_cache *cache = report->cache;
        void *object = NULL;

        for (unsigned int step = 1; !object && step < system_nodes(); step++) {
                struct engine_node *node = &cache->node[(here + step) % system_nodes()];

                if (anything ||
                    load_relaxed(&node->partial.length) > load_relaxed(&cache->min_partial))
                        object = take_from_node(report, node, cost);
        }
        return object;
}

/* The slab is made without list_lock, because constructors may allocate, and is linked with it. */
static void *take_from_new(struct debug_report *report, struct engine_slot *slot, int node,
                           struct slab_cost *cost)
{
        struct kmem_cache *cache = report->cache;
        struct page *slab;
        void *object;

        pages_release_deferred();
        slab = slab_make_new(cache, node);
        if (!slab)
                return NULL;
        count_event(slot, ALLOC_SLAB);
        if (slab->order != cache->order)
                count_event(slot, ORDER_FALLBACK);
        node_lock(slab_node(cache, slab), cost);
        slab_enter(cache, slab, STAGE_NEW, STAGE_TRANSIT);
        node_count_slab(cache, slab, true);
        object = take_from_slab_locked(report, slab, false);
        node_unlock(slab_node(cache, slab), cost);
        return object;
}

static void *take_one(struct kmem_cache *cache, struct engine_slot *slot, int wish,
                      struct debug_caller caller)
{
        unsigned int here = wish == NODE_ANY ? system_current_node() : (unsigned int)wish;
        struct slab_cost cost = {0};
        struct debug_report report;
        void *object;

        report_begin(&report, cache);
        report.caller = caller;
        count_event(slot, ALLOC_SLOWPATH);
        object = take_from_node(&report, &cache->node[here], &cost);
        if (!object && wish == NODE_ANY && remote_search_is_due(cache))
                object = take_from_others(&report, here, false, &cost);
        if (!object)
                object = take_from_new(&report, slot, wish, &cost);
        if (!object && wish == NODE_ANY)
                object = take_from_others(&report, here, true, &cost);
        count_cost(slot, DEBUG_CALL, &cost);
        report_send(&report);
        return object;
}

static unsigned int take_many(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                              unsigned int count, int node)
{
        struct debug_caller caller = report_caller(cache);
        unsigned int room = count;
        unsigned int taken;

        while (room) {
                void *object = take_one(cache, slot, node, caller);

                if (!object)
                        break;
                objects[--room] = object;
        }
        taken = count - room;
        /* No lock of the slot is held. */
        slot_count_taken_unlocked(slot, taken);
        if (room)
                __builtin_memmove(objects, objects + room, taken * sizeof(*objects));
        return taken;
}

unsigned int debug_take(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                        unsigned int count)
{
        return take_many(cache, slot, objects, count, NODE_ANY);
}

void *debug_take_on_node(struct kmem_cache *cache, struct engine_slot *slot, int node)
{
        void *object;

        return take_many(cache, slot, &object, 1, node) ? object : NULL;
}
