/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects leave slabs: the slow path of allocation (S1-21), for a sheaf's worth at a time.
 *
 * Runs under the slot cache lock, which stands for the kernel's local lock. Other threads may free
 * into every slab touched here meanwhile; none of them takes from it (SLUB-2).
 */
#include "engines/slub/batch.h"

#include "engines/fresh.h"
#include "page/deferred.h"

/* Larger objects share lines with their neighbours only at their ends. */
enum { APART_BYTES_MAX = 256 };

/* From the CPU freelist, which belongs to the slot alone. */
static void take_from_freelist(struct kmem_cache *cache, struct engine_slot *slot,
                               struct batch *batch)
{
        struct page *slab = slot->slab;

        if (is_narrow(slab_objects(slab)))
                slot->freelist = batch_take_list(batch, cache, slab, true, slot->freelist);
        else
                slot->freelist = batch_take_list(batch, cache, slab, false, slot->freelist);
}

/*
 * Whether other threads may get objects that a thread takes in a row: in a program of several threads,
 * and for the first objects of malloc's sizes before that, as a program makes its threads' tables first.
 */
static bool may_be_handed_out(const struct kmem_cache *cache, bool is_first)
{
        enum threads threads = system_threads();

        return threads == THREADS_MANY ||
               (threads == THREADS_ONE && is_first && cache->flags & SLAB_KMALLOC);
}

/*
 * The distance, in objects, from an object to the next that goes out: 1, as in a kernel's new slab
 * (S4-30). Where other threads may get the two it is large enough that they share no cache line. Two
 * threads that write to a common line wait for each other, for as long as each goes on with the object
 * that it freed last, or with its table (decisions/0023).
 */
static uint32_t objects_apart(const struct kmem_cache *cache, bool is_first)
{
        uint32_t size = cache->size;
        uint32_t aligned = size & -size; /* every object of the slab is, at least */

        if (aligned >= CACHE_LINE || size > APART_BYTES_MAX || !may_be_handed_out(cache, is_first))
                return 1;
        return (size + CACHE_LINE - aligned + size - 1) / size;
}

/* Ascending: all, or page by page every nth object. FRESH-1. */
void batch_take_new(struct batch *batch, const struct kmem_cache *cache, struct page *slab,
                    uint32_t first, uint32_t count)
{
        void *table = slab->table;
        bool narrow = is_narrow(slab_objects(slab));
        uintptr_t fresh = slab->fresh && cache->marks_freed ? FRESH_BIT : 0;
        uintptr_t object = (uintptr_t)slub_object(cache, slab, first) | fresh;
        void **place = batch->objects + batch->room;
        uint32_t size = cache->size;
        uint32_t apart = objects_apart(cache, batch->is_first);
        uint32_t together = apart > 1 ? PAGE_SIZE / size : count;

        for (uint32_t index = first; index < first + count; index++)
                table_set_next(table, narrow, index, INDEX_IN_USE);
        for (uint32_t start = 0, end; start < count; start = end) {
                /* A rest of less than a page goes with the page before it. */
                end = count - start < 2 * together ? count : start + together;
                /*
                 * The first pass last: then no pass begins beside the last object of the pass
                 * before.
                 */
                for (uint32_t pass = min_of(start + apart, end); pass-- > start;)
                        for (uint32_t i = pass; i < end; i += apart)
                                *--place = (void *)(object + (size_t)i * size);
        }
        batch->room -= count;
}

/* From the uncarved room of the CPU slab. */
static void take_by_carving(struct kmem_cache *cache, struct engine_slot *slot, struct batch *batch)
{
        struct page *slab = slot->slab;
        uint32_t count = min_of(slab_objects(slab) - slot->carved, batch->room);

        batch_take_new(batch, cache, slab, slot->carved, count);
        slot->carved += count;
}

/*
 * S1-21 step 3 for the CPU slab, T4 for a slab of the CPU partial list, and the delayed freeze
 * (S1-42) for a slab that was just unlinked. If the list of a CPU slab turns out empty, the swap
 * also unfreezes the slab: it is FULL now and has no owner (T3), as every slab without CPU slabs
 * (S13-07).
 */
uint32_t slab_take_list(const struct kmem_cache *cache, struct page *slab, enum slab_stage from,
                        struct slab_cost *cost)
{
        uint64_t old = load_acquire(&slab->state);
        struct slab_state state;
        struct slab_state new;

        do {
                state = state_unpack(old);
                new = state;
                new.head = INDEX_END;
                new.inuse = state.objects;
                new.frozen = state.head != INDEX_END && !cache->no_cpu_slabs;
        } while (!slab_swap(cache, slab, &old, new, from, new.frozen ? STAGE_CPU : STAGE_FULL,
                            cost));
        return state.head;
}

