/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A slab of the SLUB back end: its free list, and which thread may touch which part. Its states and
 * the ways between them are in engines/slub/state.h.
 *
 * Invariants:
 *  SLUB-1  The state word is a 64-bit word: head, inuse, objects, frozen and tag always change
 *          together, by compare-and-swap once others can see the slab. objects equals inuse plus
 *          the length of the list at head (S1-70).
 *  SLUB-2  Any thread may push objects onto the list (release). Objects leave it only as the whole
 *          list (acquire), taken by the owner of a frozen or unlinked slab, or under list_lock. So
 *          between reading head and swapping it out no other thread can have popped: ABA is
 *          harmless.
 *  SLUB-3  table[i] belongs to the owner of object i. A free object's owner is the list: then
 *          table[i] is the index of the next free object or INDEX_END. Otherwise its owner is the
 *          thread that holds the object: then table[i] is in-use. It is written before the push
 *          (release) and read after the take (acquire).
 *  SLUB-4  Uncarved room (index >= carved) exists only in a CPU slab and counts as in use. Its
 *          table entries are undefined until it is carved or linked.
 *  SLUB-5  node_partial is written only under the node's list_lock (S1-12). It is not 0 while the
 *          slab is on the list.
 */
#ifndef KMEM_ENGINES_SLUB_SLAB_H
#define KMEM_ENGINES_SLUB_SLAB_H

#include "machine/message.h"
#include "base/metadata.h"
#include "engines/caches.h"
#include "kmem.h"
#include "engines/slub/counters.h"
#include "engines/slub/state.h"

static inline size_t slub_table_bytes(uint32_t objects)
{
        return objects <= NARROW_OBJECTS_MAX ? objects : (size_t)objects * 2;
}

/* Whether slabs are taken from and given to as in the kernel: without sheaves, or with them by its rule. */
static inline bool slub_works_as_kernel(const struct kmem_cache *cache)
{
        return !load_relaxed(&cache->sheaf_capacity) || cache->sheaves_as_7_0;
}

static inline bool is_narrow(uint32_t objects)
{
        return likely(objects <= NARROW_OBJECTS_MAX);
}

/*
 * Table accesses. Entries are relaxed atomics only because a double free may race; their
 * order comes from the state word (SLUB-3). Loops fetch the table once, because the compiler
 * cannot know that an entry's store leaves the slab as it is.
 */
static inline uint32_t table_next(const void *table, bool narrow, uint32_t index)
{
        if (narrow) {
                uint32_t entry = load_relaxed(&((const uint8_t *)table)[index]);

                return entry >= NARROW_IN_USE ? entry | 0xff00 : entry;
        }
        return load_relaxed(&((const uint16_t *)table)[index]);
}

static inline bool table_in_use(const void *table, bool narrow, uint32_t index)
{
        if (narrow)
                return load_relaxed(&((const uint8_t *)table)[index]) == NARROW_IN_USE;
        return load_relaxed(&((const uint16_t *)table)[index]) == INDEX_IN_USE;
}

static inline void table_set_next(void *table, bool narrow, uint32_t index, uint32_t next)
{
        if (narrow)
                store_relaxed(&((uint8_t *)table)[index], (uint8_t)next);
        else
                store_relaxed(&((uint16_t *)table)[index], (uint16_t)next);
}

static inline uint32_t slab_next(const struct page *slab, uint32_t objects, uint32_t index)
{
        return table_next(slab->table, is_narrow(objects), index);
}

static inline void slab_set_next(struct page *slab, uint32_t objects, uint32_t index, uint32_t next)
{
        table_set_next(slab->table, is_narrow(objects), index, next);
}

static inline void *slub_object(const struct kmem_cache *cache, const struct page *slab,
                                uint32_t index)
{
        return (char *)page_address(slab) + cache->red_left_pad + (size_t)index * cache->size;
}

/*
 * The alignment of slabs, in pages. Objects are aligned to the largest power of two that divides
 * their stride, in slabs of every order; those of classes of pages to a page.
 */
static inline size_t slab_align_pages(const struct kmem_cache *cache, unsigned int order)
{
        if (!cache->slab_pages)
                return order_pages(order);
        /* Classes of pages are asked for no alignment, and may begin where others began (RUN-4). */
        if (cache->size > CLASS_BYTES_MAX)
                return 1;
        return max_of((size_t)(cache->size & -cache->size) >> PAGE_SHIFT, (size_t)1);
}

/* The slab that a page belongs to, of a cache with slabs of slab_pages. */
static inline struct page *slab_of_page(const struct kmem_cache *cache, struct page *page)
{
        size_t distance;

        /* Acquire: pairs with slab_make, which wrote the other fields before the kind. */
        if (load_acquire(&page->kind) == PAGE_SLAB)
                return page;
        distance = load_relaxed(&page->state);
        /* If the pointer is bad, the page may belong to another owner by now. */
        return likely(distance < cache->slab_pages) ? page - distance : page;
}

