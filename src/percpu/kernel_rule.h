/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The rule of Linux 7.0 for sheaves and barns (S13-02 to S13-08), option sheaf_rule=7.0: its sizes
 * and limits, no stock, an exchange of sheaves with the barn in a single hold of its lock, and
 * objects of other nodes go past the sheaves.
 */
#ifndef KMEM_PERCPU_KERNEL_RULE_H
#define KMEM_PERCPU_KERNEL_RULE_H

#include "percpu/slot.h"

enum { KERNEL_BARN_FULL_MAX = 10 };

/*
 * Whether a cache was made with the rule, so that other programs take no step for it. Relaxed: a
 * thread that frees an object of such a cache, or waits for it, has seen the cache being made.
 */
extern KMEM_HIDDEN bool kernel_rule_is_used;

/* Objects of a sheaf, if nobody asks for more (S13-03). */
KMEM_HIDDEN uint32_t kernel_capacity(const struct kmem_cache *cache);

/*
 * Whether frees of the cache have to look at the object's node. Such a cache is closed from the
 * start, because the fast path does not look.
 */
static inline bool looks_at_nodes(const struct kmem_cache *cache)
{
        return unlikely(cache->looks_at_nodes) && system_nodes() > 1 && cache->engine->node_of;
}

/*
 * Whether the object is of another node than the calling CPU, so that it passes the sheaves (S13-05).
 * A sample belongs to no node, nor does a pointer that is no object of the cache; the usual ways deal
 * with them.
 */
static inline bool object_is_remote(const struct kmem_cache *cache, const void *object)
{
        return heap_contains(object) &&
               load_relaxed(&heap.map[address_page(object)]) == cache->pair_offset &&
               cache->engine->node_of(cache, object) != (int)system_current_node();
}

/*
 * Gives objects of other nodes to their slabs, in pieces as the kernel does; returns how many are
 * left, at the front of the array (S13-08).
 */
KMEM_HIDDEN unsigned int give_remote(struct kmem_cache *cache, struct slot_cache *record,
                                     void **objects, unsigned int count);

#endif
