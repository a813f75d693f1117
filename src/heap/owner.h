/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * One heap a process. libkmem.so and libkmem-malloc.so may both be loaded: a program linked with
 * libkmem.so may run under libkmem-malloc.so. Both export kmem_heap_owner, and the dynamic linker
 * binds every reference to the library that was loaded first. That library owns the heap; the other
 * starts none and passes each call on (api/owner.h).
 *
 * Only slow paths look: in the library without a heap no fast path ever hits.
 */
#ifndef KMEM_HEAP_OWNER_H
#define KMEM_HEAP_OWNER_H

#include "lang/compiler.h"

#include <stdbool.h>

struct heap_owner {
        const char *library; /* the address of its library's own_library */
};

/* The owner of this library, or of a library loaded before: only heap/bound.c may name it. */
extern KMEM_PUBLIC const struct heap_owner kmem_heap_owner;
/* Identifies this library by its address. */
extern KMEM_HIDDEN const char own_library;
/* The owner as the dynamic linker has bound it (heap/bound.c). */
extern KMEM_HIDDEN const struct heap_owner *const bound_heap_owner;

static inline bool heap_is_foreign(void)
{
        return bound_heap_owner->library != &own_library;
}

#endif
