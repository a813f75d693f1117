/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Gives memory back that the program has freed: by degrees while it sleeps, or at once. */
#ifndef KMEM_HEAP_RECLAIM_H
#define KMEM_HEAP_RECLAIM_H

#include "lang/compiler.h"

/*
 * Makes a look of the reclaim thread, at @now_ms. False if there was nothing to give back and
 * nobody seems to have used the heap since the last look. One caller at a time.
 */
KMEM_HIDDEN bool reclaim_step(uint64_t now_ms);

/*
 * Empties all sheaves, frees empty slabs, and gives free pages back to the system, but keeps @keep
 * bytes of the pages that lie in no slab. Returns bytes given back.
 */
KMEM_HIDDEN size_t heap_trim(size_t keep);
/*
 * heap_trim(0) without a look at the CPUs, which reads files. Under cache_mutex; a thread of ours
 * leaves hardened pools alone, as it cannot report what their checks find.
 */
KMEM_HIDDEN size_t heap_trim_locked(void);

/*
 * For a request that found no memory: takes back the free objects and pages that rest elsewhere.
 * True if that brought pages, or another thread was at it, so that it is worth while to try again
 * once. The caller may hold cache_mutex, but no lock behind it.
 */
KMEM_HIDDEN bool heap_regain(void);

/*
 * Bytes of the pages that the heap has from the system, those of blocks that were never written
 * too.
 */
KMEM_HIDDEN size_t heap_held_bytes(void);

/* reclaim_thread.c: decides whether there may be a thread; early, after the options. */
KMEM_HIDDEN void reclaim_thread_init(void);

/*
 * Ends the reclaim thread if there is one, and waits for it up to a second, mostly until its next
 * look. No thread starts before reclaim_thread_allow, which the caller has to call; false if the
 * thread cannot be stopped.
 */
KMEM_HIDDEN bool reclaim_thread_stop(void);
KMEM_HIDDEN void reclaim_thread_allow(void);
/* False only if there is no thread, and nobody is starting one. */
KMEM_HIDDEN bool reclaim_thread_is_there(void);

#endif
