/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Slabs come and go: new, deactivated, discarded, flushed, shrunk, torn down (S1-50 to S1-59).
 */
#include "engines/slub/slab.h"

#include "machine/probe.h"
#include "page/deferred.h"

/* Once an object, when its slab is made (S8-31): no lock is held, so constructors may allocate. */
static void construct_objects(struct kmem_cache *cache, struct page *slab, uint32_t objects)
{
        for (uint32_t index = 0; index < objects; index++)
                cache->ctor(slub_object(cache, slab, index));
}

/*
 * Whether the table lies in the descriptor of the slab's second page, which is otherwise of no use.
 */
static bool table_is_inside(const struct kmem_cache *cache, uint32_t objects)
{
        return cache->slab_pages > 1 && slub_table_bytes(objects) <= sizeof(void *);
}

/*
 * The page map knows the pages in which an object starts. A free of an address in another page of a large object
 * finds no cache, and is noticed at the call. Debug caches find it anyway, and say more.
 */
static void map_starts(const struct kmem_cache *cache, struct page *slab, uint32_t objects,
                       size_t pages)
{
        if (cache->size <= PAGE_SIZE || cache->red_left_pad) {
                page_map_set(slab, pages, (uint16_t)cache->pair_offset);
                return;
        }
        for (uint32_t index = 0; index < objects; index++)
                page_map_set(page_at(address_page(slub_object(cache, slab, index))), 1,
                             (uint16_t)cache->pair_offset);
}

/* Pages become a slab, which free finds by the page map from then on. */
static void slab_make(struct kmem_cache *cache, struct page *slab, unsigned int order,
                      uint32_t objects, void *table, slab_prepare *prepare)
{
        struct slab_state state = {.head = INDEX_END, .inuse = 0, .objects = objects};
        size_t pages = pages_of_slab(cache, order);
        bool has_inner; /* addresses in its other pages are looked for */

        if (!table) {
                table = &slab[1].table;
                slab[1].table = NULL;
        }
        slab->table = table;
        slab->fresh = slab->state == pages;
        slab->state = state_pack(state);
        slab->node_partial = 0;
        slab->prev = 0;
        if (cache->slab_pages)
                slab->order = ORDER_EXACT;
        if (prepare)
                prepare(cache, slab, objects);
        has_inner = cache->slab_pages && (objects > 1 || cache->red_left_pad);
        for (uint32_t page = 1; has_inner && page < pages; page++)
                store_relaxed(&slab[page].state, (uint64_t)page);
        /* Release: pairs with the acquires in slab_of, slab_of_page and debug/give.c. */
        store_release(&slab->kind, (uint8_t)PAGE_SLAB);
        map_starts(cache, slab, objects, pages);
        PROBE4(slab_alloc, cache->name, page_address(slab), objects, pages << PAGE_SHIFT);
}

static struct page *slabs_make_order(struct kmem_cache *cache, unsigned int order, uint32_t objects,
                                     int node, unsigned int *made, slab_prepare *prepare)
{
        void *tables[SLABS_AT_ONCE] = {NULL};
        bool inside = table_is_inside(cache, objects);
        struct page *first = NULL;
        unsigned int count = *made;

        *made = 0;
        if (!inside)
                count = metadata_alloc_many(tables, count, slub_table_bytes(objects));
        if (count)
                first = pages_alloc_many(pages_of_slab(cache, order),
                                         slab_align_pages(cache, order), node, count, objects == 1);
        for (struct page *slab = first; slab; slab = page_list_next(slab))
                slab_make(cache, slab, order, objects, tables[(*made)++], prepare);
        while (!inside && count > *made)
                metadata_free(tables[--count], slub_table_bytes(objects));
        return first;
}

