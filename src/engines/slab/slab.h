/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A slab of the SLAB back end (S6), its free list, the lists of a node, and the locks that protect
 * them.
 *
 * A slab holds cache->objects objects, the first behind as many cache lines as its colour says
 * (S6-21). Its free list is a table of indexes: table[active .. objects) are the free objects, the
 * next to be handed out first (S6-10). The cache's placement says where the table lies (S6-12).
 *
 * Everything below changes under the list_lock of the slab's node; colour and node never
 * change once the page map leads to the slab.
 *
 * Invariants:
 *  SLAB-1  A slab is on the list that active says: 0 the free list, objects the full list, else
 *          the partial list. A slab that is on no list is private to its maker or its destroyer.
 *  SLAB-2  An object's in-use bit is set exactly while it is handed out, so active is the number
 *          of set bits, and table[active .. objects) holds each index with a clear bit once. Bits
 *          are kept outside the objects, so that a program's writes into free objects cannot change
 *          them.
 *  SLAB-3  With PLACE_OBJECT the table lies in the object table[objects - 1], which is free and
 *          the last to be handed out; then table is NULL. The first object that comes back to a
 *          full slab is the next holder.
 *  SLAB-4  free_objects of a node is the sum of objects - active over its slabs; `slabs` and
 *          `objects` in struct engine_node count all of them. Free slabs are ended while
 *          free_objects is above free_limit (S6-42); the pages of SLAB_TYPESAFE_BY_RCU slabs wait
 *          for a grace period (S8-30).
 *  SLAB-5  Objects in shared and alien arrays are handed out as far as their slab knows, and come
 *          back as far as the per-CPU layer knows.
 */
#ifndef KMEM_ENGINES_SLAB_SLAB_H
#define KMEM_ENGINES_SLAB_SLAB_H

#include "machine/message.h"
#include "base/metadata.h"
#include "engines/engine.h"
#include "kmem.h"

/* An entry has a byte with pages of up to 4 KiB (S6-11). */
#if PAGE_SHIFT <= 12
typedef uint8_t slab_entry;
#else
typedef uint16_t slab_entry;
#endif

enum {
        SLAB_OBJECTS_MAX = (slab_entry)-1, /* number of objects that a table entry can name */
        COLOUR_BYTES = 64,                 /* a colour counts lines of this size, at most UINT16_MAX
                                              lines */
        INLINE_BITS = 64,                  /* in-use bits that fit the descriptor's state word */
        NO_INDEX = 0xffff,
        ALIEN_LIMIT = 12, /* objects of an alien array at most (S6-44) */
};

enum slab_placement {
        PLACE_OBJECT,   /* inside a free object of the slab */
        PLACE_OFF_SLAB, /* in metadata */
        PLACE_ON_SLAB,  /* at the end of the slab */
};

/*
 * A stack of free objects that belongs to a node, newest at the end (S6-01): shared, under the
 * node's list_lock, or alien, under its own lock.
 */
struct object_array {
        struct lock lock;
        uint32_t available; /* object[0 .. available); read without the lock as a hint */
        uint32_t limit;     /* constant; read without the lock too */
        bool touched;       /* set on use, cleared by the reaper */
        void *object[];
};

/* The engine's record of a node beside struct engine_node; under the node's list_lock. */
struct slab_node {
        struct page_list full;
        struct page_list free;
        uint64_t free_objects; /* in slabs; read without the lock as a hint */
        uint64_t free_limit;   /* free objects that the node keeps at most (S6-43) */
        uint64_t refused;      /* objects that came from arrays but were wrong */
        uint64_t reap_time;    /* ms, when shared array and free slabs are looked at next */
        uint32_t colour_next;  /* colour of the slab made last; races are harmless */
        uint32_t reap_alien;   /* alien array to be drained next */
        bool free_touched;     /* a request had to look at the free list since the last reaping */
        struct object_array *shared;           /* the array between the node's CPUs, or NULL */
        struct object_array *alien[NODES_MAX]; /* for objects of other nodes, freed on this node */
};

/* engine_data of a cache; constant except the nodes. */
struct slab_cache {
        enum slab_placement placement;
        uint32_t colours;                 /* number of different first offsets; 0 and 1 mean a
                                             single offset */
        uint32_t colour_lines;            /* distance of two colours, in COLOUR_BYTES */
        struct slab_node node[NODES_MAX]; /* only the first system_nodes() are there */
};

static inline size_t slab_data_bytes(void)
{
        return offsetof(struct slab_cache, node) + system_nodes() * sizeof(struct slab_node);
}

static inline struct slab_cache *slab_data(const struct kmem_cache *cache)
{
        return cache->engine_data;
}

static inline size_t slab_bits_bytes(const struct kmem_cache *cache)
{
        return (cache->objects + 63) / 64 * sizeof(uint64_t);
}

/* The slab's in-use bits; a cache with few objects a slab keeps them in the descriptor. */
static inline uint64_t *slab_bits(const struct kmem_cache *cache, struct page *slab)
{
        return cache->objects <= INLINE_BITS ? &slab->state : (uint64_t *)(uintptr_t)slab->state;
}

static inline bool slab_is_used(const struct kmem_cache *cache, struct page *slab, uint32_t index)
{
        return bit_get(slab_bits(cache, slab), index);
}

