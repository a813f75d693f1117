/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Names of the interface that the dynamic linker binds. Compiled by itself for the reason that
 * heap/bound.c gives.
 */
#include "api/owner.h"

const struct bound_names bound = {
        .calls = &kmem_heap_calls,
        .alloc_slab = mempool_alloc_slab,
        .alloc_pages = mempool_alloc_pages,
};
