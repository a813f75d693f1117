/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The mark of freed blocks, by which a second free is noticed wherever the block rests: in a sheaf of
 * any slot, a stock, a barn or a slab.
 *
 * Invariants:
 *  FREED-1  free, kfree and delete write FREED_MARK into the first word of an object of a size class
 *           (cache->marks_freed), and each call that hands out such an object clears the word. So the
 *           mark says "free", unless the program wrote these very bytes.
 *  FREED-2  The owner of the object alone writes the mark and clears it: before the commit of the
 *           push, and after the commit of the pop.
 *  FREED-3  A mark is a suspicion. The slow path empties the sheaves of the cache and asks the
 *           object's slab, which knows exactly (percpu_is_free).
 *
 * Objects of other caches may get the mark by kfree and keep it when they are handed out again;
 * caches that keep their objects are left alone (cache_keeps_objects). Blocks that are freed in bulk, wait
 * for a grace period, or belong to a closed cache have no mark. Two threads that free a block at
 * once may both find no mark.
 */
#ifndef KMEM_PERCPU_FREED_H
#define KMEM_PERCPU_FREED_H

#include "lang/atomic.h"

/* No address, no small number, not a number as a double; an instruction can hold it. */
#define FREED_MARK_NUMBER -0x2b5c3e19
#define FREED_MARK ((int64_t)FREED_MARK_NUMBER)

/* The program's own types wrote the word, and a wrong pointer may lie anywhere. */
typedef int64_t __attribute__((__may_alias__, __aligned__(1))) freed_word;

static inline bool freed_is_marked(const void *object)
{
        return load_folded((const freed_word *)object) == FREED_MARK;
}

static inline void freed_mark(void *object)
{
        store_relaxed((int64_t *)object, FREED_MARK);
}

static inline void freed_clear(void *object)
{
        store_relaxed((int64_t *)object, 0);
}

#endif
