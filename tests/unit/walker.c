/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "walker.h"

#include "slob_walk.h"
#include "walk_slab.h"

#include "engines/debug/debug.h"
#include "percpu/percpu.h"
#include "engines/slub/slab.h"

#include <stdio.h>
#include <stdlib.h>

#define ensure(condition, page)                                                                    \
        do {                                                                                       \
                if (!(condition))                                                                  \
                        broken(#condition, __LINE__, page);                                        \
        } while (0)

static void broken(const char *what, int line, const struct page *page)
{
        struct slab_state state = state_unpack(page->state);

        fprintf(stderr,
                "walker: %s (line %d): page %u kind %u order %u map 0x%x head %u inuse %u "
                "objects %u frozen %d node_partial %u next %u prev %u\n",
                what, line, page_number(page), page->kind, page->order, heap.map[page_number(page)],
                state.head, state.inuse, state.objects, state.frozen, page->node_partial,
                page->next, page->prev);
        abort();
}

/* Findings on lists and in CPU records about a slab. */
enum place { PLACE_NONE, PLACE_CPU, PLACE_CPU_PARTIAL, PLACE_NODE_PARTIAL, PLACE_NODE_FULL };

static uint8_t *place_of_page;

static const struct kmem_cache *own_cache;
static const struct engine_slot *own_slots;
static unsigned int own_slot_count;

void walk_own_slots(const struct kmem_cache *cache, const struct engine_slot *slots,
                    unsigned int count)
{
        own_cache = cache;
        own_slots = slots;
        own_slot_count = count;
}

static void set_place(const struct page *slab, enum place place)
{
        ensure(slab->kind == PAGE_SLAB, slab);
        ensure(place_of_page[page_number(slab)] == PLACE_NONE, slab); /* S1-71, S1-75 */
        place_of_page[page_number(slab)] = (uint8_t)place;
}

static void visit_chain(const struct kmem_cache *cache, const struct engine_slot *slot)
{
        uint32_t number = slot->partial;
        uint32_t length = number ? page_at(number)->prev : 0;

        for (; number; number = page_at(number)->next, length--) {
                const struct page *slab = page_at(number);
                uint32_t below = slab->next ? page_at(slab->next)->list_objects : 0;
                struct slab_state state = state_unpack(slab->state);

                ensure(slab->prev == length, slab); /* S1-73 */
                ensure(cache->has_cpu_partial, slab);
                /* S2-01: later frees only make more than was counted. */
                if (cache->count_objects)
                        ensure(slab->list_objects > below &&
                                       slab->list_objects - below <= state.objects - state.inuse,
                               slab);
                set_place(page_at(number), PLACE_CPU_PARTIAL);
        }
        if (length) {
                fprintf(stderr, "walker: CPU partial chain is %u shorter than its head says\n",
                        length);
                abort();
        }
}

static void visit_list(const struct page_list *list, unsigned int number, enum place place)
{
        size_t length = 0;
        uint32_t previous = 0;

        for (const struct page *slab = page_list_first(list); slab; slab = page_list_next(slab)) {
                ensure(slab->prev == previous && slab->node == number, slab);
                previous = page_number(slab);
                length++;
                set_place(slab, place);
        }
        if (length != list->length) { /* S1-72 */
                fprintf(stderr, "walker: node list has %zu slabs, its length says %zu\n", length,
                        list->length);
                abort();
        }
}

static void visit_node(const struct kmem_cache *cache, unsigned int number)
{
        visit_list(&cache->node[number].partial, number, PLACE_NODE_PARTIAL);
        visit_list(&cache->node[number].full, number, PLACE_NODE_FULL);
}

static const struct engine_slot *find_cpu_record(const struct kmem_cache *cache,
                                                 const struct page *slab)
{
        for (unsigned int number = 0; number < own_slot_count; number++)
                if (own_slots[number].slab == slab)
                        return &own_slots[number];
        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                struct slot *slot = number ? slot_made(number - 1) : &shared_slot;
                struct slot_cache *record = slot_peek(slot, cache_index(cache));

                if (record && record->engine.slab == slab)
                        return &record->engine;
        }
        return NULL;
}

static uint32_t list_length(const struct kmem_cache *cache, const struct page *slab,
                            uint32_t objects, uint32_t head)
{
        uint32_t length = 0;

        for (uint32_t index = head; index != INDEX_END;
             index = cache->engine == &debug_engine ? debug_next(cache, slab, index)
                                                    : slab_next(slab, objects, index)) {
                ensure(index < objects, slab);
                ensure(length < objects, slab); /* no cycle */
                length++;
        }
        return length;
}

