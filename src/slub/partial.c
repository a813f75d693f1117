/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * CPU partial lists and node partial lists (S2, S1-40 to S1-55).
 *
 * A CPU partial list is a chain through page->next under the slot cache lock; page->prev of
 * each slab holds the length of the chain from it on (S1-73). Its slabs are not frozen and not
 * marked node_partial: frees into them are left alone wherever they come from (S1-33).
 */
#include "slub/slab.h"

void node_add_partial_locked(struct engine_node *node, struct page *slab, bool tail)
{
        debug_check(lock_is_held(&node->list_lock) && !slab->node_partial);
        if (tail)
                page_list_add_tail(&node->partial, slab);
        else
                page_list_add_head(&node->partial, slab);
        slab->node_partial = 1;
}

void node_remove_partial_locked(struct engine_node *node, struct page *slab)
{
        debug_check(lock_is_held(&node->list_lock) && slab->node_partial);
        page_list_remove(&node->partial, slab);
        slab->node_partial = 0;
}

/* Pops the newest CPU partial slab; the slot cache lock is held. */
struct page *slot_take_partial(struct engine_slot *slot)
{
        struct page *slab;

        debug_check(lock_is_held(&slot->lock));
        if (!slot->partial)
                return NULL;
        slab = page_at(slot->partial);
        slot->partial = slab->next;
        slab->next = 0;
        slab->prev = 0;
        return slab;
}

static uint32_t chain_length(uint32_t chain)
{
        return chain ? page_at(chain)->prev : 0;
}

static void slot_push_partial_locked(struct engine_slot *slot, struct page *slab)
{
        debug_check(lock_is_held(&slot->lock));
        slab->prev = chain_length(slot->partial) + 1;
        slab->next = slot->partial;
        slot->partial = page_number(slab);
}

/*
 * Puts a slab that is on no list on the slot's CPU partial list. With @drain (it comes from a
 * free) a list that has reached its limit goes to the node lists first, outside the slot cache
 * lock, and the slab starts a new one (S2-12). This is the place where accounting rules differ.
 */
void slot_put_partial(struct kmem_cache *cache, struct engine_slot *slot, struct page *slab,
                      bool drain)
{
        uint32_t drained = 0;

        lock_take(&slot->lock);
        if (drain && slot->partial &&
            chain_length(slot->partial) >= load_relaxed(&cache->cpu_partial_slabs)) {
                drained = slot->partial;
                slot->partial = 0;
        }
        slot_push_partial_locked(slot, slab);
        lock_drop(&slot->lock);
        if (drained)
                node_put_chain(cache, drained);
}

/*
 * Returns a chain to the node lists, one hold of list_lock per run of equal nodes (S1-55): full
 * ones of free objects are set aside and discarded, the others go to the tail.
 */
void node_put_chain(struct kmem_cache *cache, uint32_t chain)
{
        struct engine_node *node = NULL;
        uint32_t empty = 0;

        while (chain) {
                struct page *slab = page_at(chain);
                struct engine_node *home = slab_node(cache, slab);

                chain = slab->next;
                if (home != node) {
                        if (node)
                                lock_drop(&node->list_lock);
                        node = home;
                        lock_take(&node->list_lock);
                }
                slab->prev = 0;
                /*
                 * An empty slab off the lists stays empty: nobody holds an object to free, and
                 * nobody else can take from it.
                 */
                if (state_unpack(load_relaxed(&slab->state)).inuse == 0 &&
                    node->partial.length >= load_relaxed(&cache->min_partial)) {
                        slab->next = empty;
                        empty = page_number(slab);
                } else {
                        slab->next = 0;
                        node_add_partial_locked(node, slab, true);
                }
        }
        if (node)
                lock_drop(&node->list_lock);
        while (empty) {
                struct page *slab = page_at(empty);

                empty = slab->next;
                slab->next = 0;
                slab_discard(cache, slab);
        }
}

/*
 * Takes slabs from a node (S1-42, S2-22): the first is returned, unlinked and not frozen; up to
 * half the limit plus one more go to the slot's CPU partial list. The slot cache lock is held,
 * list_lock is taken inside it.
 */
static struct page *node_take_partial(struct kmem_cache *cache, struct engine_slot *slot,
                                      struct engine_node *node)
{
        uint32_t limit = load_relaxed(&cache->cpu_partial_slabs);
        struct page *first;
        uint32_t extra = 0;

        /* A stale length costs a new slab or an idle lock hold, nothing else (S1-40). */
        if (load_relaxed(&node->partial.length) == 0)
                return NULL;
        lock_take(&node->list_lock);
        first = page_list_first(&node->partial);
        if (first)
                node_remove_partial_locked(node, first);
        while (first && limit && extra <= limit / 2) {
                struct page *slab = page_list_first(&node->partial);

                if (!slab)
                        break;
                node_remove_partial_locked(node, slab);
                slot_push_partial_locked(slot, slab);
                extra++;
        }
        lock_drop(&node->list_lock);
        return first;
}

struct page *node_take_partial_locked_slot(struct kmem_cache *cache, struct engine_slot *slot)
{
        debug_check(lock_is_held(&slot->lock));
        for (unsigned int node = 0; node < NODES_MAX; node++) {
                struct page *slab = node_take_partial(cache, slot, &cache->node[node]);

                if (slab)
                        return slab;
        }
        return NULL;
}
