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

#include <string.h>

enum {
        LOOK_AHEAD = 3,   /* foreign objects seen before a chain is closed (S5-21) */
        OPEN_CHAINS = 32, /* at once; they lie on the stack of the program's thread */
};

/* Objects of a slab linked in its table: head .. tail, the tail's link not yet set. */
struct chain {
        struct page *slab;
        uint32_t count;
        uint16_t head;
        uint16_t tail;
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
                if (unlikely(*index == INDEX_END))
                        wrong = "is inside an object (invalid object pointer)";
                else if (unlikely(slab_next(slab, slab_objects(slab), *index) != INDEX_IN_USE))
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
                slab_set_next(slab, slab_objects(slab), chain->tail, slot->freelist);
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
                node_add_partial_locked(cache, node, slab, slot->home,
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
                slab_set_next(slab, before.objects, chain->tail, before.head);
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
        uint64_t bytes = (uint64_t)slab_objects(chain->slab) * size;
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
        chain->head = (uint16_t)head;
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
                                                    void **foreign, bool narrow)
{
        uintptr_t start = (uintptr_t)page_address(chain->slab);
        void *table = chain->slab->table;
        uint64_t reciprocal = cache->reciprocal;
        uint32_t size = cache->size;
        uint64_t bytes = (uint64_t)slab_objects(chain->slab) * size;
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
                        checked_slab(cache, object, &index, foreign);
                        continue;
                }
                table_set_next(table, narrow, index, head);
                head = index;
                count++;
        }
        chain->head = (uint16_t)head;
        chain->count = count;
        return left;
}

/*
 * Builds a chain from the end of the array: the last object and the objects of its slab before it
 * (S5-21). The rest is objects[0 .. result). An empty chain if the last object is wrong or @foreign.
 */
static unsigned int chain_build(struct kmem_cache *cache, void **objects, unsigned int count,
                                struct chain *chain, void **foreign)
{
        unsigned int last = count - 1;
        struct page *slab;
        uint32_t index;

        chain->count = 0;
        slab = checked_slab(cache, objects[last], &index, foreign);
        if (!slab)
                return last;
        chain->slab = slab;
        chain->head = chain->tail = (uint16_t)index;
        chain->count = 1;
        /*
         * The entry of an object in the chain is marked as listed at once, so that an object that
         * occurs twice in a batch is seen as a double free.
         */
        slab_set_next(slab, slab_objects(slab), index, INDEX_END);
        if (is_narrow(slab_objects(slab)))
                return chain_extend(cache, objects, chain_run(cache, objects, last, chain, true),
                                    chain, foreign, true);
        return chain_extend(cache, objects, chain_run(cache, objects, last, chain, false), chain,
                            foreign, false);
}

/* Only without CPU slabs, so nothing joins a CPU partial list. */
void slab_give_rest(struct kmem_cache *cache, struct engine_slot *slot, struct page *slab,
                    uint32_t head)
{
        struct joining joining = {0};
        struct chain chain = {.slab = slab, .head = (uint16_t)head, .tail = (uint16_t)head};
        uint32_t objects = slab_objects(slab);

        debug_check(head != INDEX_END && !cache->has_cpu_partial);
        for (uint32_t index = head; index != INDEX_END; index = slab_next(slab, objects, index)) {
                chain.tail = (uint16_t)index;
                chain.count++;
        }
        slab_push_chain(cache, slot, &chain, &joining);
        slabs_discard(cache, joining.emptied);
}

/* What became of a batch: objects of other caches lie from @end on, @given went to their slabs. */
struct giving {
        struct joining joining;
        unsigned int end;
        uint64_t given;
};

/*
 * Pushes the chain onto a slab that has free objects, keeps others in use and is no CPU slab, which
 * most are: it stays where it is. All others, and caches that count events, take slab_push_chain.
 * Against: other threads that free into the slab or take its list, at any moment. Each changes the
 * state (SLUB-1), so the swap fails; the slab's list has no trace of the chain then, and
 * slab_push_chain sets its last link anew.
 */
static KMEM_ALWAYS_INLINE void push_chain(struct kmem_cache *cache, struct engine_slot *slot,
                                          const struct chain *chain, struct giving *giving)
{
        struct page *slab = chain->slab;
        uint64_t old = load_relaxed(&slab->state);
        struct slab_state state = state_unpack(old);

        giving->given += chain->count;
        if (likely(!state.frozen && state.head != INDEX_END && state.inuse > chain->count &&
                   !slot->counters)) {
                slab_set_next(slab, state.objects, chain->tail, state.head);
                state.head = chain->head;
                state.inuse -= chain->count;
                if (likely(slab_transition(cache, slab, &old, state, STAGE_ANY, STAGE_ANY)))
                        return;
        }
        slab_push_chain(cache, slot, chain, &giving->joining);
}

/* A chain, as the kernel does (S5-21), or a wrong object; returns how many objects are left. */
static unsigned int give_chain(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                               unsigned int count, struct giving *giving)
{
        void *foreign = NULL;
        struct chain chain;

        count = chain_build(cache, objects, count, &chain, &foreign);
        if (chain.count)
                push_chain(cache, slot, &chain, giving);
        else if (foreign)
                objects[--giving->end] = foreign;
        return count;
}

/*
 * Chains of many slabs, built at once. A chain has its place by the number of its slab, and is
 * pushed early if another slab needs the place. Nothing is in danger meanwhile: a slab whose chain is
 * not pushed counts these objects as in use, so it cannot go, and no other thread touches their
 * entries (SLUB-3).
 */
struct chains {
        uint32_t slab[OPEN_CHAINS]; /* page number; 0: no chain */
        uint16_t head[OPEN_CHAINS];
        uint16_t tail[OPEN_CHAINS];
        uint16_t count[OPEN_CHAINS];
        uint8_t taken[OPEN_CHAINS]; /* places that have a chain */
        unsigned int taken_count;
        unsigned int places; /* a power of two */
};

