/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Recording of the process's allocations and frees (option record=FILE), for `kmem record program`.
 *
 * All caches begin closed then (percpu.c), so that every call takes a slow path, which tells it
 * here; no flag is tested on the fast path.
 *
 * Invariants:
 *  RECORD-1  Numbers of events come from a single atomic counter, so they are a total order over
 *            all threads and processes, regardless of their clocks.
 *  RECORD-2  A free draws its number before another thread can get the block, and an allocation
 *            after it got the block. The counter's acquire and release order draw and hand-over: of
 *            two owners of an address, the first owner's free has the lower number.
 *
 * Sources: the design is ours; an event has the fields of the kernel's kmem tracepoints.
 */
#ifndef KMEM_RECORD_RECORD_H
#define KMEM_RECORD_RECORD_H

#include "lang/compiler.h"
#include "machine/lock.h"

struct record_event;

/* Set at the start of the heap, and never changed: a recording that ended only counts. */
extern KMEM_HIDDEN bool record_on;

static inline bool is_recording(void)
{
        return unlikely(record_on);
}

/* The address after the caller's call, if the caller is reached by a jump: the program's own. */
#define CALL_SITE __builtin_return_address(0)

/* Begins, as option record is set; single-threaded, after options_init. */
KMEM_HIDDEN void record_start(void);

/*
 * An allocation of @bytes that got a block of @given bytes; 0 if that is not known. @cache is an
 * index of a cache, 0 for memory by size. With @block NULL nothing is noted.
 */
KMEM_HIDDEN void record_alloc(const void *block, size_t bytes, size_t given, uint32_t cache,
                              const void *site);
KMEM_HIDDEN void record_free(const void *block, const void *site);
/*
 * A free in two steps, for callers that learn only afterwards whether a block was freed: the number
 * is drawn now. NULL if there is no space.
 */
KMEM_HIDDEN struct record_event *record_draw(void);
KMEM_HIDDEN void record_free_at(struct record_event *event, const void *block, const void *site);
/* No block was freed. */
KMEM_HIDDEN void record_void_at(struct record_event *event);

/* The name of a cache, before its first object. */
KMEM_HIDDEN void record_cache(uint32_t cache, const char *name);

/* Notes the mapped files and their addresses, for names of sites; at exit. */
KMEM_HIDDEN void record_maps(void);

KMEM_HIDDEN bool record_lock_free(void);
KMEM_HIDDEN void record_fork_each_lock(void (*change)(struct lock *lock));
/*
 * Before a fork, and in its child. A fork that comes from @within a call of ours, or within another
 * fork, is not recorded, and neither is its child.
 */
KMEM_HIDDEN void record_fork(bool within);
KMEM_HIDDEN void record_fork_child(bool within);

#endif
