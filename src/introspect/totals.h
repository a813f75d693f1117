/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Figures of caches and of the whole heap, for every way of showing them. They are exact while no
 * thread allocates. While threads do, they are sums of parts that were read in turn, but never
 * below zero.
 */
#ifndef KMEM_INTROSPECT_TOTALS_H
#define KMEM_INTROSPECT_TOTALS_H

#include "engines/hardened/hardened.h"
#include "heap/heap.h"
#include "page/large.h"

struct cache_totals {
        struct engine_report report;
        struct engine_node_report nodes; /* the sum of its nodes */
        uint64_t resting;                /* free objects in sheaves */
        uint64_t inuse;                  /* objects the program holds */
};

struct heap_totals {
        struct page_counts pages;
        struct large_counts large;
        struct hardened_counts hardened; /* with protect=hardened; a part of the figures below */
        uint64_t objects_inuse;
        uint64_t objects_free;       /* in slabs and sheaves */
        uint64_t resting;            /* the part of objects_free in sheaves */
        uint64_t objects_taken;      /* objects that left slabs since the start */
        uint64_t bytes_inuse;        /* objects, by stride, and large blocks */
        uint64_t bytes_free;         /* free objects, by stride */
        uint64_t object_bytes_inuse; /* without large blocks */
        uint64_t slabs;
        uint64_t caches;
};

/*
 * Active objects as the kernel counts them (S9-11, S6-70): also free objects in CPU slabs, arrays
 * and lists.
 */
static inline uint64_t active_objects(const struct engine_node_report *nodes)
{
        return nodes->objects - min_of(nodes->listed_free, nodes->objects);
}

KMEM_HIDDEN void cache_total(struct kmem_cache *cache, struct cache_totals *totals);
/*
 * Bytes of parts of the cache's slabs in which no object is in use; of a back end with free_parts
 * (engine.h). With @in_sheaves, objects smaller than a page that rest in sheaves are not in use,
 * as far as marks tell (percpu/freed.h). Under cache_mutex.
 */
KMEM_HIDDEN size_t cache_free_parts(struct kmem_cache *cache, size_t part_bytes, bool due_only,
                                    bool in_sheaves);
KMEM_HIDDEN void heap_total(struct heap_totals *totals);

#endif