/* Slabs of the preferred order, else of the least order that holds an object (S1-50). */
struct page *slabs_make(struct kmem_cache *cache, int node, unsigned int *count,
                        slab_prepare *prepare)
{
        unsigned int wanted = *count;
        struct page *first;

        debug_check(wanted == 1 || (wanted <= SLABS_AT_ONCE && !cache->ctor));
        first = slabs_make_order(cache, cache->order, cache->objects, node, count, prepare);
        if (!first && cache->min_order < cache->order) {
                store_relaxed(&cache->slab_mask, 0);
                *count = wanted;
                first = slabs_make_order(cache, cache->min_order, cache->min_order_objects, node,
                                         count, prepare);
        }
        return first;
}

struct page *slabs_new(struct kmem_cache *cache, int node, unsigned int count)
{
        struct page *first =
                slabs_make(cache, node, &count, cache->ctor ? construct_objects : NULL);

        if (first)
                node_count_slabs(slab_node(cache, first), count,
                                 (int64_t)count * slab_objects(first));
        return first;
}

/*
 * Ends a slab that is empty, on no list, and has no owner (S1-76), and its entries in the page map.
 * The caller frees its table and its pages.
 */
static void slab_unmake(struct kmem_cache *cache, struct page *slab, struct slab_state state)
{
        size_t pages = pages_of_slab(cache, slab->order);

        check_or_die(state.inuse == 0 && !state.frozen && !slab->node_partial);
        PROBE4(slab_free, cache->name, page_address(slab), state.objects, pages << PAGE_SHIFT);
        slab_enter(cache, slab, STAGE_TRANSIT, STAGE_GONE);
        page_map_set(slab, pages, 0);
        store_relaxed(&slab->kind, (uint8_t)PAGE_UNUSED);
}

/*
 * Readers may still look at the objects of a type-safe slab, so its pages wait for a grace period
 * (S1-59).
 */
static void free_slabs_pages(struct kmem_cache *cache, uint32_t chain, size_t count)
{
        if (!(cache->flags & SLAB_TYPESAFE_BY_RCU)) {
                pages_free_chain(chain, count);
                return;
        }
        while (chain) {
                struct page *page = page_at(chain);

                chain = page->next;
                pages_free_deferred(page, count);
        }
}

/*
 * Ends the first slabs of a chain that agree in node and order, with a single hold of each lock;
 * returns the rest.
 */
static uint32_t slabs_end_alike(struct kmem_cache *cache, uint32_t chain, bool counted)
{
        struct engine_node *node = slab_node(cache, page_at(chain));
        uint32_t objects = slab_objects(page_at(chain));
        unsigned int order = page_at(chain)->order;
        bool inside = table_is_inside(cache, objects);
        uint32_t pages = 0;
        int64_t count = 0;
        void *tables = NULL;

        while (chain) {
                struct page *slab = page_at(chain);
                /* Acquire: pairs with the pushes of the last frees (SLUB-2). */
                struct slab_state state = state_unpack(load_acquire(&slab->state));

                if (slab_node(cache, slab) != node || slab->order != order)
                        break;
                chain = slab->next;
                slab_unmake(cache, slab, state);
                if (!inside) {
                        *(void **)slab->table = tables;
                        tables = slab->table;
                }
                slab->table = NULL;
                slab->next = pages;
                pages = page_number(slab);
                count++;
        }
        if (counted)
                node_count_slabs(node, -count, -count * objects);
        if (!inside)
                metadata_free_chain(tables, slub_table_bytes(objects));
        free_slabs_pages(cache, pages, pages_of_slab(cache, order));
        return chain;
}

void slabs_end(struct kmem_cache *cache, uint32_t chain)
{
        while (chain)
                chain = slabs_end_alike(cache, chain, false);
}

void slabs_discard(struct kmem_cache *cache, uint32_t chain)
{
        while (chain)
                chain = slabs_end_alike(cache, chain, true);
}

/*
 * Links the uncarved room in front of the CPU freelist, ascending, without touching object
 * memory (SLUB-4).
 */
static void link_uncarved(struct engine_slot *slot)
{
        struct page *slab = slot->slab;
        uint32_t objects = slab_objects(slab);

        for (uint32_t index = objects; index-- > slot->carved;) {
                slab_set_next(slab, objects, index, slot->freelist);
                slot->freelist = index;
        }
        slot->carved = objects;
}

