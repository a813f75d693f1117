/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The places of samples among the objects in sheaves (docs/decisions/0016-profiles.md).
 *
 * Each object that leaves the back end is a sample with probability p. The object of a sample stays
 * in the back end: a mark, NULL, lies in the sheaf in its place. An allocation that comes to a mark
 * gets an object of profile/sample.h instead. The free of a sample leaves a mark where it would
 * leave an object, and a mark that comes to the back end vanishes. So at any time each object that
 * the program has is a sample with probability p, whatever the order of its allocations and frees,
 * and no fast path knows of it.
 *
 *  MARK-1  Main has no marks: pop and push do not look for them. Only the part of a sheaf above its
 *          topmost mark becomes main; the rest is the spare then, so that main runs empty where the
 *          mark is.
 *  MARK-2  The pointer to a spare that may have marks has its lowest bit set. percpu_take_turns gives up
 *          at a pointer with that bit, and a thread that has read the pair before it was set finds
 *          another pair when it commits. So no spare with marks becomes main by mistake.
 *  MARK-3  Sheaves in stocks and barns, and sheaves of slow paths, may have marks once marks_made
 *          is set. It is set before the first mark, and stays. A thread that got a sheaf after
 *          that, under a lock or by a commit, sees it.
 *  MARK-4  Only the owner of a sheaf (INV-1) looks at its marks or changes them.
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
 * Decides which objects, just taken from the back end, become samples. Their objects go back, and
 * NULL replaces them in the array.
 */
KMEM_HIDDEN void marks_decide(struct kmem_cache *cache, struct slot_cache *record, void **objects,
                              unsigned int count);
/*
 * Decides about an object that would go straight to the program: the result is a sample, or NULL if
 * the object itself is to serve.
 */
KMEM_HIDDEN void *marks_alloc_one(struct kmem_cache *cache);
/* A sample in the place of a mark; NULL if none can be had. Then any object has to serve. */
KMEM_HIDDEN void *marks_sample(struct kmem_cache *cache);
/*
 * Puts samples in the place of marks, or other objects if there are no samples. Returns the new
 * number of objects, less than @count only without memory.
 */
KMEM_HIDDEN unsigned int marks_serve(struct kmem_cache *cache, struct slot_cache *record,
                                     void **objects, unsigned int count);
/*
 * Installs a private sheaf that has marks in place of @pair, which has an empty main, or puts it
 * away. False: the sheaf has no marks, and nothing was done.
 */
KMEM_HIDDEN bool marks_split(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                             const struct pair *pair, struct sheaf *sheaf);
/*
 * Serves a free with a full main and a spare with marks that has room: fills the spare with the
 * oldest of main, and puts @object on top of main. False: the pair has changed, and nothing was
 * done.
 */
KMEM_HIDDEN bool marks_merge(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                             const struct pair *pair, void *object);
KMEM_HIDDEN bool guards_are_on_slow(const struct kmem_cache *cache);
/*
 * Whether objects of the cache are to be guarded (profile/guard.h). Guards are marks too, and the
 * marks of a profile come first: meanwhile no guards are made.
 */
static inline bool guards_are_on(const struct kmem_cache *cache)
{
        return unlikely(load_relaxed(&cache->guard_rate)) && guards_are_on_slow(cache);
}

/*
 * Guards are decided where a sheaf becomes main: each of its objects is guarded when it is popped,
 * with a chance of 1 / rate, whatever was decided about it before. So pops of the fast path count
 * in full, a live change takes effect at the next sheaf, and no object stays chosen for long.
 */

/*
 * Whether an object of the spare is to be guarded. Then the spare cannot simply become main; else
 * its objects are decided hereby.
 */
KMEM_HIDDEN bool marks_fall_in(struct kmem_cache *cache, struct slot_cache *record,
                               const struct pair *pair);
/*
 * Decides about the objects of a private sheaf and about @object, which was popped from it and may
 * be a mark. Returns @object, or NULL for a mark.
 */
KMEM_HIDDEN void *marks_decide_guards(struct kmem_cache *cache, struct slot_cache *record,
                                      struct sheaf *sheaf, void *object);
/*
 * Sheaves in which allocations and frees cancel out pass no slow path of their own. So from time to
 * time any slow path of the slot leaves a mark on top of one size class, and the next allocation of
 * that class here is guarded. An opening costs a guard, so the time between two of them, rate times
 * GATE_NS, bounds their cost.
 */
KMEM_HIDDEN void marks_gate_slow(struct slot *slot);

static inline void marks_gate(struct slot *slot)
{
        if (unlikely(load_relaxed(&guard_gate_rate)))
                marks_gate_slow(slot);
}

/* For an object that comes straight from the back end: a guarded one in its place, or NULL. */
KMEM_HIDDEN void *marks_guard_one(struct kmem_cache *cache, struct slot_cache *record);
/* A sample of the cache was freed: leaves a mark on top of the caller's slot. */
KMEM_HIDDEN void marks_put(struct kmem_cache *cache);
/* Takes the marks out of a private sheaf. */
KMEM_HIDDEN void marks_drop(struct sheaf *sheaf);
/*
 * How many of the first @size entries are objects. For counts; the sheaf may belong to another
 * thread.
 */
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
