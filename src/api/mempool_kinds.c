/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The allocators behind the usual pools (S8-28): caches, kmalloc, and pages. Pages can also be had
 * without a pool.
 */
#include "api/owner.h"

#include "machine/message.h"
#include "record/record.h"

#include <errno.h>
#include <string.h>

KMEM_PUBLIC void *mempool_alloc_slab(gfp_t flags, void *pool_data)
{
        return kmem_cache_alloc(pool_data, flags);
}

KMEM_PUBLIC void mempool_free_slab(void *element, void *pool_data)
{
        kmem_cache_free(pool_data, element);
}

KMEM_PUBLIC void *mempool_kmalloc(gfp_t flags, void *pool_data)
{
        return kmalloc((size_t)pool_data, flags);
}

KMEM_PUBLIC void mempool_kfree(void *element, void *pool_data)
{
        kfree(element);
}

KMEM_PUBLIC void *mempool_alloc_pages(gfp_t flags, void *pool_data)
{
        return kmem_pages_alloc(flags, (unsigned int)(uintptr_t)pool_data);
}

KMEM_PUBLIC void mempool_free_pages(void *element, void *pool_data)
{
        kfree(element);
}

KMEM_PUBLIC void *kmem_pages_alloc(gfp_t flags, unsigned int order)
{
        size_t bytes;
        void *block;

        if (order > ORDER_MAX) {
                errno = EINVAL;
                return NULL;
        }
        bytes = order_bytes(order);
        block = owner_block_alloc_aligned(bytes, bytes, flags & __GFP_ACCOUNT, CALL_SITE);
        if (unlikely(!block)) {
                if (flags & __GFP_NOFAIL)
                        message_fatal("kmem_pages_alloc(order %u): out of memory with __GFP_NOFAIL",
                                      order);
                errno = ENOMEM;
        } else if (flags & __GFP_ZERO) {
                memset(block, 0, bytes);
        }
        return block;
}