/* The place of a slab after deactivation (S1-51). */
enum deactivated { DEACTIVATED_FULL, DEACTIVATED_EMPTY, DEACTIVATED_PARTIAL };

static void count_deactivation(struct engine_slot *slot, enum deactivated result, bool remote_frees,
                               struct slab_cost *cost)
{
        if (remote_frees)
                count_event(slot, DEACTIVATE_REMOTE_FREES);
        if (result == DEACTIVATED_FULL)
                count_event(slot, DEACTIVATE_FULL);
        else if (result == DEACTIVATED_PARTIAL)
                count_event(slot, remote_frees ? DEACTIVATE_TO_TAIL : DEACTIVATE_TO_HEAD);
        else
                count_event(slot, DEACTIVATE_EMPTY);
        count_cost(slot, result == DEACTIVATED_PARTIAL ? DEACTIVATE_TO_NODE : DEACTIVATE_OTHER,
                   cost);
}

/*
 * Takes the CPU slab away from the slot; the slot's lock is held. It splices the CPU freelist in
 * front of the slab's list and unfreezes it in a single transition (S1-51).
 *
 * Delayed: only then is list_lock taken to link it, so a free in between finds it off all lists
 * and leaves it (S1-53). Eager: a free would take an unfrozen slab off the lists for a slab on
 * them, so list_lock is taken before the swap, and again for each retry (S1-52).
 */
void slab_deactivate(struct kmem_cache *cache, struct engine_slot *slot)
{
        struct page *slab = slot->slab;
        struct engine_node *node = slab_node(cache, slab);
        uint32_t objects = slab_objects(slab);
        uint64_t old = load_relaxed(&slab->state);
        struct slab_cost cost = {0};
        enum deactivated result;
        struct slab_state before;
        struct slab_state after;
        uint32_t free_count = 0;
        uint32_t tail = INDEX_END;

        debug_check(lock_is_held(&slot->lock));
        link_uncarved(slot);
        for (uint32_t index = slot->freelist; index != INDEX_END;
             index = slab_next(slab, objects, index)) {
                tail = index;
                free_count++;
        }
        for (;;) {
                before = state_unpack(old);
                after = before;
                after.frozen = false;
                after.inuse = before.inuse - free_count;
                if (tail != INDEX_END) {
                        slab_set_next(slab, objects, tail, before.head);
                        after.head = slot->freelist;
                }
                /* Racy by design (S1-35): the limit may be missed by a slab. */
                if (after.head == INDEX_END)
                        result = DEACTIVATED_FULL; /* the next free moves it */
                else if (after.inuse == 0 &&
                         load_relaxed(&node->partial.length) >= load_relaxed(&cache->min_partial))
                        result = DEACTIVATED_EMPTY;
                else
                        result = DEACTIVATED_PARTIAL;
                if (cache->freeze_eagerly && result == DEACTIVATED_PARTIAL)
                        node_lock(node, &cost);
                if (slab_swap(cache, slab, &old, after, STAGE_CPU,
                              result == DEACTIVATED_FULL ? STAGE_FULL : STAGE_TRANSIT, &cost))
                        break;
                if (cost.locked)
                        node_unlock(node, &cost);
        }
        store_relaxed(&slot->slab, NULL);
        slot->freelist = INDEX_END;

        if (result == DEACTIVATED_PARTIAL) {
                if (!cost.locked)
                        node_lock(node, &cost);
                node_add_partial_locked(cache, node, slab, slot->home, before.head != INDEX_END);
                node_unlock(node, &cost);
        }
        count_deactivation(slot, result, before.head != INDEX_END, &cost);
        if (result == DEACTIVATED_EMPTY) {
                count_event(slot, FREE_SLAB);
                slab_discard(cache, slab);
        }
}

void slub_flush_slot(struct kmem_cache *cache, struct engine_slot *slot)
{
        uint32_t chain;

        lock_take(&slot->lock);
        if (slot->slab) {
                count_event(slot, CPUSLAB_FLUSH);
                slab_deactivate(cache, slot);
        }
        chain = slot->partial;
        store_relaxed(&slot->partial, 0);
        lock_drop(&slot->lock);
        node_put_chain(cache, slot, chain, FLUSH_TO_NODE);
        pages_release_deferred();
}

