/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The array that a refill fills, and how objects get there, with and without CPU slabs. */
#ifndef KMEM_ENGINES_SLUB_BATCH_H
#define KMEM_ENGINES_SLUB_BATCH_H

#include "engines/slub/slab.h"

/*
 * The array that the objects go to. It is filled from its end, so that a sheaf, popped from its
 * end, hands them out in the order in which they are taken here.
 */
struct batch {
        void **objects;
        unsigned int count; /* entries of the array */
        unsigned int room;  /* entries still free, at the front */
        uint32_t fresh;     /* new slabs that will all be used for it, page number of the first */
        bool is_first; /* the slot, with CPU slabs, has taken none of the cache's objects before */
};

/*
 * Takes from the list at @index until it ends or the batch is full; returns the rest of the list.
 */
static KMEM_ALWAYS_INLINE uint32_t batch_take_list(struct batch *batch,
                                                   const struct kmem_cache *cache,
                                                   const struct page *slab, bool narrow,
                                                   uint32_t index)
{
        char *start = page_address(slab);
        void *table = slab->table;
        uint32_t size = cache->size;
        unsigned int room = batch->room;
        void **objects = batch->objects;

        while (index != INDEX_END && room) {
                uint32_t next = table_next(table, narrow, index);

                table_set_next(table, narrow, index, INDEX_IN_USE);
                objects[--room] = start + (size_t)index * size;
                index = next;
        }
        batch->room = room;
        return index;
}

/* take.c: takes @count objects from @first on, which have never been handed out. */
KMEM_HIDDEN void batch_take_new(struct batch *batch, const struct kmem_cache *cache,
                                struct page *slab, uint32_t first, uint32_t count);

#endif
