/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Which objects are handed out, for option check=sheaf: a mark for each place where an object may
 * start, set when an object leaves for the program and cleared when it comes back. So a wrong free
 * is known at the call, wherever the first copy rests by then: in a sheaf of any slot, a stock, a
 * barn, an array or a slab.
 *
 * Invariants:
 *  HANDED-1  A mark is set exactly while the program has the object. The layer above sets and
 *            clears it (heap/accounted.c, heap/block.c). The per-CPU layer and the back ends know
 *            of no marks, so objects move between sheaves and slabs without them.
 *  HANDED-2  Checked caches are closed from their first object on (cache_is_closed), so no call can
 *            pass these places, not even a bulk or an inlined call. Debug caches and caches of
 *            engine slob have no sheaves; they check each free themselves and have no marks.
 *  HANDED-3  Set and clear are a single atomic step each. If several threads free an object at
 *            once, the first finds the mark, and the others report.
 *
 * A second free looks right if the object has been handed out again since the first.
 */
#ifndef KMEM_PERCPU_HANDED_H
#define KMEM_PERCPU_HANDED_H

#include "base/options.h"
#include "engines/engine.h"

/* Whether the objects of a cache, which its engine has set up, have marks. */
static inline bool cache_is_checked(const struct kmem_cache *cache)
{
        return unlikely(options.check == CHECK_SHEAF) && cache->engine->caching != CACHING_NONE;
}

/* For all three functions @object is an address in the heap. */

/* Marks an object that is about to be handed out; false without memory for the mark. */
KMEM_HIDDEN bool handed_mark(const void *object);
/* Clears the mark of an object that comes back; false if there was none. */
KMEM_HIDDEN bool handed_clear(const void *object);
KMEM_HIDDEN bool handed_is_marked(const void *object);

#endif
