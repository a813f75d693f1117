/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects come back to their slabs, each by itself under list_lock (S1-34). An object that cannot
 * be given back is left out. With flag F that is reported, and the program goes on (S10-21);
 * without it option bad_free decides, as for every cache.
 */
#include "engines/debug/object.h"

#include "page/deferred.h"

/*
 * Whether the slab of an address is still there. A slab without an object in use may have ended
 * since the address was looked up: then it is off the lists, though not full (DEBUG-2), or its
 * pages belong to another owner, of any node.
 */
static bool slab_is_there_locked(struct kmem_cache *cache, const struct engine_node *node,
                                 const struct page *slab, const void *object)
{
        return load_acquire(&slab->kind) == PAGE_SLAB && slab_node(cache, slab) == node &&
               load_relaxed(&heap.map[address_page(object)]) == cache->pair_offset &&
               (slab->node_partial || state_read(slab).head == INDEX_END);
}

/* The reason why an address in a slab cannot be given back, or NULL. */
static const char *wrong_address_locked(const struct kmem_cache *cache, const struct page *slab,
                                        const void *object, uint32_t *index)
{
        uint32_t objects = slab_objects(slab);

        *index = slub_index(cache, slab, objects, object);
        if (*index == INDEX_END)
                return "is inside an object (invalid object pointer)";
        return is_marked_free(slab, objects, *index) ? "is free already (double free)" : NULL;
}

/*
 * The checks of flag F. False if the object is not to be freed: then the error has been reported
 * (S10-21). @slab: NULL if the address is in no slab.
 */
static bool check_free(struct debug_report *report, struct page *slab, void *object, uint32_t index,
                       const char *wrong)
{
        if (slab && state_read(slab).frozen)
                return false; /* reported when the slab was DISABLED */
        if (slab) {
                slab_check(report, slab);
                slab_check_list(report, slab);
        }
        if (wrong && index != INDEX_END)
                report_error(report, slab, object, "Object already free");
        else if (wrong)
                report_error(report, slab, NULL, "Invalid object pointer 0x%016lx",
                             (unsigned long)(uintptr_t)object);
        if (!wrong && object_check(report, slab, object, true))
                return true;
        report_fix(report, "Object at 0x%016lx not freed", (unsigned long)(uintptr_t)object);
        return false;
}

/* Puts the object at the head of the free list; returns whether the slab, now empty, is to end. */
static bool free_locked(struct debug_report *report, struct engine_slot *slot, struct page *slab,
                        void *object, uint32_t index)
{
        struct kmem_cache *cache = report->cache;
        struct engine_node *node = slab_node(cache, slab);
        struct slab_state state = state_read(slab);
        bool was_full = state.head == INDEX_END;
        bool ends;

        report_trace(report, slab, object, false);
        track_set(report, object, TRACK_FREE);
        object_init(cache, object, false);
        *free_pointer_place(cache, object) = first_free(cache, slab);
        slab_set_next(slab, state.objects, index, INDEX_END);
        state.head = index;
        state.inuse--;
        ends = state.inuse == 0 && node->partial.length >= load_relaxed(&cache->min_partial);
        if (was_full || ends)
                slab_unlink_locked(cache, slab);
        if (ends && !was_full)
                count_event(slot, FREE_REMOVE_PARTIAL);
        state_write(slab, state);
        if (ends) {
                node_count_slab(cache, slab, false);
        } else if (was_full) {
                slab_link_locked(cache, slab, true);
                count_event(slot, FREE_ADD_PARTIAL);
        }
        return ends;
}

static bool give_one(struct kmem_cache *cache, struct engine_slot *slot, void *object,
                     struct debug_caller caller)
{
        bool checks = has_flag(cache, SLAB_CONSISTENCY_CHECKS);
        struct page *slab = heap_contains(object) ? slub_slab_of(cache, object) : NULL;
        const char *wrong = "is not an object of this cache";
        struct engine_node *node = &cache->node[slab ? slab->node % system_nodes() : 0];
        struct slab_cost cost = {0};
        struct debug_report report;
        uint32_t index = INDEX_END;
        bool freed = false;
        bool ends = false;

        report_begin(&report, cache);
        report.caller = caller;
        count_event(slot, FREE_SLOWPATH);
        node_lock(node, &cost);
        if (slab && !slab_is_there_locked(cache, node, slab, object))
                slab = NULL;
        if (slab)
                wrong = wrong_address_locked(cache, slab, object, &index);
        freed = checks ? check_free(&report, slab, object, index, wrong) : !wrong;
        if (freed)
                ends = free_locked(&report, slot, slab, object, index);
        node_unlock(node, &cost);
        count_cost(slot, DEBUG_CALL, &cost);
        if (ends) {
                count_event(slot, FREE_SLAB);
                slabs_check_and_end(cache, page_number(slab));
        }
        report_send(&report);
        if (!checks && wrong)
                engine_bad_free(cache, object, wrong);
        return freed;
}

unsigned int debug_give(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                        unsigned int count)
{
        struct debug_caller caller = report_caller(cache);
        uint64_t given = 0;

        for (unsigned int i = 0; i < count; i++)
                given += give_one(cache, slot, objects[i], caller);
        slot_count_given(slot, given);
        pages_release_deferred();
        return 0;
}
