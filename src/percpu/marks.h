/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Where among the objects in sheaves samples lie (docs/decisions/0016-profiles.md).
 *
 * Each object that leaves the back end is a sample with probability p, and then stays there after all: a
 * mark, NULL, lies in the sheaf in its place. An allocation that comes to a mark gets an object of
 * profile/sample.h; the free of that leaves a mark where it would leave the object; and marks that come
 * to the back end vanish. So at any time each object that the program has is a sample with
 * probability p, whatever the order of its allocations and frees, and no fast path knows of it.
 *
 *  MARK-1  Main has no marks: pop and push do not look for them. A sheaf with marks becomes main only as
 *          the part above its topmost mark; the rest is the spare then, so that main runs empty where
 *          the mark is.
 *  MARK-2  The pointer to a spare that may have marks has its lowest bit set. take_turns gives up at
 *          such a pointer, and a thread that has read the pair before it was set finds another pair
 *          when it commits. So no spare with marks becomes main by mistake.
 *  MARK-3  Sheaves in stocks and barns, and those of slow paths, may have marks once marks_made is set,
 *          which comes before the first mark, and stays. Who got a sheaf after that, under a lock or
 *          by a commit, sees it.
 *  MARK-4  Only who owns a sheaf (INV-1) looks at its marks or changes them.
 */
#ifndef KMEM_PERCPU_MARKS_H
#define KMEM_PERCPU_MARKS_H

#include "percpu/slot.h"
#include "profile/sample.h"

extern KMEM_HIDDEN bool marks_made; /* some may exist; never cleared */

static inline bool marks_exist(void)
{
        return unlikely(load_acquire(&marks_made));
}

/*
 * Decides about objects that have just left the back end; those that are to be samples go back, and are
 * NULL then.
 */
KMEM_HIDDEN void marks_decide(struct kmem_cache *cache, struct slot_cache *record, void **objects,
                              unsigned int count);
/* The same for one that would go straight to the program: a sample in its place, or NULL. */
KMEM_HIDDEN void *marks_alloc_one(struct kmem_cache *cache);
/* A sample in the place of a mark; NULL if none can be had: then any object has to serve. */
KMEM_HIDDEN void *marks_sample(struct kmem_cache *cache);
/*
 * Puts samples in the place of marks, or other objects if there are none; returns how many objects there
 * are then, less than @count only without memory.
 */
KMEM_HIDDEN unsigned int marks_serve(struct kmem_cache *cache, struct slot_cache *record,
                                     void **objects, unsigned int count);
/*
 * Installs a private sheaf that has marks where @pair is, whose main is empty, or puts it away. False:
 * it has none, and nothing was done.
 */
KMEM_HIDDEN bool marks_split(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                             const struct pair *pair, struct sheaf *sheaf);
/*
 * A full main and a spare with marks that has room: fills the spare with the oldest of main, and puts
 * @object on top of that. False: the pair has changed, and nothing was done.
 */
KMEM_HIDDEN bool marks_merge(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                             const struct pair *pair, void *object);
/* A sample of the cache was freed: leaves a mark on top of the caller's slot. */
KMEM_HIDDEN void marks_put(struct kmem_cache *cache);
/* Takes the marks out of a private sheaf. */
KMEM_HIDDEN void marks_drop(struct sheaf *sheaf);
/* How many of the first @size entries are objects; for counts, also of sheaves of others. */
KMEM_HIDDEN uint32_t marks_count(const struct sheaf *sheaf, uint32_t size);

static inline uint32_t sheaf_count(const struct sheaf *sheaf, uint32_t size)
{
        return marks_exist() ? marks_count(sheaf, size) : size;
}

static inline uint32_t spare_count(const struct kmem_cache *cache, const struct pair *pair)
{
        return sheaf_count(spare_of(pair), sheaf_peek(cache, spare_of(pair)));
}

#endif