void slot_install(struct kmem_cache *cache, struct engine_slot *slot, struct page *slab,
                  uint32_t freelist)
{
        (void)cache;
        debug_check(freelist != INDEX_END);
        store_relaxed(&slot->slab, slab);
        slot->carved = slab_objects(slab);
        slot->freelist = freelist;
}

/* Makes a fresh slab the CPU slab; no other thread can see it yet, so plain stores do (T8). */
static void slot_install_new(struct kmem_cache *cache, struct engine_slot *slot, struct page *slab)
{
        struct slab_state state = state_unpack(slab->state);
        struct slab_cost cost = {0};

        state.inuse = state.objects;
        state.frozen = true;
        store_relaxed(&slab->state, state_pack(state));
        slab_enter(cache, slab, STAGE_NEW, STAGE_CPU);
        store_relaxed(&slot->slab, slab);
        slot->carved = 0;
        slot->freelist = INDEX_END;
        count_event(slot, ALLOC_SLAB);
        if (slab->order != cache->order)
                count_event(slot, ORDER_FALLBACK);
        count_cost(slot, NEW_TO_CPU, &cost);
}

static struct page *next_fresh(struct batch *batch)
{
        struct page *slab = page_at(batch->fresh);

        batch->fresh = slab->next;
        slab->next = 0;
        return slab;
}

/*
 * A new slab of exact pages is FULL at once if the batch has room for all its objects, because a
 * slab with few objects would be CPU slab for a moment only. No other thread can see it yet.
 */
static void take_whole(struct kmem_cache *cache, struct engine_slot *slot, struct batch *batch)
{
        while (batch->fresh && cache->slab_pages && cache->objects <= batch->room) {
                struct page *slab = next_fresh(batch);
                struct slab_state state = state_unpack(slab->state);

                batch_take_new(batch, cache, slab, 0, state.objects);
                state.inuse = state.objects;
                store_relaxed(&slab->state, state_pack(state));
                slab_enter(cache, slab, STAGE_NEW, STAGE_FULL);
                count_event(slot, ALLOC_SLAB);
        }
}

/* The next of the batch's new slabs becomes the CPU slab. */
static void slot_install_fresh(struct kmem_cache *cache, struct engine_slot *slot,
                               struct batch *batch)
{
        slot_install_new(cache, slot, next_fresh(batch));
}

/* A batch that is half full is worth more than a new slab for the rest. */
static bool batch_is_enough(const struct batch *batch)
{
        return batch->room * 2 <= batch->count;
}

/*
 * How many new slabs the batch takes. It empties them all; only a single slab may keep some
 * objects.
 */
static unsigned int fresh_wanted(const struct kmem_cache *cache, const struct batch *batch)
{
        unsigned int twice = 2 * batch->room - batch->count;
        unsigned int slabs = (twice + 2 * cache->objects - 1) / (2 * cache->objects);

        return min_of(max_of(slabs, 1u), (unsigned int)SLABS_AT_ONCE);
}

/*
 * A new CPU slab. Further slabs that the rest of the batch will empty are made with it: no other
 * thread can see them, nor free into them, and the lock is held until they are used up. But if a
 * constructor may allocate, or pages wait for a grace period, a single slab is made without the
 * lock; if the slot got another CPU slab meanwhile, the other is deactivated (S1-21 step 7).
 */
static bool slot_new_slab_locked(struct kmem_cache *cache, struct engine_slot *slot,
                                 struct batch *batch, int node)
{
        bool drop = cache->ctor || load_relaxed(&deferred_pages);
        struct page *slab;

        if (drop) {
                lock_drop(&slot->lock);
                pages_release_deferred();
                slab = slabs_new(cache, node, 1);
                lock_take(&slot->lock);
        } else {
                slab = slabs_new(cache, node, fresh_wanted(cache, batch));
        }
        /* Without memory the slot may still have slabs that other threads brought meanwhile. */
        if (!slab)
                return slot->slab != NULL || slot->partial != 0;
        if (slot->slab) {
                count_event(slot, CPUSLAB_FLUSH);
                slab_deactivate(cache, slot);
        }
        batch->fresh = page_number(slab);
        take_whole(cache, slot, batch);
        if (batch->fresh)
                slot_install_fresh(cache, slot, batch);
        return true;
}

/*
 * Gives the slot a CPU slab with objects to hand out: its own list again, a CPU partial slab, a
 * node partial slab, a new slab, in this order (S1-21, S12-04). All but the first are of node
 * @node, unless @node is NODE_ANY (S12-05). False without memory, or when only a new slab would do
 * and @fresh is not wanted.
 */
