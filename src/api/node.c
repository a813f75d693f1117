/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Requests that name a NUMA node (S8-20, S12-05). There is one node: a wish for another is a wish
 * for a node without memory, which is ignored (S12-06).
 */
#include "kmem.h"

#include "base/compiler.h"

KMEM_PUBLIC void *kmem_cache_alloc_node(struct kmem_cache *cache, gfp_t flags, int node)
{
        (void)node;
        return kmem_cache_alloc(cache, flags);
}

KMEM_PUBLIC void *kmem_cache_alloc_lru(struct kmem_cache *cache, struct list_lru *lru, gfp_t flags)
{
        (void)lru;
        return kmem_cache_alloc(cache, flags);
}

KMEM_PUBLIC void *kmalloc_node(size_t size, gfp_t flags, int node)
{
        (void)node;
        return kmalloc(size, flags);
}

KMEM_PUBLIC void *kzalloc_node(size_t size, gfp_t flags, int node)
{
        return kmalloc_node(size, flags | __GFP_ZERO, node);
}

KMEM_PUBLIC void *kmalloc_array_node(size_t count, size_t size, gfp_t flags, int node)
{
        (void)node;
        return kmalloc_array(count, size, flags);
}

KMEM_PUBLIC void *kcalloc_node(size_t count, size_t size, gfp_t flags, int node)
{
        return kmalloc_array_node(count, size, flags | __GFP_ZERO, node);
}
