/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Each public header stands alone, before anything else, in strict C. */
#include KMEM_HEADER
#include "kmem.h"

int header_compiles(void);

/* The macros' replacements are strict C, too. */
int header_compiles(void)
{
        struct kmem_cache *five = kmem_cache_create("five", 8, 0, 0, NULL);
        struct kmem_cache *four = kmem_cache_create("four", 8, NULL, 0);

        kfree_rcu(kmem_cache_alloc(five, GFP_KERNEL));
        return four && ZERO_OR_NULL_PTR(ZERO_SIZE_PTR);
}