static bool slot_reload_locked(struct kmem_cache *cache, struct engine_slot *slot,
                               struct batch *batch, int node, bool fresh)
{
        struct slab_cost cost = {0};
        struct page *slab;

        count_event(slot, ALLOC_SLOWPATH);
        if (slot->slab) {
                slot->freelist = slab_take_list(cache, slot->slab, STAGE_CPU, &cost);
                if (slot->freelist != INDEX_END) {
                        count_event(slot, ALLOC_REFILL);
                        count_cost(slot, REFILL_OWN, &cost);
                        return true;
                }
                store_relaxed(&slot->slab, NULL);
                count_event(slot, DEACTIVATE_BYPASS);
                count_cost(slot, EXHAUST, &cost);
        }
        if (batch->fresh) {
                slot_install_fresh(cache, slot, batch);
                return true;
        }
        slab = slot_take_partial(cache, slot, node);
        if (slab) {
                slot_install(cache, slot, slab,
                             slab_take_list(cache, slab, STAGE_CPU_PARTIAL, &cost));
                count_event(slot, CPU_PARTIAL_ALLOC);
                /* With eager freezing the kernel begins anew with a CPU slab then (S1-21). */
                if (cache->freeze_eagerly)
                        count_event(slot, ALLOC_REFILL);
                count_cost(slot, PARTIAL_TO_CPU, &cost);
                return true;
        }
        if (slot_take_from_nodes(cache, slot, node))
                return true;
        if (!fresh)
                return false;
        return slot_new_slab_locked(cache, slot, batch, node) ||
               (node == NODE_ANY && slot_take_last(cache, slot));
}

/* The slot needs no other slab if its list has slabs, or the CPU slab has enough objects. */
bool slub_has_slabs(struct engine_slot *slot, unsigned int count)
{
        struct page *slab;
        bool enough;

        lock_take(&slot->lock);
        slab = slot->slab;
        enough = slot->partial ||
                 (slab && (slot->freelist != INDEX_END ||
                           (slab_objects(slab) - slot->carved) * 2 >= count ||
                           state_unpack(load_relaxed(&slab->state)).head != INDEX_END));
        lock_drop(&slot->lock);
        return enough;
}

bool slub_would_grow(struct kmem_cache *cache, struct engine_slot *slot, unsigned int count)
{
        return !load_relaxed(&cache->node[system_current_node()].partial.length) &&
               !slub_has_slabs(slot, count);
}

unsigned int slub_take(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                       unsigned int count)
{
        struct batch batch = {.objects = objects, .count = count, .room = count};
        unsigned int slow = 0;
        unsigned int taken;

        lock_take(&slot->lock);
        batch.is_first = !slot->taken;
        while (batch.room) {
                if (slot->slab && slot->freelist != INDEX_END)
                        take_from_freelist(cache, slot, &batch);
                else if (slot->slab && slot->carved < slab_objects(slot->slab))
                        take_by_carving(cache, slot, &batch);
                else if (slot_reload_locked(cache, slot, &batch, NODE_ANY,
                                            !batch_is_enough(&batch)))
                        slow++;
                else
                        break;
        }
        debug_check(!batch.fresh);
        taken = count - batch.room;
        slot_count_taken(slot, taken);
        lock_drop(&slot->lock);
        /* The first object after each reload is the slow path's (S1-21 step 7). */
        if (taken > slow)
                count_events(slot, ALLOC_FASTPATH, taken - slow);

        if (batch.room)
                __builtin_memmove(objects, objects + batch.room, taken * sizeof(*objects));
        return taken;
}

/*
 * A CPU slab of another node goes, with all objects it still holds (S1-21 step 1). The node is
 * checked again after each reload, because other threads may have given the slot a CPU slab while
 * its lock was dropped.
 */
void *slub_take_on_node(struct kmem_cache *cache, struct engine_slot *slot, int node)
{
        void *object = NULL;
        struct batch batch = {.objects = &object, .count = 1, .room = 1};
        bool slow = false;

        lock_take(&slot->lock);
        while (batch.room) {
                if (slot->slab && slot->slab->node != node) {
                        count_event(slot, ALLOC_NODE_MISMATCH);
                        slab_deactivate(cache, slot);
                }
                if (slot->slab && slot->freelist != INDEX_END)
                        take_from_freelist(cache, slot, &batch);
                else if (slot->slab && slot->carved < slab_objects(slot->slab))
                        take_by_carving(cache, slot, &batch);
                else if (slot_reload_locked(cache, slot, &batch, node, true))
                        slow = true;
                else
                        break;
        }
        slot_count_taken(slot, 1 - batch.room);
        lock_drop(&slot->lock);
        if (object && !slow)
                count_event(slot, ALLOC_FASTPATH);
        return object;
}
