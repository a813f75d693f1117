/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program with addresses of its own for the functions of the library: the library still
 * recognizes a pool of a cache's objects.
 */
#include "kmem.h"

#include <errno.h>
#include <stdio.h>

static void construct(void *object)
{
        *(int *)object = 1;
}

int main(void)
{
        struct kmem_cache *plain = kmem_cache_create("plain", 64, 0, 0, NULL);
        struct kmem_cache *constructed = kmem_cache_create("constructed", 64, 0, 0, construct);
        mempool_t *pool = mempool_create_slab_pool(2, plain);
        mempool_t *refused;

        errno = 0;
        refused = mempool_create_slab_pool(2, constructed);
        if (!pool || refused || errno != EINVAL) {
                fprintf(stderr, "pool %p, pool of constructed objects %p, errno %d\n", (void *)pool,
                        (void *)refused, errno);
                return 1;
        }
        mempool_destroy(pool);
        kmem_cache_destroy(plain);
        kmem_cache_destroy(constructed);
        return 0;
}
