/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects come back to slabs: detached free lists (S5-20) and the slow path of free (S1-31).
 *
 * Nothing is locked on entry. A chain of a slab's objects is built privately in the slab's table
 * (SLUB-3) and pushed with a single transition. Against: other threads may free into the slab, and
 * its owner may take the whole list.
 */
#include "engines/slub/slab.h"

#include "page/deferred.h"

enum { LOOK_AHEAD = 3 }; /* foreign objects seen before a chain is closed (S5-21) */

/* Objects of a slab linked in its table: head .. tail, the tail's link not yet set. */
struct chain {
        struct page *slab;
        uint32_t objects; /* capacity of the slab */
        uint32_t head;
        uint32_t tail;
        uint32_t count;
        void *foreign; /* with count 0: the object at the end of the array is another cache's */
};

/*
 * The slab and index of an object that is given back. Checked: the address is ours, starts an
 * object, of the right cache, which is not free already. Else NULL: a wrong object is left alone,
 * and an object of another cache is put into @foreign.
 */
static struct page *checked_slab(struct kmem_cache *cache, void *object, uint32_t *index,
                                 void **foreign)
{
        uint16_t entry = heap_contains(object) ? load_relaxed(&heap.map[address_page(object)]) : 0;
        struct page *slab = NULL;
        const char *wrong = NULL;

        *index = INDEX_END;
        if (unlikely(entry != cache->pair_offset)) {
                if (entry) {
                        *foreign = object;
                        return NULL;
                }
                wrong = "is not an object of this cache";
        } else {
                slab = slub_slab_of(cache, object);
                *index = slub_index(cache, slab, slab_objects(slab), object);
                if (*index == INDEX_END)
                        wrong = "is inside an object (invalid object pointer)";
                else if (slab_next(slab, slab_objects(slab), *index) != INDEX_IN_USE)
                        wrong = "is free already (double free)";
        }
        if (likely(!wrong))
                return slab;
        engine_bad_free(cache, object, wrong);
        return NULL;
}

/*
 * The kernel's fast path of free (S1-30): objects of the slot's own CPU slab go to its CPU
 * freelist, without a swap. False if the slab is not, or no longer, the CPU slab.
 */
static bool push_to_own_slab(struct engine_slot *slot, const struct chain *chain)
{
        struct page *slab = chain->slab;
        bool own;

        /* The value may be stale: the lock decides, or the swap does. */
        if (load_relaxed(&slot->slab) != slab)
                return false;
        lock_take(&slot->lock);
        own = slot->slab == slab;
        if (own) {
                slab_set_next(slab, chain->objects, chain->tail, slot->freelist);
                slot->freelist = chain->head;
        }
        lock_drop(&slot->lock);
        if (own)
                count_events(slot, FREE_FASTPATH, chain->count);
        else
                count_event(slot, CMPXCHG_DOUBLE_CPU_FAIL);
        return own;
}

/* Moves the slab after a successful push under list_lock (S1-33); drops the lock. */
static void finish_free_locked(struct kmem_cache *cache, struct engine_slot *slot,
                               struct page *slab, struct slab_state before, bool now_empty,
                               bool node_partial, struct slab_cost *cost)
{
        struct engine_node *node = slab_node(cache, slab);
        bool was_full = before.head == INDEX_END;
        bool discard = false;

        if (!was_full && !node_partial) {
                /* On a CPU partial list or in transit: its owner deals with it. */
                debug_check(!cache->freeze_eagerly);
        } else if (now_empty && node->partial.length >= load_relaxed(&cache->min_partial)) {
                if (!was_full) {
                        slab_enter(cache, slab, STAGE_NODE_PARTIAL, STAGE_TRANSIT);
                        node_remove_partial_locked(node, slab);
                        count_event(slot, FREE_REMOVE_PARTIAL);
                }
                discard = true;
        } else if (was_full) {
                node_add_partial_locked(cache, node, slab,
                                        true); /* only without CPU partial lists */
                count_event(slot, FREE_ADD_PARTIAL);
        }
        node_unlock(node, cost);
        count_cost(slot, was_full ? FULL_TO_NODE : node_partial ? EMPTY_NODE : EMPTY_PARTIAL, cost);
        if (discard) {
                count_event(slot, FREE_SLAB);
                slab_discard(cache, slab);
        }
}

/*
 * The transition that a push without list_lock was. A frozen slab is the CPU slab of another slot;
 * with eager freezing it may be a CPU partial slab, and the push costs as much.
 */