/*
 * An order that no cache prefers: slabs of exact pages are shorter than the order that would have
 * them.
 */
enum { ORDER_EXACT = UINT8_MAX };

/*
 * The slab that holds an address of this cache's pages. Slabs are aligned to their size, and a
 * cache has slabs of at most two orders: a descriptor that says "slab of the preferred order" at
 * the aligned page covers the address, whichever cache has that slab; otherwise the slab has the
 * fallback order. A slab of another cache there that covers less must not say so (ORDER_EXACT).
 * Kind and order must be read at once: between two reads a slab there may end, and a shorter block
 * may begin that has, rounded up, the preferred order.
 */
static inline struct page *slub_slab_of(const struct kmem_cache *cache, const void *address)
{
        uint32_t number = address_page(address);
        struct page *slab;

        if (cache->slab_pages)
                return slab_of_page(cache, page_at(number));
        slab = page_at(number & ~(uint32_t)(order_pages(cache->order) - 1));
        /* Acquire: pairs with slab_make, which wrote the order before the kind. */
        if (likely(load_acquire(&slab->kind_and_order) ==
                   page_kind_and_order(PAGE_SLAB, cache->order)))
                return slab;
        return page_at(number & ~(uint32_t)(order_pages(cache->min_order) - 1));
}

/*
 * Index of the object at an address in the slab, or INDEX_END if no object starts there. The
 * product is exact for multiples of size: reciprocal exceeds 2^40 / size by less than 1, and
 * a slab is at most 4 MiB.
 */
static inline uint32_t slub_index(const struct kmem_cache *cache, const struct page *slab,
                                  uint32_t objects, const void *address)
{
        uint64_t offset = (uintptr_t)address - (uintptr_t)page_address(slab) - cache->red_left_pad;
        uint64_t index = (offset * cache->reciprocal) >> RECIPROCAL_SHIFT;

        if (unlikely(index * cache->size != offset || index >= objects))
                return INDEX_END;
        return (uint32_t)index;
}

static inline struct engine_node *slab_node(struct kmem_cache *cache, const struct page *slab)
{
        return &cache->node[slab->node];
}

/* Slabs of a node come, or with negative numbers go; of debug caches under list_lock. */
static inline void node_count_slabs(struct engine_node *node, int64_t slabs, int64_t objects)
{
        add_relaxed(&node->slabs, (uint64_t)slabs);
        add_relaxed(&node->objects, (uint64_t)objects);
        node_show_slabs(node);
}

/* Counts a slab that comes or goes. */
static inline void node_count_slab(struct kmem_cache *cache, const struct page *slab, bool there)
{
        int64_t objects = slab_objects(slab);

        node_count_slabs(slab_node(cache, slab), there ? 1 : -1, there ? objects : -objects);
}

/*
 * The costs of a transition, until count_cost adds them to the slot's counters. They live in
 * registers, so that they cost nothing in a cache without counters.
 */
struct slab_cost {
        uint32_t swaps;
        uint32_t swaps_locked;
        uint32_t failures;
        uint32_t list_locks;
        bool locked;
};

static inline void count_cost(struct engine_slot *slot, enum slub_transition transition,
                              struct slab_cost *cost)
{
        if (unlikely(slot->counters)) {
                uint64_t *costs = slot->counters->cost[transition];

                add_relaxed(&costs[COST_TIMES], 1);
                add_relaxed(&costs[COST_SWAPS], cost->swaps);
                add_relaxed(&costs[COST_SWAPS_LOCKED], cost->swaps_locked);
                add_relaxed(&costs[COST_LIST_LOCKS], cost->list_locks);
                count_events(slot, CMPXCHG_DOUBLE_FAIL, cost->failures);
        }
        *cost = (struct slab_cost){.locked = cost->locked};
}

static inline void node_lock(struct engine_node *node, struct slab_cost *cost)
{
        lock_take(&node->list_lock);
        cost->list_locks++;
        cost->locked = true;
}

static inline bool node_try_lock(struct engine_node *node, struct slab_cost *cost)
{
        if (!lock_try(&node->list_lock))
                return false;
        cost->list_locks++;
        cost->locked = true;
        return true;
}

static inline void node_unlock(struct engine_node *node, struct slab_cost *cost)
{
        cost->locked = false;
        lock_drop(&node->list_lock);
}

