/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Barns: the sheaves of a cache that no slot holds (S13-02), a barn for each NUMA node, each under
 * its own lock; and the making of sheaves. A CPU puts a sheaf into the barn of its own node, also
 * if objects in it are of other nodes.
 */
#ifndef KMEM_PERCPU_BARN_H
#define KMEM_PERCPU_BARN_H

#include "percpu/slot.h"

enum { BARN_EMPTY_MAX = 10 };

struct barn {
        struct lock lock;
        struct sheaf *full; /* sheaves with objects, newest first */
        struct sheaf *empty;
        uint32_t full_size; /* lengths of the lists; read without the lock as hints */
        uint32_t empty_size;
        uint32_t full_max;     /* with many slots (barn_full_max) */
        uint32_t full_max_few; /* with up to few_slots */
        uint32_t few_slots;
        uint32_t empty_max;
        uint32_t full_low; /* the least full_size since barn_mark_low */
} __attribute__((aligned(64)));

/* The barn of the CPU that the caller runs on. */
static inline struct barn *barn_here(struct kmem_cache *cache)
{
        return &cache->barn[system_current_node()];
}

/* Makes the barns of all nodes; NULL without memory. */
KMEM_HIDDEN struct barn *barns_new(void);
KMEM_HIDDEN void barns_free(struct barn *barns);

/*
 * Full sheaves that the barn keeps now. A barn passes sheaves from slots with too many to slots
 * with none. A single slot needs no barn beside its stock, nor do few slots of small objects, which
 * find each other's stocks; more sheaves here would be memory that other caches lack. A kernel's
 * barn has a single limit (S13-02).
 */
static inline uint32_t barn_full_max(const struct barn *barn)
{
        return load_relaxed(slots_made_count() > load_relaxed(&barn->few_slots)
                                    ? &barn->full_max
                                    : &barn->full_max_few);
}

/* Whether the barn would keep another full sheaf; stale by the time it is said. */
static inline bool barn_has_room(const struct barn *barn)
{
        return load_relaxed(&barn->full_size) < barn_full_max(barn);
}

/* Lists of sheaves in barns and stocks, newest first, under their lock; @length is read without it as a hint. */
static inline struct sheaf *sheaves_pop(struct sheaf **list, uint32_t *length)
{
        struct sheaf *sheaf = *list;

        if (sheaf) {
                *list = sheaf->next;
                store_relaxed(length, *length - 1);
                sheaf->next = NULL;
        }
        return sheaf;
}

static inline void sheaves_push(struct sheaf **list, uint32_t *length, struct sheaf *sheaf)
{
        sheaf->next = *list;
        *list = sheaf;
        store_relaxed(length, *length + 1);
}

/* Bytes of a sheaf with this capacity. */
KMEM_HIDDEN size_t sheaf_bytes(const struct kmem_cache *cache, uint32_t capacity);
/* A new sheaf of the cache's capacity; NULL without memory, or if the capacity is 0 by now. */
KMEM_HIDDEN struct sheaf *sheaf_new(struct kmem_cache *cache);
/* A sheaf without objects, from the barn of this node or new; NULL without memory. */
KMEM_HIDDEN struct sheaf *barn_take_empty(struct kmem_cache *cache);
/* Keeps an empty sheaf, or frees it if the barn is full or the cache's capacity has changed. */
KMEM_HIDDEN void barn_put_empty(struct kmem_cache *cache, struct sheaf *sheaf);
/* A sheaf with objects, or NULL. */
KMEM_HIDDEN struct sheaf *barn_take_full(struct barn *barn);
/* False if the barn is full. */
KMEM_HIDDEN bool barn_put_full(struct barn *barn, struct sheaf *sheaf);
/*
 * With option sheaf_rule=7.0: an empty sheaf of the caller's for a sheaf with objects, and the other
 * way round, in a single hold of the lock (S13-04, S13-05). NULL if the barn has none to give, or no
 * room for a full sheaf; then the caller still has its own.
 */
KMEM_HIDDEN struct sheaf *barn_exchange_empty(struct kmem_cache *cache, struct sheaf *empty);
KMEM_HIDDEN struct sheaf *barn_exchange_full(struct kmem_cache *cache, struct sheaf *full);
/* Any sheaf, full ones first, for emptying the barn. */
KMEM_HIDDEN struct sheaf *barn_take_any(struct barn *barn);
/*
 * A sheaf with objects that nobody has needed since barn_mark_low, or NULL. It comes from below the
 * low-water mark, which sinks by one sheaf.
 */
KMEM_HIDDEN struct sheaf *barn_take_surplus(struct barn *barn);
/* Starts the search for surplus anew: all sheaves count as surplus until somebody takes some. */
KMEM_HIDDEN void barn_mark_low(struct barn *barn);
KMEM_HIDDEN uint64_t barn_objects(struct barn *barn);

KMEM_HIDDEN void sheaf_free(struct kmem_cache *cache, struct sheaf *sheaf);

#endif
