/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Allocation with a charge: the slow paths of the public calls use it for closed caches, for
 * requests with __GFP_ACCOUNT, and for large blocks.
 *
 * The charge comes first, then the memory, so that a refusal touches no memory. Without memory the
 * charge is taken back. A request is accounted if it has __GFP_ACCOUNT or its cache has
 * SLAB_ACCOUNT, and the thread has a group (S11-02). Every other request is charged to the
 * process's group, if there is one.
 */
#ifndef KMEM_HEAP_ACCOUNTED_H
#define KMEM_HEAP_ACCOUNTED_H

#include "account/group.h"
#include "account/owners.h"
#include "heap/failslab.h"
#include "heap/heap.h"
#include "percpu/kernel_rule.h"
#include "percpu/rest.h"
#include "record/record.h"

/* Whether a request with these flags has to leave the fast path to be charged. */
static inline bool wants_account(gfp_t flags)
{
        return unlikely(flags & __GFP_ACCOUNT) && group_current();
}

/*
 * The node that a request shall be served from: the caller's @node in the kernel's numbers.
 * NODE_ANY if @node is no number, if there is no node of that number (S12-06), or if the back end
 * knows no nodes.
 */
static inline int node_wish(const struct kmem_cache *cache, int node)
{
        if (system_nodes() == 1 || !cache->engine->take_on_node)
                return NODE_ANY;
        return system_find_node(node);
}

/*
 * Whether a failed request was probably refused by a limit, which the group counts, or by option
 * failslab, which reports it. Then nobody else reports it.
 */
static inline bool is_limited(void)
{
        return process_group || group_current() || failslab_is_on();
}

/*
 * An object of a closed cache, or of an open cache if wants_account(flags), which closes it. @node
 * is a result of node_wish(). NULL without memory, or if a limit or option failslab refuses, which
 * sets *refused.
 */
KMEM_HIDDEN void *accounted_alloc(struct kmem_cache *cache, gfp_t flags, int node, bool *refused);
/* engine->alloc_bytes with the charge; flags as for accounted_large_alloc. */
KMEM_HIDDEN void *accounted_alloc_bytes(struct kmem_cache *cache, size_t size, size_t align,
                                        gfp_t flags);
/* All @count objects, or none and false. A recording has them even if they were taken in vain. */
KMEM_HIDDEN bool accounted_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t count,
                                      void **objects, const void *site);

/*
 * Uncharges an object of a closed cache and pushes it onto its sheaf; false if percpu_free_slow has
 * to do the rest.
 */
static inline bool accounted_free_fast(struct kmem_cache *cache, void *object)
{
        owner_forget(cache, object);
        /* The slow path knows whether a block of pages may rest (REST-1). */
        if (cache_is_of_pages(cache) || (looks_at_nodes(cache) && object_is_remote(cache, object)))
                return false;
        if (!percpu_free_fast(sheaf_offset(cache), object))
                return false;
        count_sheaf_events(cache, FREE_FASTPATH, 1);
        return true;
}

/* Notes, for a recording, an object that a cache hands out. */
static inline void record_object(const struct kmem_cache *cache, const void *object,
                                 const void *site)
{
        if (is_recording())
                record_alloc(object, cache->object_size, cache->object_size, cache_index(cache),
                             site);
}

/* large_alloc, large_free and large_resize with the charge; flags: __GFP_ZERO, __GFP_ACCOUNT. */
KMEM_HIDDEN void *accounted_large_alloc(size_t bytes, size_t align, gfp_t flags);
KMEM_HIDDEN bool accounted_large_free(void *block);
KMEM_HIDDEN void *accounted_large_resize(void *block, size_t bytes);

#endif
