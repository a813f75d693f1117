/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Names that the dynamic linker binds, by which the library sees what the program or a library loaded
 * before sees under them. Nothing is defined here, and the file is compiled by itself where the rest is
 * optimised as a whole (-flto): to a compiler that has seen the definition the name means this
 * library's own, and a comparison or a call of it is decided when the library is built. The linker leaves
 * the names to the dynamic linker (src/meson.build).
 */
#include "heap/owner.h"

const struct bound_names bound = {
        .heap_owner = &kmem_heap_owner,
        .alloc_slab = mempool_alloc_slab,
        .alloc_pages = mempool_alloc_pages,
};