static enum slub_transition push_transition(struct slab_state before, bool node_partial)
{
        if (before.frozen)
                return FREE_TO_CPU;
        if (before.head == INDEX_END)
                return FULL_TO_PARTIAL;
        return node_partial ? FREE_TO_NODE : FREE_TO_PARTIAL;
}

/* Slabs that are no longer full and on no list yet. */
struct joining {
        uint32_t first; /* made partial, to go to the slot's list in this order */
        uint32_t last;
        uint32_t emptied; /* to be discarded */
};

static void joining_add(struct joining *joining, struct page *slab)
{
        uint32_t number = page_number(slab);

        debug_check(slab->next == 0);
        if (joining->first)
                page_at(joining->last)->next = number;
        else
                joining->first = number;
        joining->last = number;
}

/*
 * Pushes a chain onto its slab's free list and moves the slab to its next place (S1-31). A slab for
 * the slot's CPU partial list goes to @joining: until it is on a list, frees leave it alone. A slab
 * to be discarded goes there too.
 */
static void slab_push_chain(struct kmem_cache *cache, struct engine_slot *slot,
                            const struct chain *chain, struct joining *joining)
{
        struct page *slab = chain->slab;
        struct engine_node *node = slab_node(cache, slab);
        uint64_t old = load_relaxed(&slab->state);
        struct slab_cost cost = {0};
        struct slab_state before;
        struct slab_state after;
        enum slab_stage stage;
        bool to_partial;
        bool emptied;
        bool locked;
        bool node_partial;

        if (push_to_own_slab(slot, chain))
                return;
        for (;;) {
                before = state_unpack(old);
                check_or_die(before.inuse >= chain->count);
                slab_set_next(slab, chain->objects, chain->tail, before.head);
                after = before;
                after.head = chain->head;
                after.inuse = before.inuse - chain->count;
                stage = !before.frozen && before.head == INDEX_END ? STAGE_FULL : STAGE_ANY;
                to_partial = stage == STAGE_FULL && cache->has_cpu_partial;
                if (to_partial)
                        after.frozen = cache->freeze_eagerly;
                /*
                 * A chain of all objects of a full slab: with the swap the slab is ours alone. It
                 * goes without being on a list, unless the node still keeps empty slabs (S1-35; the
                 * number that is read may be stale).
                 */
                emptied = cache->slab_pages && stage == STAGE_FULL && !to_partial &&
                          after.inuse == 0 &&
                          load_relaxed(&node->partial.length) >= load_relaxed(&cache->min_partial);
                /*
                 * The lock is needed if the slab may have to leave or join a node list. It is
                 * taken before the swap: afterwards the slab could be gone.
                 */
                locked = !before.frozen && !to_partial && !emptied &&
                         (stage == STAGE_FULL || after.inuse == 0);
                if (locked)
                        node_lock(node, &cost);
                /* Under the lock exact (S1-33), else only for the counters. */
                node_partial = load_relaxed(&slab->node_partial);
                if (slab_swap(cache, slab, &old, after, stage,
                              stage == STAGE_FULL ? STAGE_TRANSIT : STAGE_ANY, &cost))
                        break;
                if (locked)
                        node_unlock(node, &cost);
        }
        count_event(slot, FREE_SLOWPATH);
        if (locked) {
                finish_free_locked(cache, slot, slab, before, after.inuse == 0, node_partial,
                                   &cost);
                return;
        }
        count_cost(slot, emptied ? FULL_TO_NODE : push_transition(before, node_partial), &cost);
        if (before.frozen)
                count_event(slot, FREE_FROZEN);
        if (to_partial)
                joining_add(joining, slab);
        if (emptied) {
                count_event(slot, FREE_SLAB);
                slab->next = joining->emptied;
                joining->emptied = page_number(slab);
        }
}

/*
 * Adds the objects at the end of the array, as long as they are right and of the chain's slab;
 * returns how many are left. Sheaves are filled slab by slab, so most objects are added here.
 */
static KMEM_ALWAYS_INLINE unsigned int chain_run(const struct kmem_cache *cache,
                                                 void *const *objects, unsigned int count,
                                                 struct chain *chain, bool narrow)
{
        uintptr_t start = (uintptr_t)page_address(chain->slab);
        void *table = chain->slab->table;
        uint64_t reciprocal = cache->reciprocal;
        uint32_t size = cache->size;
        uint64_t bytes = (uint64_t)chain->objects * size;
        uint32_t head = chain->head;
        void *const *end = objects + count;