static uint32_t in_use_entries(const struct page *slab, uint32_t objects, uint32_t carved)
{
        uint32_t entries = 0;

        for (uint32_t index = 0; index < carved; index++)
                entries += slab_next(slab, objects, index) == INDEX_IN_USE;
        return entries;
}

static void visit_slab(const struct kmem_cache *cache, const struct page *slab,
                       struct walk_counts *counts)
{
        struct slab_state state = state_unpack(slab->state);
        enum place place = (enum place)place_of_page[page_number(slab)];
        uint32_t listed = list_length(cache, slab, state.objects, state.head);
        uint32_t expected_in_use = state.inuse;
        uint32_t carved = state.objects;
        bool preferred = slab->order == (cache->slab_pages ? ORDER_EXACT : cache->order);
        uint32_t entries;

        ensure(preferred || (!cache->slab_pages && slab->order == cache->min_order), slab);
        ensure(state.objects == (preferred ? cache->objects : cache->min_order_objects), slab);
        ensure(page_number(slab) % slab_align_pages(cache, slab->order) == 0, slab);
        for (size_t page = 0; page < pages_of_slab(cache, slab->order); page++) {
                /* PAGE-3: where an object starts. */
                bool starts = cache->size <= PAGE_SIZE || cache->red_left_pad;
                bool is_looked_for = page == 0 || state.objects > 1 || cache->red_left_pad;

                for (uint32_t i = 0; !starts && i < state.objects; i++)
                        starts = (size_t)i * cache->size >> PAGE_SHIFT == page;
                ensure(heap.map[page_number(slab) + page] == (starts ? cache->pair_offset : 0),
                       slab);
                ensure(!is_looked_for || slub_slab_of(cache, page_address(slab + page)) == slab,
                       slab);
        }
        ensure(state.inuse + listed == state.objects, slab); /* S1-70 */
        ensure(state.frozen == (place == PLACE_CPU ||
                                (place == PLACE_CPU_PARTIAL && cache->freeze_eagerly)),
               slab);                                                             /* S1-71, S1.2 */
        ensure((slab->node_partial != 0) == (place == PLACE_NODE_PARTIAL), slab); /* S1-72 */
        if (place == PLACE_NODE_PARTIAL || place == PLACE_CPU_PARTIAL)
                ensure(listed > 0, slab); /* S1-74 */
        if (place == PLACE_NONE || place == PLACE_NODE_FULL)
                ensure(listed == 0, slab); /* FULL, else it is lost: S1-75 */
        /* Nothing is kept for a CPU, and all slabs are on lists (S10-01). */
        if (cache->engine == &debug_engine)
                ensure(place == PLACE_NODE_PARTIAL || place == PLACE_NODE_FULL, slab);
        else
                ensure(place != PLACE_NODE_FULL, slab);
        if (place == PLACE_CPU) {
                const struct engine_slot *slot = find_cpu_record(cache, slab);
                uint32_t on_cpu_freelist = list_length(cache, slab, state.objects, slot->freelist);

                ensure(slot->carved <= state.objects, slab);
                carved = slot->carved;
                ensure(expected_in_use >= on_cpu_freelist + state.objects - carved, slab);
                expected_in_use -= on_cpu_freelist + state.objects - carved;
        }
        entries = in_use_entries(slab, state.objects, carved);
        ensure(entries == expected_in_use, slab); /* SLUB-3 */
        counts->slabs++;
        counts->slab_pages += pages_of_slab(cache, slab->order);
        counts->inuse += expected_in_use;
        counts->cpu_slabs += place == PLACE_CPU;
        counts->cpu_partial += place == PLACE_CPU_PARTIAL;
        counts->node_partial += place == PLACE_NODE_PARTIAL;
        counts->full += place == PLACE_NONE || place == PLACE_NODE_FULL;
}

static void visit_cpu_record(const struct kmem_cache *cache, const struct engine_slot *slot)
{
        visit_chain(cache, slot);
        if (slot->slab)
                set_place(slot->slab, PLACE_CPU);
}

static void find_places(void)
{
        for (uint32_t index = 1; index < slots_index_end(); index++) {
                const struct kmem_cache *cache = caches_by_index[index];

                if (!cache || cache->engine->number != ENGINE_SLUB)
                        continue;
                for (unsigned int node = 0; node < system_nodes(); node++)
                        visit_node(cache, node);
                for (unsigned int number = 0; number <= slots_made_count(); number++) {
                        struct slot *slot = number ? slot_made(number - 1) : &shared_slot;
                        struct slot_cache *record = slot_peek(slot, index);

                        if (record)
                                visit_cpu_record(cache, &record->engine);
                }
                for (unsigned int number = 0; cache == own_cache && number < own_slot_count;
                     number++)
                        visit_cpu_record(cache, &own_slots[number]);
        }
}

