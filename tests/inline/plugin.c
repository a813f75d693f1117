/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A shared library with inlined sequences; plugin_host.c closes it. */
#include <kmem-inline.h>

void run_pairs(struct kmem_cache *cache, unsigned int count);

void run_pairs(struct kmem_cache *cache, unsigned int count)
{
        for (unsigned int i = 0; i < count; i++)
                kmem_cache_free_inline(cache, kmem_cache_alloc_inline(cache, GFP_KERNEL));
}