/* A counted slab_transition. */
static inline bool slab_swap(const struct kmem_cache *cache, struct page *slab, uint64_t *old,
                             struct slab_state new, enum slab_stage from, enum slab_stage to,
                             struct slab_cost *cost)
{
        bool swapped = slab_transition(cache, slab, old, new, from, to);

        cost->swaps++;
        cost->swaps_locked += cost->locked;
        cost->failures += !swapped;
        return swapped;
}

/* layout.c */
KMEM_HIDDEN int slub_setup(struct kmem_cache *cache);
/*
 * Sets up slabs and node lists of a cache with this stride; slabs may have exact pages where that
 * wastes less. 0 or an errno.
 */
KMEM_HIDDEN int slub_lay_out(struct kmem_cache *cache, uint32_t size, bool may_be_exact);

/* accounting.c: the two rules of how long a CPU partial list may be */
struct slub_partial_list {
        uint64_t slabs;
        uint64_t objects; /* free objects when their slabs joined; 0 where slabs are counted */
};

/* Sets defaults and limits of a cache; its layout is known. */
KMEM_HIDDEN void slub_setup_cpu_partial(struct kmem_cache *cache);
/*
 * Sets the limit in objects, also while the cache is in use; CPU partial lists that are longer now
 * stay until they are next put to or flushed (S2-33 flushes). Only for caches with CPU partial
 * lists.
 */
KMEM_HIDDEN void slub_set_cpu_partial(struct kmem_cache *cache, uint32_t objects);
KMEM_HIDDEN bool partial_list_is_full(const struct kmem_cache *cache,
                                      const struct engine_slot *slot);
KMEM_HIDDEN void partial_list_add(const struct kmem_cache *cache, struct engine_slot *slot,
                                  struct page *slab);
/* Whether a refill has taken enough slabs from a node (S2-20 to S2-22). */
KMEM_HIDDEN bool refill_is_enough(const struct kmem_cache *cache, uint32_t pushed,
                                  uint32_t free_objects);
/* The counts of a slot's CPU partial list; takes the slot cache lock. */
KMEM_HIDDEN struct slub_partial_list slub_slot_partial(struct engine_slot *slot);
/* Free objects in that many slabs, as attribute slabs_cpu_partial shows them (S2-31). */
KMEM_HIDDEN uint64_t slub_partial_objects(const struct kmem_cache *cache,
                                          const struct slub_partial_list *list);

/* take.c, give.c: operations of the engine */
KMEM_HIDDEN unsigned int slub_take(struct kmem_cache *cache, struct engine_slot *slot,
                                   void **objects, unsigned int count);
KMEM_HIDDEN bool slub_has_slabs(struct engine_slot *slot, unsigned int count);
KMEM_HIDDEN bool slub_would_grow(struct kmem_cache *cache, struct engine_slot *slot,
                                 unsigned int count);
KMEM_HIDDEN void *slub_take_on_node(struct kmem_cache *cache, struct engine_slot *slot, int node);
KMEM_HIDDEN unsigned int slub_give(struct kmem_cache *cache, struct engine_slot *slot,
                                   void **objects, unsigned int count);

/* take.c: makes a slab the CPU slab; the slot has its whole list already, from @freelist on */
KMEM_HIDDEN void slot_install(struct kmem_cache *cache, struct engine_slot *slot, struct page *slab,
                              uint32_t freelist);
/*
 * Takes the whole list of a slab that belongs to the slot or has no owner, and freezes it, but not
 * in T3 and not in a cache without CPU slabs.
 */
KMEM_HIDDEN uint32_t slab_take_list(const struct kmem_cache *cache, struct page *slab,
                                    enum slab_stage from, struct slab_cost *cost);

/*
 * give.c: gives back the list from @head on, the rest of a slab's list that was taken as a whole.
 */
KMEM_HIDDEN void slab_give_rest(struct kmem_cache *cache, struct engine_slot *slot,
                                struct page *slab, uint32_t head);

/* refill.c: operations of the engine without CPU slabs */
KMEM_HIDDEN unsigned int slub_node_take(struct kmem_cache *cache, struct engine_slot *slot,
                                        void **objects, unsigned int count);
KMEM_HIDDEN void *slub_node_take_on_node(struct kmem_cache *cache, struct engine_slot *slot,
                                         int node);
/*
 * Fills @objects with at least @min objects, unless memory ends, and at most @max; returns how many
 * (S13-07).
 */
KMEM_HIDDEN unsigned int slub_refill(struct kmem_cache *cache, struct engine_slot *slot,
                                     void **objects, unsigned int min, unsigned int max);

/* partial.c: CPU partial and node partial lists */
/*
 * Takes partial slabs from the list of node @wish, or with NODE_ANY from the list of the own node,
 * and then, as often as remote_node_defrag_ratio says, from other nodes' lists.
 */