enum { SHRINK_BUCKETS = 32 };

uint32_t node_shrink_locked(struct kmem_cache *cache, struct engine_node *node)
{
        struct page_list buckets[SHRINK_BUCKETS] = {0};
        uint32_t empty = 0;
        struct page *slab;
        struct page *next;

        debug_check(lock_is_held(&node->list_lock));
        add_owned(&node->shrinks, 1);
        /* The list gets another order: a purge that is under way ends early. */
        node->purge_next = 0;
        for (slab = page_list_first(&node->partial); slab; slab = next) {
                struct slab_state state = state_unpack(load_relaxed(&slab->state));
                uint32_t free_objects = state.objects - state.inuse;

                next = page_list_next(slab);
                if (state.inuse == 0) {
                        slab_enter(cache, slab, STAGE_NODE_PARTIAL, STAGE_TRANSIT);
                        node_remove_partial_locked(node, slab);
                        slab->next = empty;
                        empty = page_number(slab);
                } else if (free_objects && free_objects <= SHRINK_BUCKETS) {
                        page_list_remove(&node->partial, slab);
                        page_list_add_tail(&buckets[free_objects - 1], slab);
                }
        }
        for (unsigned int bucket = SHRINK_BUCKETS; bucket-- > 0;) {
                while ((slab = page_list_first(&buckets[bucket]))) {
                        page_list_remove(&buckets[bucket], slab);
                        page_list_add_head(&node->partial, slab);
                }
        }
        /* Shows the length again: the figure shown while slabs were in buckets is too low. */
        node_show_partial_locked(node);
        return empty;
}

static void node_shrink(struct kmem_cache *cache, struct engine_node *node)
{
        uint32_t empty;

        lock_take(&node->list_lock);
        empty = node_shrink_locked(cache, node);
        lock_drop(&node->list_lock);
        slabs_discard(cache, empty);
}

bool slub_shrink(struct kmem_cache *cache)
{
        bool remain = false;

        for (unsigned int node = 0; node < system_nodes(); node++) {
                node_shrink(cache, &cache->node[node]);
                remain |= load_relaxed(&cache->node[node].slabs) != 0;
        }
        pages_release_deferred();
        return remain;
}

/* Names the objects that are still in use in a slab, the first few (S8-08). */
static void report_leftovers(struct kmem_cache *cache, struct page *slab)
{
        uint32_t objects = slab_objects(slab);
        unsigned int shown = 0;

        for (uint32_t index = 0; index < objects && shown < 8; index++)
                if (slab_next(slab, objects, index) == INDEX_IN_USE) {
                        void *object = slub_object(cache, slab, index);

                        message("Object %p @offset=%zu", object, (size_t)index * cache->size);
                        shown++;
                }
}

/* Full slabs are on no list, so the heap's descriptors are walked. Returns how many are in use. */
static uint64_t report_all_leftovers(struct kmem_cache *cache)
{
        uint64_t inuse = 0;

        message("BUG %s: Objects remaining on __kmem_cache_shutdown()", cache->name);
        for (uint32_t number = 1; number < load_relaxed(&heap.accessible_bytes) >> PAGE_SHIFT;
             number++) {
                struct page *slab = page_at(number);

                if (load_relaxed(&slab->kind) != PAGE_SLAB ||
                    heap.map[number] != cache->pair_offset)
                        continue;
                inuse += state_unpack(load_relaxed(&slab->state)).inuse;
                report_leftovers(cache, slab);
        }
        return inuse;
}

bool slub_teardown(struct kmem_cache *cache)
{
        uint64_t slabs = 0;

        for (unsigned int node = 0; node < system_nodes(); node++) {
                node_shrink(cache, &cache->node[node]);
                slabs += load_relaxed(&cache->node[node].slabs);
        }
        if (!slabs)
                return false;
        engine_report_leaked(cache, report_all_leftovers(cache), slabs);
        return true;
}
