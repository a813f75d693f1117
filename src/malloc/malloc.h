/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The common part of the drop-in's files. */
#ifndef KMEM_MALLOC_MALLOC_H
#define KMEM_MALLOC_MALLOC_H

#include "api/owner.h"

enum { MALLOC_ALIGN_BYTES = 16 };

/* The pair offset of the class that serves @size, from 1 byte to the limit of malloc_fast. */
static KMEM_ALWAYS_INLINE uint16_t malloc_class(size_t size)
{
        return load_folded(&front()->malloc_class[(size - 1) >> CLASS_STEP_SHIFT]);
}

/*
 * A malloc by the fast path; @limit is fast.malloc_limit or 0. Size 0 wraps around and takes the
 * slow path, as do sizes above @limit. The limit may be read behind the map, unlike kmalloc's: libc
 * allocates before it makes a second thread, so the heap is up then.
 */
static KMEM_ALWAYS_INLINE void *malloc_fast(size_t size, size_t limit)
{
        load_for_pop();
        if (unlikely(size - 1 >= limit))
                return NULL;
        return percpu_alloc_class(malloc_class(size));
}

/*
 * The slow halves of malloc. Wrappers jump to malloc_slow, so its return address is the program's
 * call site. A wrapper that cannot jump passes the call site to malloc_slow_at.
 */
KMEM_HIDDEN void *malloc_slow(size_t size);
KMEM_HIDDEN void *malloc_slow_at(size_t size, const void *site);
/* malloc_slow_at for operator new. */
KMEM_HIDDEN void *new_slow_at(size_t size, const void *site);
/* The C++ operators that other operators call. */
struct operators {
        void *(*plain_new)(size_t size);
        void (*plain_delete)(void *object);
        void (*array_delete)(void *object);
};
extern KMEM_HIDDEN const struct operators operators_used;
/* @align: a power of two. NULL with ENOMEM. */
KMEM_HIDDEN void *malloc_aligned(size_t align, size_t size, const void *site);

#endif
