/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Slabs come and go (S6-12, S6-21, S6-32). No lock may be held while a slab is made, because
 * constructors may allocate, nor may list_lock while a slab is ended.
 */
#include "engines/slab/slab.h"

#include "machine/probe.h"
#include "page/deferred.h"

/* The table of a new slab: every object free, ascending (S6-10). */
static void table_fill(slab_entry *table, uint32_t objects)
{
        for (uint32_t index = 0; index < objects; index++)
                table[index] = (slab_entry)index;
}

/*
 * Colours come in the order 1, 2, .. and at the end 0 (S6-21). Two threads that race may make slabs
 * of equal colour.
 */
static uint32_t next_colour(struct slab_cache *data, uint32_t node)
{
        uint32_t colour = load_relaxed(&data->node[node].colour_next) + 1;

        if (colour >= data->colours)
                colour = 0;
        store_relaxed(&data->node[node].colour_next, colour);
        return colour;
}

/* Memory for the data that the slab keeps outside itself; false without memory. */
static bool slab_make_metadata(struct kmem_cache *cache, struct page *slab)
{
        if (cache->objects > INLINE_BITS) {
                slab->state = (uintptr_t)metadata_alloc(slab_bits_bytes(cache));
                if (!slab->state)
                        return false;
        }
        if (slab_data(cache)->placement == PLACE_OFF_SLAB) {
                slab->table = metadata_alloc(slab_table_bytes(cache));
                if (!slab->table)
                        return false;
        }
        return true;
}

/*
 * Gives the slab's memory back; its page map entries are 0 again. Pages of type-safe slabs wait
 * for a grace period (S8-30); readers never see the data that the slab keeps outside itself.
 */
static void slab_release(struct kmem_cache *cache, struct page *slab)
{
        if (cache->objects > INLINE_BITS)
                metadata_free((void *)(uintptr_t)slab->state, slab_bits_bytes(cache));
        if (slab_data(cache)->placement == PLACE_OFF_SLAB)
                metadata_free(slab->table, slab_table_bytes(cache));
        slab->state = 0;
        slab->table = NULL;
        slab->active = 0;
        slab->colour = 0;
        store_relaxed(&slab->kind, (uint8_t)PAGE_UNUSED);
        if (cache->flags & SLAB_TYPESAFE_BY_RCU)
                pages_free_deferred(slab, order_pages(cache->order));
        else
                pages_free(slab, order_pages(cache->order));
}

/*
 * A slab on exactly this node (S6-32), with all its objects free and constructed, on no list yet
 * and in no count; NULL without memory there. No other thread can see it, except a thread that
 * looks up a bad pointer.
 */
struct page *slab_make(struct kmem_cache *cache, uint32_t node)
{
        struct slab_cache *data = slab_data(cache);
        struct page *slab;

        pages_release_deferred();
        slab = pages_alloc(cache->order, (int)node, NULL);
        if (!slab)
                return NULL;
        slab->next = 0;
        slab->prev = 0;
        slab->active = 0;
        if (!slab_make_metadata(cache, slab)) {
                slab_release(cache, slab);
                return NULL;
        }
        store_relaxed(&slab->colour, (uint16_t)(next_colour(data, node) * data->colour_lines));
        if (data->placement == PLACE_OBJECT)
                slab->table = slab_object(cache, slab, cache->objects - 1);
        else if (data->placement == PLACE_ON_SLAB)
                slab->table = (char *)page_address(slab) + order_bytes(cache->order) -
                              slab_table_bytes(cache);
        table_fill(slab->table, cache->objects);
        for (uint32_t index = 0; cache->ctor && index < cache->objects; index++)
                cache->ctor(slab_object(cache, slab, index));
        /* Release: pairs with the acquire in large_page, when a bad pointer is looked up. */
        store_release(&slab->kind, (uint8_t)PAGE_SLAB);
        /* From here on free finds the cache by the page map. */
        page_map_set(slab, order_pages(cache->order), (uint16_t)cache->pair_offset);
        PROBE4(slab_alloc, cache->name, page_address(slab), cache->objects,
               order_bytes(cache->order));
        return slab;
}

/* Ends slabs that have been unlinked, chained through next. */
void slab_end_all(struct kmem_cache *cache, uint32_t doomed)
{
        while (doomed) {
                struct page *slab = page_at(doomed);

                doomed = slab->next;
                slab->next = 0;
                check_or_die(slab->active == 0);
                PROBE4(slab_free, cache->name, page_address(slab), cache->objects,
                       order_bytes(cache->order));
                slab_release(cache, slab);
        }
        pages_release_deferred();
}
