/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Barns: a cache's sheaves that no slot holds (S13-02), a barn for each NUMA node, each under its own
 * lock; and the making of sheaves. A sheaf goes to the barn of the node whose CPU puts it there; the
 * objects in it may be of others.
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
        uint32_t full_max; /* with several slots (barn_full_max) */
        uint32_t full_low; /* the least full_size since barn_mark_low */
} __attribute__((aligned(64)));

/* Of the CPU that the caller runs on. */
static inline struct barn *barn_here(struct kmem_cache *cache)
{
        return &cache->barn[system_current_node()];
}

/* For all nodes. NULL without memory. */
KMEM_HIDDEN struct barn *barns_new(void);
KMEM_HIDDEN void barns_free(struct barn *barns);

/*
 * Full sheaves that the barn keeps now. It is for slots that have too many and slots that have none; where
 * there is one slot its stock does the same, and more here is memory that other caches lack.
 */
static inline uint32_t barn_full_max(const struct barn *barn)
{
        uint32_t full_max = load_relaxed(&barn->full_max);

        return slots_made_count() > 1 ? full_max : min_of(full_max, 1u);
}

/* Whether the barn would keep another full sheaf; stale by the time it is said. */
static inline bool barn_has_room(const struct barn *barn)
{
        return load_relaxed(&barn->full_size) < barn_full_max(barn);
}

/* A new sheaf of the cache's capacity; NULL without memory, or if that is 0 by now. */
KMEM_HIDDEN struct sheaf *sheaf_new(const struct kmem_cache *cache);
/* A sheaf without objects, from the barn of this node or new; NULL if there is none to be had. */
KMEM_HIDDEN struct sheaf *barn_take_empty(struct kmem_cache *cache);
/* Keeps an empty sheaf, or frees it, as one whose capacity is not the cache's any more. */
KMEM_HIDDEN void barn_put_empty(struct kmem_cache *cache, struct sheaf *sheaf);
/* A sheaf with objects, or NULL. */
KMEM_HIDDEN struct sheaf *barn_take_full(struct barn *barn);
/* False if the barn has its fill. */
KMEM_HIDDEN bool barn_put_full(struct barn *barn, struct sheaf *sheaf);
/* Any sheaf, full ones first, for emptying the barn. */
KMEM_HIDDEN struct sheaf *barn_take_any(struct barn *barn);
/*
 * Of the sheaves with objects that nobody has needed since barn_mark_low one, or NULL. What is taken
 * so lies below the low-water mark, which sinks with it.
 */
KMEM_HIDDEN struct sheaf *barn_take_surplus(struct barn *barn);
/* From now on: all that are there, until somebody takes some. */
KMEM_HIDDEN void barn_mark_low(struct barn *barn);
KMEM_HIDDEN uint64_t barn_objects(struct barn *barn);

KMEM_HIDDEN void sheaf_free(const struct kmem_cache *cache, struct sheaf *sheaf);

#endif
