/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Names of the interface as the dynamic linker binds them. The file is compiled by itself, for the
 * reason in heap/bound.c.
 */
#include "api/owner.h"

const struct bound_names bound = {
        .calls = &kmem_heap_calls,
        .alloc_slab = mempool_alloc_slab,
        .alloc_pages = mempool_alloc_pages,
};
