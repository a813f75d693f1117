/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The owner of the heap as the dynamic linker binds its name, by which the library sees whether
 * another library was loaded before. Nothing is defined here. The file is compiled by itself where
 * the rest is optimised as a whole (-flto): a compiler that sees the definition takes the name for
 * this library's own, and decides the comparison when the library is built. The linker leaves the
 * name to the dynamic linker (src/meson.build).
 */
#include "heap/owner.h"

const struct heap_owner *const bound_heap_owner = &kmem_heap_owner;
