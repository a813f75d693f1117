/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Fresh objects: those of a size class that nobody has had since their pages last read as zero. malloc
 * does not touch their memory. There is no mark to clear (percpu/freed.h), and the write that clears it
 * would be the first to its page: a fault, which is the program's to take, or not to take.
 *
 *  FRESH-1  A fresh object rests with FRESH_BIT in its pointer. The back end sets it where it carves the
 *           object out of a slab of pages that were never touched (batch_take_new).
 *  FRESH-2  No program sees the bit. percpu_alloc_class and percpu_unmarked take it off an object that
 *           leaves for a program, and objects_give and marks_decide take it off one that goes back to its slab.
 *
 *  FRESH-3  The slab says whether its pages were touched (struct page, fresh). slab_make writes that
 *           before another thread can find the slab, and the slot that carves the slab reads it.
 *
 * Sheaves, stocks and barns move such pointers as any others. An object that went back to its slab is
 * fresh no more, though nobody has touched it.
 */
#ifndef KMEM_ENGINES_FRESH_H
#define KMEM_ENGINES_FRESH_H

#include <stdbool.h>
#include <stdint.h>

/* The sign, which no address of a program has. */
#define FRESH_BIT ((uintptr_t)1 << 63)

static inline bool object_is_fresh(const void *object)
{
        return (intptr_t)object < 0;
}

static inline void *object_without_fresh(void *object)
{
        return (void *)((uintptr_t)object & ~FRESH_BIT);
}

#endif
