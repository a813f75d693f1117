/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Requests that name a NUMA node (S8-20, S12-05). On a machine with one node, or for a node that
 * does not exist (S12-06), they are the plain calls.
 */
#include "heap/accounted.h"
#include "api/owner.h"

#include "engines/hardened/hardened.h"

#include <string.h>

/*
 * An object for a @node from node_wish(), cleared if the flags ask for it. NULL without memory, or
 * if a limit refuses, which sets *refused.
 */
static void *alloc_on_node(struct kmem_cache *cache, gfp_t flags, int node, const void *site,
                           bool *refused)
{
        void *object;

        *refused = false;
        object = cache_is_closed(cache) || wants_account(flags)
                         ? accounted_alloc(cache, flags, node, refused)
                         : percpu_alloc_on_node(cache, node, flags & __GFP_THISNODE);
        object = percpu_unmarked(cache, object);
        record_object(cache, object, site);
        if (object && flags & __GFP_ZERO)
                memset(object, 0, cache->object_size);
        return object;
}

KMEM_PUBLIC void *kmem_cache_alloc_node(struct kmem_cache *cache, gfp_t flags, int node)
{
        int wish = heap_is_foreign() ? NODE_ANY : node_wish(cache, node);
        bool refused;
        void *object;

        if (wish == NODE_ANY)
                return kmem_cache_alloc(cache, flags);
        cache_check(cache, "kmem_cache_alloc_node");
        object = alloc_on_node(cache, flags, wish, CALL_SITE, &refused);
        return likely(object) ? object : cache_alloc_failed(cache, flags);
}

KMEM_PUBLIC void *kmem_cache_alloc_lru(struct kmem_cache *cache, struct list_lru *lru, gfp_t flags)
{
        (void)lru;
        return kmem_cache_alloc(cache, flags);
}

/*
 * The cache that serves kmalloc of a size; NULL for large and hardened blocks, which have no wish for a node, or
 * without memory.
 */
static struct kmem_cache *kmalloc_cache(size_t size, gfp_t flags)
{
        if (!heap_ready() || size == 0 || size > class_bytes_max() || hardened_is_on())
                return NULL;
        return wants_account(flags) ? class_cache_accounted(size)
                                    : class_cache(CLASS_KMALLOC, size);
}

KMEM_PUBLIC void *kmalloc_node(size_t size, gfp_t flags, int node)
{
        struct kmem_cache *cache = node < 0 ? NULL : kmalloc_cache(size, flags);
        int wish = cache ? node_wish(cache, node) : NODE_ANY;
        bool refused;
        void *object;

        if (wish == NODE_ANY)
                return kmalloc(size, flags);
        object = alloc_on_node(cache, flags, wish, CALL_SITE, &refused);
        if (likely(object)) {
                block_set_request(object, size);
                return object;
        }
        /*
         * Without the node there may still be memory, as a large block; but not if a limit refused.
         */
        return refused || flags & __GFP_THISNODE ? cache_alloc_failed(cache, flags)
                                                 : kmalloc(size, flags);
}

KMEM_PUBLIC void *kzalloc_node(size_t size, gfp_t flags, int node)
{
        return kmalloc_node(size, flags | __GFP_ZERO, node);
}

KMEM_PUBLIC void *kmalloc_array_node(size_t count, size_t size, gfp_t flags, int node)
{
        size_t bytes;

        /* The product is too large; the plain call reports it. */
        if (unlikely(__builtin_mul_overflow(count, size, &bytes)))
                return kmalloc_array(count, size, flags);
        return kmalloc_node(bytes, flags, node);
}

KMEM_PUBLIC void *kcalloc_node(size_t count, size_t size, gfp_t flags, int node)
{
        return kmalloc_array_node(count, size, flags | __GFP_ZERO, node);
}
