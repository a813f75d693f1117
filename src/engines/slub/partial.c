/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * CPU partial lists and node partial lists (S2, S1-40 to S1-55).
 *
 * A CPU partial list is a chain through page->next under the slot cache lock. Frees into its slabs
 * leave them alone wherever they come from: with delayed freezing because they are not marked
 * node_partial (S1-33), with eager freezing because they are frozen.
 *
 * The two schemes differ by a branch each in slab_leave_node and slab_return, and elsewhere only in
 * slab_push_chain (whether a first free freezes) and slab_deactivate (when list_lock is taken).
 */
#include "engines/slub/slab.h"

#include "machine/random.h"

/* Slabs of a node's list that a refill looks at for one of its own; each look is a line of the cache. */
enum { OWN_LOOKED_AT = 32 };

void node_add_partial_locked(struct kmem_cache *cache, struct engine_node *node, struct page *slab,
                             uint32_t home, bool tail)
{
        debug_check(lock_is_held(&node->list_lock) && !slab->node_partial);
        if (tail)
                page_list_add_tail(&node->partial, slab);
        else
                page_list_add_head(&node->partial, slab);
        node_show_partial_locked(node);
        store_relaxed(&slab->node_partial, (uint8_t)home);
        slab->list_objects = 0;
        slab_enter(cache, slab, STAGE_TRANSIT, STAGE_NODE_PARTIAL);
}

void node_remove_partial_locked(struct engine_node *node, struct page *slab)
{
        debug_check(lock_is_held(&node->list_lock) && slab->node_partial);
        if (node->purge_next == page_number(slab))
                node->purge_next = slab->next;
        page_list_remove(&node->partial, slab);
        node_show_partial_locked(node);
        store_relaxed(&slab->node_partial, (uint8_t)0);
        slab->list_objects = 0;
}

/* Pops the newest CPU partial slab of the node; the slot cache lock is held. */
struct page *slot_take_partial(struct kmem_cache *cache, struct engine_slot *slot, int node)
{
        debug_check(lock_is_held(&slot->lock));
        while (slot->partial) {
                struct page *slab = page_at(slot->partial);

                store_relaxed(&slot->partial, slab->next);
                slab->next = 0;
                if (node == NODE_ANY || slab->node == node) {
                        slab->prev = 0;
                        return slab;
                }
                node_put_chain(cache, slot, page_number(slab), MISMATCH_TO_NODE);
        }
        return NULL;
}

/*
 * Puts slabs that frees have made partial on the slot's CPU partial list (T14). A list that has
 * reached its limit goes to the node lists first, outside the slot cache lock, and the next slab
 * starts a new list (S2-03, S2-12).
 */
void slot_put_partial(struct kmem_cache *cache, struct engine_slot *slot, uint32_t chain)
{
        while (chain) {
                uint32_t drained = 0;
                uint64_t joined = 0;

                lock_take(&slot->lock);
                while (chain) {
                        struct page *slab = page_at(chain);

                        if (partial_list_is_full(cache, slot)) {
                                if (drained)
                                        break;
                                drained = slot->partial;
                                store_relaxed(&slot->partial, 0);
                        }
                        chain = slab->next;
                        partial_list_add(cache, slot, slab);
                        joined++;
                }
                lock_drop(&slot->lock);
                count_events(slot, CPU_PARTIAL_FREE, joined);
                if (drained) {
                        count_event(slot, CPU_PARTIAL_DRAIN);
                        node_put_chain(cache, slot, drained, OVERFLOW_TO_NODE);
                }
        }
}

/*
 * Readies a slab that left a CPU partial list for its node's list; list_lock is held. Eager: it is
 * unfrozen, against frees into it (S1-55). Delayed: it never was frozen.
 */
