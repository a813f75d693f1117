/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Functions; test_inline.py counts their instructions. */
#include <kmem-inline.h>

void *hit_alloc(struct kmem_cache *cache);
void hit_free(struct kmem_cache *cache, void *object);
void hit_pair(struct kmem_cache *cache);

void *hit_alloc(struct kmem_cache *cache)
{
        return kmem_cache_alloc_inline(cache, GFP_KERNEL);
}

void hit_free(struct kmem_cache *cache, void *object)
{
        kmem_cache_free_inline(cache, object);
}

void hit_pair(struct kmem_cache *cache)
{
        struct kmem_view view = kmem_view_of(cache);

        kmem_view_free(view, kmem_view_alloc(view, GFP_KERNEL));
}
