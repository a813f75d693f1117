/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "walk_slab.h"

#include "engines/slab/slab.h"

#include <stdio.h>
#include <stdlib.h>

#define ensure(condition, slab)                                                                    \
        do {                                                                                       \
                if (!(condition))                                                                  \
                        broken(#condition, __LINE__, slab);                                        \
        } while (0)

static void broken(const char *what, int line, const struct page *slab)
{
        fprintf(stderr, "slab walker: %s (line %d): page %u", what, line,
                slab ? page_number(slab) : 0);
        if (slab)
                fprintf(stderr, " kind %u order %u node %u active %u state 0x%lx offset %u",
                        slab->kind, slab->order, slab->node, slab->active,
                        (unsigned long)slab->state, slab_first_offset(slab));
        fprintf(stderr, "\n");
        abort();
}

/* SLAB-2, SLAB-3 */
static void check_table(struct kmem_cache *cache, struct page *slab)
{
        const slab_entry *table = slab->table;
        bool listed[SLAB_OBJECTS_MAX + 1] = {false};
        uint32_t used = 0;

        for (uint32_t index = 0; index < cache->objects; index++)
                used += slab_is_used(cache, slab, index);
        ensure(used == slab->active, slab);
        if (slab_data(cache)->placement == PLACE_OBJECT) {
                if (slab->active == cache->objects)
                        ensure(!table, slab);
                else
                        ensure((const void *)table ==
                                       slab_object(cache, slab, table[cache->objects - 1]),
                               slab);
        }
        for (uint32_t place = slab->active; place < cache->objects; place++) {
                ensure(table[place] < cache->objects && !listed[table[place]], slab);
                ensure(!slab_is_used(cache, slab, table[place]), slab);
                listed[table[place]] = true;
        }
}

static void check_slab(struct kmem_cache *cache, struct page *slab, uint32_t node)
{
        size_t end = slab_first_offset(slab) + (size_t)cache->objects * cache->size;

        ensure(slab->kind == PAGE_SLAB && slab->order == cache->order && slab->node == node, slab);
        for (size_t page = 0; page < order_pages(slab->order); page++)
                ensure(heap.map[page_number(slab) + page] == cache->pair_offset, slab);
        if (slab_data(cache)->placement == PLACE_ON_SLAB)
                end += slab_table_bytes(cache);
        ensure(end <= order_bytes(cache->order), slab);
        ensure(slab_first_offset(slab) % (slab_data(cache)->colour_lines * COLOUR_BYTES) == 0,
               slab);
        ensure((uintptr_t)slab_object(cache, slab, 0) % cache->align == 0, slab);
        check_table(cache, slab);
}

/* Returns the free objects of the list's slabs, each with an active count from @least to @most. */
static uint64_t check_list(struct kmem_cache *cache, uint32_t node, const struct page_list *list,
                           uint32_t least, uint32_t most, struct walk_slab_counts *counts)
{
        uint64_t free_objects = 0;
        uint32_t previous = 0;
        size_t length = 0;

        for (struct page *slab = page_list_first(list); slab; slab = page_list_next(slab)) {
                ensure(slab->prev == previous, slab);
                previous = page_number(slab);
                length++;
                ensure(slab->active >= least && slab->active <= most, slab); /* SLAB-1 */
                check_slab(cache, slab, node);
                free_objects += cache->objects - slab->active;
                counts->active += slab->active;
        }
        ensure(list->last == previous && list->length == length, page_list_first(list));
        return free_objects;
}

/* SLAB-5, and no object is in an array twice. */
static void check_array(struct kmem_cache *cache, uint32_t home, const struct object_array *array,
                        struct walk_slab_counts *counts)
{
        if (!array)
                return;
        ensure(array->available <= array->limit, NULL);
        for (uint32_t i = 0; i < array->available; i++) {
                struct page *slab = slab_of(cache, array->object[i]);
                uint32_t index = slab_index(cache, slab, array->object[i]);

                ensure(slab->node == home && index != NO_INDEX, slab);
                ensure(slab_is_used(cache, slab, index), slab);
                for (uint32_t j = 0; j < i; j++)
                        ensure(array->object[i] != array->object[j], slab);
        }
        counts->arrays += array->available;
}

void walk_slab_cache(struct kmem_cache *cache, struct walk_slab_counts *counts)
{
        *counts = (struct walk_slab_counts){0};
        for (uint32_t number = 0; number < system_nodes(); number++) {
                struct engine_node *node = &cache->node[number];
                struct slab_node *data = &slab_data(cache)->node[number];
                uint64_t free_objects;
                uint64_t slabs;

                free_objects = check_list(cache, number, &data->full, cache->objects,
                                          cache->objects, counts);
                free_objects +=
                        check_list(cache, number, &node->partial, 1, cache->objects - 1, counts);
                free_objects += check_list(cache, number, &data->free, 0, 0, counts);
                slabs = data->full.length + node->partial.length + data->free.length;
                ensure(data->free_objects == free_objects, NULL); /* SLAB-4 */
                ensure(node->slabs == slabs && node->objects == slabs * cache->objects, NULL);
                counts->above_limit |= data->free.length && free_objects > data->free_limit;
                counts->full += data->full.length;
                counts->partial += node->partial.length;
                counts->free += data->free.length;
                check_array(cache, number, data->shared, counts);
                for (uint32_t here = 0; here < system_nodes(); here++)
                        check_array(cache, number, slab_data(cache)->node[here].alien[number],
                                    counts);
        }
}