static void slab_return(struct kmem_cache *cache, struct page *slab, struct slab_cost *cost)
{
        uint64_t old = load_relaxed(&slab->state);
        struct slab_state after;

        if (!cache->freeze_eagerly) {
                slab_enter(cache, slab, STAGE_CPU_PARTIAL, STAGE_TRANSIT);
                return;
        }
        do {
                after = state_unpack(old);
                after.frozen = false;
        } while (!slab_swap(cache, slab, &old, after, STAGE_CPU_PARTIAL, STAGE_TRANSIT, cost));
}

/*
 * Returns a chain to the node lists, a hold of list_lock per run of equal nodes (S1-55): empty
 * slabs beyond min_partial are set aside and discarded, the others go to the tail.
 */
void node_put_chain(struct kmem_cache *cache, struct engine_slot *slot, uint32_t chain,
                    enum slub_transition why)
{
        struct engine_node *node = NULL;
        struct slab_cost cost = {0};
        uint64_t empties = 0;
        uint32_t empty = 0;

        while (chain) {
                struct page *slab = page_at(chain);
                struct engine_node *home = slab_node(cache, slab);

                chain = slab->next;
                if (home != node) {
                        if (node)
                                node_unlock(node, &cost);
                        node = home;
                        node_lock(node, &cost);
                }
                slab->prev = 0;
                slab_return(cache, slab, &cost);
                count_cost(slot, why, &cost);
                /*
                 * An empty slab off the lists stays empty: no thread holds an object to free, and
                 * no other thread can take from it.
                 */
                if (state_unpack(load_relaxed(&slab->state)).inuse == 0 &&
                    node->partial.length >= load_relaxed(&cache->min_partial)) {
                        slab->next = empty;
                        empty = page_number(slab);
                        empties++;
                } else {
                        slab->next = 0;
                        node_add_partial_locked(cache, node, slab, slot->home, true);
                        count_event(slot, FREE_ADD_PARTIAL);
                }
        }
        if (node)
                node_unlock(node, &cost);
        count_events(slot, DEACTIVATE_EMPTY, empties);
        count_events(slot, FREE_SLAB, empties);
        slabs_discard(cache, empty);
}

/*
 * Takes a slab off its node's list; list_lock is held. *before is its state then.
 *
 * Delayed: it is unlinked, which cannot fail, and the thread that makes it the CPU slab freezes it
 * outside the lock (S1-42). Eager: it is frozen first, and with @first the swap also takes its
 * whole list (S1-41). The swap is tried once, because retries would hold list_lock for as long as
 * others free into the slab; false if it failed, and then the slab stays on the list.
 */
static bool slab_leave_node(struct kmem_cache *cache, struct engine_node *node, struct page *slab,
                            bool first, struct slab_state *before, struct slab_cost *cost)
{
        uint64_t old = load_acquire(&slab->state);

        *before = state_unpack(old);
        if (cache->freeze_eagerly) {
                struct slab_state after = *before;

                after.frozen = true;
                if (first) {
                        after.head = INDEX_END;
                        after.inuse = before->objects;
                }
                if (!slab_swap(cache, slab, &old, after, STAGE_NODE_PARTIAL, STAGE_TRANSIT, cost))
                        return false;
        } else {
                slab_enter(cache, slab, STAGE_NODE_PARTIAL, STAGE_TRANSIT);
        }
        node_remove_partial_locked(node, slab);
        return true;
}

/*
 * Makes the first slab of a refill the CPU slab; delayed freezing freezes it now, eager has done
 * so.
 */
static void install_first(struct kmem_cache *cache, struct engine_slot *slot, struct page *slab,
                          uint32_t head, struct slab_cost *cost)
{
        if (cache->freeze_eagerly)
                slab_enter(cache, slab, STAGE_TRANSIT, STAGE_CPU);
        else
                head = slab_take_list(cache, slab, STAGE_TRANSIT, cost);
        slot_install(cache, slot, slab, head);
        count_event(slot, ALLOC_FROM_PARTIAL);
}

/*
 * The slab that a slot takes next from a node's list: the first, but of small objects one that the slot
 * put there itself, if the beginning of the list has one. In another's slab the free objects lie between
 * those that another CPU works on (decisions/0046). @any: if there is none of its own, the first of all.
 */