static void chains_init(struct chains *chains, unsigned int objects)
{
        chains->taken_count = 0;
        chains->places = min_of(2u << (fls(objects) - 1), (unsigned int)OPEN_CHAINS);
        memset(chains->slab, 0, chains->places * sizeof(*chains->slab));
}

static KMEM_ALWAYS_INLINE void chains_push(struct kmem_cache *cache, struct engine_slot *slot,
                                           const struct chains *chains, unsigned int place,
                                           struct giving *giving)
{
        const struct chain chain = {.slab = page_at(chains->slab[place]),
                                    .count = chains->count[place],
                                    .head = chains->head[place],
                                    .tail = chains->tail[place]};

        push_chain(cache, slot, &chain, giving);
}

/* Makes room for a chain of the slab, which ends with the object at @index. */
static KMEM_ALWAYS_INLINE void chains_begin(struct kmem_cache *cache, struct engine_slot *slot,
                                            struct chains *chains, unsigned int place,
                                            uint32_t slab, uint64_t index, struct giving *giving)
{
        if (chains->slab[place])
                chains_push(cache, slot, chains, place, giving);
        else
                chains->taken[chains->taken_count++] = (uint8_t)place;
        chains->slab[place] = slab;
        chains->head[place] = INDEX_END;
        chains->tail[place] = (uint16_t)index;
        chains->count[place] = 0;
}

/*
 * Adds the objects at the end of the array, up to the first that is wrong or in a slab of the fallback
 * order; returns how many are left. The rules are checked_slab's. What the slabs have in common is
 * read once, because the compiler cannot know that an entry's store leaves it as it is.
 */
static KMEM_ALWAYS_INLINE unsigned int chains_add(struct kmem_cache *cache,
                                                  struct engine_slot *slot, struct chains *chains,
                                                  void *const *objects, unsigned int count,
                                                  struct giving *giving, bool narrow)
{
        const uintptr_t base = heap.base;
        const size_t heap_bytes = load_relaxed(&heap.accessible_bytes);
        const uint16_t *map = heap.map;
        struct page *pages = heap.pages;
        const uint32_t order = cache->order;
        const uint16_t entry = (uint16_t)cache->pair_offset;
        const uint16_t kind_and_order = page_kind_and_order(PAGE_SLAB, order);
        const uint64_t reciprocal = cache->reciprocal;
        const uint64_t size = cache->size;
        const uint64_t bytes = cache->objects * size;

        while (count) {
                uintptr_t object = (uintptr_t)objects[count - 1];
                uint32_t number = (uint32_t)((object - base) >> PAGE_SHIFT);
                uint32_t first = number >> order << order;
                unsigned int place = number >> order & (chains->places - 1);
                struct page *slab = &pages[first];
                uintptr_t start = base + ((size_t)first << PAGE_SHIFT);
                uint64_t index = ((object - start) * reciprocal) >> RECIPROCAL_SHIFT;
                unsigned int before = count;
                uint32_t head;
                void *table;

                /* Acquire: as in slub_slab_of. */
                if (unlikely(object - base >= heap_bytes || load_relaxed(&map[number]) != entry ||
                             load_acquire(&slab->kind_and_order) != kind_and_order))
                        break;
                table = slab->table;
                if (unlikely(object - start >= bytes || index * size != object - start ||
                             !table_in_use(table, narrow, (uint32_t)index)))
                        break;
                if (chains->slab[place] != first)
                        chains_begin(cache, slot, chains, place, first, index, giving);
                head = chains->head[place];
                /* Sheaves are often filled slab by slab. */
                do {
                        table_set_next(table, narrow, (uint32_t)index, head);
                        head = (uint32_t)index;
                        if (--count == 0)
                                break;
                        object = (uintptr_t)objects[count - 1];
                        index = ((object - start) * reciprocal) >> RECIPROCAL_SHIFT;
                } while (object - start < bytes && index * size == object - start &&
                         table_in_use(table, narrow, (uint32_t)index));
                chains->head[place] = (uint16_t)head;
                chains->count[place] = (uint16_t)(chains->count[place] + before - count);
        }
        return count;
}

/*
 * Chains of all slabs at once, for what sheaves give back. Objects that were freed in random order are
 * seldom near another of their slab, so that by the kernel's rule nearly each takes a swap and the
 * instructions of a push (decisions/0041).
 */
static void give_sheaf(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                       unsigned int count, struct giving *giving)
{
        bool narrow = is_narrow(cache->objects);
        struct chains chains;

        chains_init(&chains, count);
        while (count) {
                if (narrow)
                        count = chains_add(cache, slot, &chains, objects, count, giving, true);
                else
                        count = chains_add(cache, slot, &chains, objects, count, giving, false);
                if (count)
                        count = give_chain(cache, slot, objects, count, giving);
        }
        for (unsigned int i = 0; i < chains.taken_count; i++)
                chains_push(cache, slot, &chains, chains.taken[i], giving);
}

unsigned int slub_give(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                       unsigned int count)
{
        struct giving giving = {.end = count};
        unsigned int left = count;

        /* A slab of exact pages has few objects and no place that its order tells. */
        if (count > 1 && !slub_works_as_kernel(cache) && !cache->slab_pages)
                give_sheaf(cache, slot, objects, count, &giving);
        else
                while (left)
                        left = give_chain(cache, slot, objects, left, &giving);
        if (giving.joining.first)
                slot_put_partial(cache, slot, giving.joining.first);
        slabs_discard(cache, giving.joining.emptied);
        slot_count_given(slot, giving.given);
        pages_release_deferred();
        return count - giving.end;
}