        while (end > objects) {
                uint64_t offset = (uintptr_t)end[-1] - start;
                uint32_t index = (uint32_t)((offset * reciprocal) >> RECIPROCAL_SHIFT);

                if (offset >= bytes || (uint64_t)index * size != offset ||
                    !table_in_use(table, narrow, index))
                        break;
                table_set_next(table, narrow, index, head);
                head = index;
                end--;
        }
        chain->head = head;
        chain->count += count - (uint32_t)(end - objects);
        return (unsigned int)(end - objects);
}

/*
 * Adds the objects before objects[@position] that are of the chain's slab, until LOOK_AHEAD others
 * have been seen. An entry that went into the chain is replaced by the last entry that is left;
 * returns how many are left. The rules are checked_slab's, which is called only for its report.
 */
static KMEM_ALWAYS_INLINE unsigned int chain_extend(struct kmem_cache *cache, void **objects,
                                                    unsigned int position, struct chain *chain,
                                                    bool narrow)
{
        uintptr_t start = (uintptr_t)page_address(chain->slab);
        void *table = chain->slab->table;
        uint64_t reciprocal = cache->reciprocal;
        uint32_t size = cache->size;
        uint64_t bytes = (uint64_t)chain->objects * size;
        unsigned int look_ahead = LOOK_AHEAD;
        unsigned int left = position;
        uint32_t head = chain->head;
        uint32_t count = chain->count;

        while (position-- > 0) {
                void *object = objects[position];
                uint64_t offset = (uintptr_t)object - start;
                uint32_t index = (uint32_t)((offset * reciprocal) >> RECIPROCAL_SHIFT);

                if (offset >= bytes) {
                        if (--look_ahead == 0)
                                break;
                        continue;
                }
                objects[position] = objects[--left];
                if (unlikely((uint64_t)index * size != offset ||
                             !table_in_use(table, narrow, index))) {
                        checked_slab(cache, object, &index, &chain->foreign);
                        continue;
                }
                table_set_next(table, narrow, index, head);
                head = index;
                count++;
        }
        chain->head = head;
        chain->count = count;
        return left;
}

/*
 * Builds a chain from the end of the array: the last object and the objects of its slab before it
 * (S5-21). The rest is objects[0 .. result).
 */
static unsigned int chain_build(struct kmem_cache *cache, void **objects, unsigned int count,
                                struct chain *chain)
{
        unsigned int last = count - 1;
        uint32_t index;

        chain->count = 0;
        chain->foreign = NULL;
        chain->slab = checked_slab(cache, objects[last], &index, &chain->foreign);
        if (!chain->slab)
                return last;
        chain->objects = slab_objects(chain->slab);
        chain->head = chain->tail = index;
        chain->count = 1;
        /*
         * The entry of an object in the chain is marked as listed at once, so that an object that
         * occurs twice in a batch is seen as a double free.
         */
        slab_set_next(chain->slab, chain->objects, index, INDEX_END);
        if (is_narrow(chain->objects))
                return chain_extend(cache, objects, chain_run(cache, objects, last, chain, true),
                                    chain, true);
        return chain_extend(cache, objects, chain_run(cache, objects, last, chain, false), chain,
                            false);
}

/* Only without CPU slabs, so nothing joins a CPU partial list. */
void slab_give_rest(struct kmem_cache *cache, struct engine_slot *slot, struct page *slab,
                    uint32_t head)
{
        struct joining joining = {0};
        struct chain chain = {
                .slab = slab, .objects = slab_objects(slab), .head = head, .tail = head};

        debug_check(head != INDEX_END && !cache->has_cpu_partial);
        for (uint32_t index = head; index != INDEX_END;
             index = slab_next(slab, chain.objects, index)) {
                chain.tail = index;
                chain.count++;
        }
        slab_push_chain(cache, slot, &chain, &joining);
        slabs_discard(cache, joining.emptied);
}

unsigned int slub_give(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                       unsigned int count)
{
        struct joining joining = {0};
        unsigned int end = count; /* objects of other caches lie from here on */
        unsigned int all = count;
        uint64_t given = 0;

        while (count) {
                struct chain chain;

                count = chain_build(cache, objects, count, &chain);
                given += chain.count;
                if (chain.count)
                        slab_push_chain(cache, slot, &chain, &joining);
                else if (chain.foreign)
                        objects[--end] = chain.foreign;
        }
        if (joining.first)
                slot_put_partial(cache, slot, joining.first);
        slabs_discard(cache, joining.emptied);
        slot_count_given(slot, given);
        pages_release_deferred();
        return all - end;
}