static struct page *next_partial(const struct kmem_cache *cache, const struct engine_node *node,
                                 const struct engine_slot *slot, bool any)
{
        struct page *first = page_list_first(&node->partial);
        unsigned int looked_at = 0;

        if (!cache_shares_pages(cache) || slub_works_as_kernel(cache))
                return first;
        for (struct page *slab = first; slab && looked_at < OWN_LOOKED_AT; looked_at++) {
                if (slab->node_partial == slot->home)
                        return slab;
                slab = page_list_next(slab);
        }
        return any ? first : NULL;
}

/*
 * Takes slabs from a node: the first becomes the CPU slab, others go to the slot's CPU partial list
 * until there are enough. False if the first slab could not be had. The slot cache lock is held,
 * list_lock is taken inside it.
 */
static bool node_take_partial(struct kmem_cache *cache, struct engine_slot *slot,
                              struct engine_node *node)
{
        struct slab_cost first_cost = {0};
        struct slab_cost cost = {0};
        struct page *first = NULL;
        uint32_t head = INDEX_END;
        uint32_t free_objects = 0;
        uint32_t pushed = 0;
        struct slab_state before;
        struct page *slab;
        bool any = true; /* a refill that found a slab of its own takes no others */

        /* A stale length costs a new slab or an idle lock hold, nothing else (S1-40). */
        if (load_relaxed(&node->partial.length) == 0)
                return false;
        node_lock(node, &first_cost);
        cost.locked = true;
        while ((slab = next_partial(cache, node, slot, any))) {
                bool left;

                any = any && slab->node_partial != slot->home;
                left = slab_leave_node(cache, node, slab, !first, &before,
                                       first ? &cost : &first_cost);

                if (first)
                        count_cost(slot, NODE_TO_PARTIAL, &cost);
                if (!left)
                        break;
                free_objects += before.objects - before.inuse;
                if (!first) {
                        first = slab;
                        head = before.head;
                } else {
                        partial_list_add(cache, slot, slab);
                        pushed++;
                }
                if (refill_is_enough(cache, pushed, free_objects))
                        break;
        }
        node_unlock(node, &first_cost);
        if (first)
                install_first(cache, slot, first, head, &first_cost);
        count_cost(slot, NODE_TO_CPU, &first_cost);
        count_events(slot, CPU_PARTIAL_NODE, pushed);
        return first != NULL;
}

bool remote_search_is_due(struct kmem_cache *cache)
{
        uint32_t ratio = load_relaxed(&cache->remote_node_defrag_ratio);

        return system_nodes() > 1 && ratio && random_next(&cache->defrag_random) % 1024 <= ratio;
}

/*
 * Takes another node's slabs while that node has more than it would keep. @anything: takes also
 * slabs that it would keep, because there is no memory for a slab here.
 */
static bool take_from_others(struct kmem_cache *cache, struct engine_slot *slot, unsigned int here,
                             bool anything)
{
        for (unsigned int step = 1; step < system_nodes(); step++) {
                struct engine_node *node = &cache->node[system_near_node(here, step)];

                if ((anything ||
                     load_relaxed(&node->partial.length) > load_relaxed(&cache->min_partial)) &&
                    node_take_partial(cache, slot, node))
                        return true;
        }
        return false;
}

bool slot_take_last(struct kmem_cache *cache, struct engine_slot *slot)
{
        debug_check(lock_is_held(&slot->lock));
        return take_from_others(cache, slot, system_current_node(), true);
}

bool slot_take_from_nodes(struct kmem_cache *cache, struct engine_slot *slot, int wish)
{
        unsigned int here = wish == NODE_ANY ? system_current_node() : (unsigned int)wish;

        debug_check(lock_is_held(&slot->lock));
        if (node_take_partial(cache, slot, &cache->node[here]))
                return true;
        return wish == NODE_ANY && remote_search_is_due(cache) &&
               take_from_others(cache, slot, here, false);
}