static inline size_t slab_table_bytes(const struct kmem_cache *cache)
{
        return cache->objects * sizeof(slab_entry);
}

/* Bytes from the slab's start to its first object. */
static inline uint32_t slab_first_offset(const struct page *slab)
{
        return (uint32_t)load_relaxed(&slab->colour) * COLOUR_BYTES;
}

static inline void *slab_object(const struct kmem_cache *cache, const struct page *slab,
                                uint32_t index)
{
        return (char *)page_address(slab) + slab_first_offset(slab) + (size_t)index * cache->size;
}

/* The slab that holds an address of this cache's pages: slabs are aligned to their size. */
static inline struct page *slab_of(const struct kmem_cache *cache, const void *address)
{
        return page_at(address_page(address) & ~(uint32_t)(order_pages(cache->order) - 1));
}

/*
 * Index of the object at an address in the slab, or NO_INDEX if no object starts there. The
 * product is exact for multiples of size: reciprocal exceeds 2^40 / size by less than 1, and
 * a slab is far below 2^40 bytes. An address in front of the first object gives a huge offset.
 */
static inline uint32_t slab_index(const struct kmem_cache *cache, const struct page *slab,
                                  const void *address)
{
        uint64_t offset =
                (uintptr_t)address - (uintptr_t)page_address(slab) - slab_first_offset(slab);
        uint64_t index;

        if (unlikely(offset >= order_bytes(cache->order)))
                return NO_INDEX;
        index = (offset * cache->reciprocal) >> RECIPROCAL_SHIFT;
        if (unlikely(index * cache->size != offset || index >= cache->objects))
                return NO_INDEX;
        return (uint32_t)index;
}

/* layout.c */
KMEM_HIDDEN int slab_setup(struct kmem_cache *cache);
KMEM_HIDDEN void slab_data_free(struct kmem_cache *cache);
/* The free_limit of a node (S6-43). */
KMEM_HIDDEN uint64_t slab_free_limit(const struct kmem_cache *cache, uint32_t node);

/* tune.c: other values for batchcount and shared; 0, or ENOMEM and nothing has changed. */
KMEM_HIDDEN int slab_tune(struct kmem_cache *cache, uint32_t batchcount, uint32_t shared);

/*
 * node.c: objects in and out of slabs, slabs on and off lists; list_lock is held by callers of
 * *_locked
 */
KMEM_HIDDEN unsigned int slab_pop_objects(struct kmem_cache *cache, struct page *slab,
                                          void **objects, unsigned int count);
/* Drops the node's list_lock, under which its figures have changed, and shows these. */
KMEM_HIDDEN void slab_drop_node(struct kmem_cache *cache, uint32_t node);
KMEM_HIDDEN void slab_list_new_locked(struct kmem_cache *cache, struct page *slab);
KMEM_HIDDEN unsigned int node_pop_locked(struct kmem_cache *cache, uint32_t node, void **objects,
                                         unsigned int count);
KMEM_HIDDEN struct page *node_unlink_free_locked(struct kmem_cache *cache, uint32_t node);
KMEM_HIDDEN unsigned int node_push_locked(struct kmem_cache *cache, uint32_t node,
                                          void *const *objects, unsigned int count,
                                          uint32_t *doomed);

/* array.c: shared and alien arrays */
KMEM_HIDDEN struct object_array *object_array_new(uint32_t limit);
KMEM_HIDDEN void object_array_free(struct object_array *array);
KMEM_HIDDEN unsigned int shared_put_locked(struct slab_node *data, void *const *objects,
                                           unsigned int count);
KMEM_HIDDEN unsigned int shared_take_locked(struct slab_node *data, void **objects,
                                            unsigned int count);
KMEM_HIDDEN void shared_drain_locked(struct kmem_cache *cache, uint32_t node, unsigned int count,
                                     uint32_t *doomed);
KMEM_HIDDEN bool alien_put(struct kmem_cache *cache, uint32_t here, uint32_t home, void *object);
KMEM_HIDDEN void alien_drain(struct kmem_cache *cache, uint32_t here, uint32_t home);

/* grow.c: slabs come and go */
KMEM_HIDDEN struct page *slab_make(struct kmem_cache *cache, uint32_t node);
KMEM_HIDDEN void slab_end_all(struct kmem_cache *cache, uint32_t doomed);

/* take.c, give.c, reap.c: operations of the engine */
KMEM_HIDDEN uint32_t slab_local_node(void);
KMEM_HIDDEN unsigned int slab_take(struct kmem_cache *cache, struct engine_slot *slot,
                                   void **objects, unsigned int count);
KMEM_HIDDEN void *slab_take_on_node(struct kmem_cache *cache, struct engine_slot *slot, int node);
KMEM_HIDDEN unsigned int slab_give(struct kmem_cache *cache, struct engine_slot *slot,
                                   void **objects, unsigned int count);
KMEM_HIDDEN unsigned int slab_flush_count(struct kmem_cache *cache, unsigned int size,
                                          unsigned int wanted);
KMEM_HIDDEN void slab_flush(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                            unsigned int count);
KMEM_HIDDEN void slab_reap(struct kmem_cache *cache, uint64_t now_ms);
KMEM_HIDDEN bool slab_shrink(struct kmem_cache *cache);
KMEM_HIDDEN bool slab_teardown(struct kmem_cache *cache);

#endif