KMEM_HIDDEN bool slot_take_from_nodes(struct kmem_cache *cache, struct engine_slot *slot, int wish);
/* Whether this request may search nodes other than its own (S12-07). */
KMEM_HIDDEN bool remote_search_is_due(struct kmem_cache *cache);
/* Takes from other nodes regardless of the ratio: there is no memory for a slab. */
KMEM_HIDDEN bool slot_take_last(struct kmem_cache *cache, struct engine_slot *slot);
/* Slabs of other nodes than @node, if that is not NODE_ANY, go to their node lists first (T5). */
KMEM_HIDDEN struct page *slot_take_partial(struct kmem_cache *cache, struct engine_slot *slot,
                                           int node);
/* Slabs in transit, linked through next, page number of the first. */
KMEM_HIDDEN void slot_put_partial(struct kmem_cache *cache, struct engine_slot *slot,
                                  uint32_t chain);
/* @why: MISMATCH_TO_NODE, OVERFLOW_TO_NODE or FLUSH_TO_NODE */
KMEM_HIDDEN void node_put_chain(struct kmem_cache *cache, struct engine_slot *slot, uint32_t chain,
                                enum slub_transition why);
/* @home: 1 to ENGINE_HOMES, of the slot that the slab comes from */
KMEM_HIDDEN void node_add_partial_locked(struct kmem_cache *cache, struct engine_node *node,
                                         struct page *slab, uint32_t home, bool tail);
KMEM_HIDDEN void node_remove_partial_locked(struct engine_node *node, struct page *slab);

/* life.c: slabs come and go */
enum { SLABS_AT_ONCE = 8 };
/* Makes the objects of a slab that no other thread knows fit to be handed out. */
typedef void slab_prepare(struct kmem_cache *cache, struct page *slab, uint32_t objects);
/*
 * Up to *count slabs, at most SLABS_AT_ONCE, of a single node, linked through next; *count becomes
 * their number, and the node does not count them yet. NULL without memory. @node: NODE_ANY for the
 * CPU's node. @prepare may be NULL; if it calls a constructor, a single slab is made and no lock is
 * held.
 */
KMEM_HIDDEN struct page *slabs_make(struct kmem_cache *cache, int node, unsigned int *count,
                                    slab_prepare *prepare);
/* As slabs_make, for slub itself: constructed, and counted. */
KMEM_HIDDEN struct page *slabs_new(struct kmem_cache *cache, int node, unsigned int count);
/* Ends slabs linked through next, page number of the first, which no count has any more. */
KMEM_HIDDEN void slabs_end(struct kmem_cache *cache, uint32_t chain);
/* As slabs_end, for slabs that are counted. */
KMEM_HIDDEN void slabs_discard(struct kmem_cache *cache, uint32_t chain);

static inline void slab_discard(struct kmem_cache *cache, struct page *slab)
{
        debug_check(slab->next == 0);
        slabs_discard(cache, page_number(slab));
}

KMEM_HIDDEN void slab_deactivate(struct kmem_cache *cache, struct engine_slot *slot);
KMEM_HIDDEN void slub_flush_slot(struct kmem_cache *cache, struct engine_slot *slot);
/*
 * Unlinks the empty slabs of a node, and puts slabs with few free objects first, the fullest at the
 * head (S1-57), in a single hold of list_lock (T20). Returns the empty slabs, linked through next.
 */
KMEM_HIDDEN uint32_t node_shrink_locked(struct kmem_cache *cache, struct engine_node *node);
KMEM_HIDDEN bool slub_shrink(struct kmem_cache *cache);
KMEM_HIDDEN bool slub_teardown(struct kmem_cache *cache);

/* purge.c */
KMEM_HIDDEN bool slub_purge(struct kmem_cache *cache, unsigned int number, unsigned int slabs,
                            size_t *bytes);
KMEM_HIDDEN size_t slub_free_parts(struct kmem_cache *cache, unsigned int number,
                                   const struct parts_wanted *wanted);
KMEM_HIDDEN size_t slub_free_parts_of_slot(struct kmem_cache *cache, struct engine_slot *slot,
                                           const struct parts_wanted *wanted);

/* report.c */
KMEM_HIDDEN void slub_report(struct kmem_cache *cache, struct engine_report *report);
KMEM_HIDDEN void slub_report_slot(struct kmem_cache *cache, struct engine_slot *slot,
                                  struct engine_report *report);
KMEM_HIDDEN bool slub_is_object(const struct kmem_cache *cache, const void *address);
KMEM_HIDDEN bool slub_is_free(const struct kmem_cache *cache, const void *object);
KMEM_HIDDEN int slub_node_of(const struct kmem_cache *cache, const void *object);

#endif