/* Sums over the nodes' counters. */
static void count_nodes(const struct kmem_cache *cache, uint64_t *slabs, uint64_t *objects)
{
        *slabs = 0;
        *objects = 0;
        for (unsigned int node = 0; node < system_nodes(); node++) {
                *slabs += cache->node[node].slabs;
                *objects += cache->node[node].objects;
        }
}

/* S1-75: the nodes' counters are the sums over their slabs. */
static void check_sums(const uint64_t *slabs, const uint64_t *objects)
{
        for (uint32_t index = 1; index < slots_index_end(); index++) {
                const struct kmem_cache *cache = caches_by_index[index];
                uint64_t counted_slabs;
                uint64_t counted_objects;

                if (!cache)
                        continue;
                count_nodes(cache, &counted_slabs, &counted_objects);
                if (slabs[index] == counted_slabs && objects[index] == counted_objects)
                        continue;
                fprintf(stderr,
                        "walker: cache %s counts %lu slabs, %lu objects; there are %lu, %lu\n",
                        cache->name, (unsigned long)counted_slabs, (unsigned long)counted_objects,
                        (unsigned long)slabs[index], (unsigned long)objects[index]);
                abort();
        }
}

/* Caches of the other engine: their slabs hang on lists, so their number must agree. */
static void visit_slab_caches(const struct kmem_cache *cache, struct walk_counts *counts)
{
        for (uint32_t index = 1; index < slots_index_end(); index++) {
                struct kmem_cache *other = caches_by_index[index];
                struct walk_slab_counts found;
                uint64_t slabs;
                uint64_t objects;

                if (!other || other->engine != &slab_engine)
                        continue;
                walk_slab_cache(other, &found);
                if (cache && other != cache)
                        continue;
                count_nodes(other, &slabs, &objects);
                counts->slabs += slabs;
                counts->slab_pages += slabs << other->order;
                counts->node_partial += found.partial;
                counts->full += found.full;
                counts->inuse += found.active - found.arrays;
        }
}

/* Pages and blocks of engine slob, which are of no cache. */
static void visit_slob(struct walk_counts *counts)
{
        struct slob_walk found;

        slob_walk(&found);
        counts->slab_pages += found.pages + found.big_pages;
        counts->inuse += found.blocks + found.big_objects;
}

void walk_heap(const struct kmem_cache *cache, struct walk_counts *counts)
{
        uint32_t end = (uint32_t)(heap.accessible_bytes >> PAGE_SHIFT);
        static uint64_t slabs[CACHES_MAX];
        static uint64_t objects[CACHES_MAX];
        struct walk_counts others = {0};

        *counts = (struct walk_counts){0};
        __builtin_memset(slabs, 0, sizeof(slabs));
        __builtin_memset(objects, 0, sizeof(objects));
        place_of_page = metadata_alloc(end + 1); /* not malloc: that may be the heap we walk */
        if (!place_of_page)
                abort();
        find_places();
        for (uint32_t number = 1; number < end; number++) {
                const struct page *page = page_at(number);
                const struct kmem_cache *owner;

                if (page->kind == PAGE_LARGE) {
                        ensure(heap.map[number] == 0, page);
                        counts->large_pages += page->state;
                        number += (uint32_t)page->state - 1;
                        continue;
                }
                if (page->kind != PAGE_SLAB) {
                        ensure(heap.map[number] == 0, page); /* PAGE-3 */
                        continue;
                }
                owner = caches_by_index[heap.map[number] >> PAIR_SHIFT];
                ensure(owner != NULL, page);
                number += (uint32_t)pages_of_slab(owner, page->order) - 1;
                if (owner->engine->shared)
                        continue; /* slob's pages are no slabs of a cache */
                if (owner->engine->number == ENGINE_SLUB) {
                        visit_slab(owner, page, !cache || owner == cache ? counts : &others);
                        objects[cache_index(owner)] += slab_objects(page);
                } else {
                        objects[cache_index(owner)] += owner->objects;
                }
                slabs[cache_index(owner)]++;
        }
        check_sums(slabs, objects);
        visit_slab_caches(cache, counts);
        if (!cache)
                visit_slob(counts);
        metadata_free(place_of_page, end + 1);
        place_of_page = NULL;
}
