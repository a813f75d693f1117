/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Giving memory back that the program has freed: by degrees while it sleeps, or at once.
 */
#ifndef KMEM_HEAP_RECLAIM_H
#define KMEM_HEAP_RECLAIM_H

#include "lang/compiler.h"

/*
 * One of the looks that the reclaim thread makes, at @now_ms. False if there was nothing to give back
 * and nobody has used the heap since the last look, as far as can be seen. One caller at a time.
 */
KMEM_HIDDEN bool reclaim_step(uint64_t now_ms);

/*
 * Empties all sheaves, frees empty slabs, and gives free pages back to the system but for @keep
 * bytes of those that lie in no slab. Returns bytes given back.
 */
KMEM_HIDDEN size_t heap_trim(size_t keep);
/*
 * The same without a look at the CPUs, which reads files, and without the free pages. Under
 * cache_mutex.
 */
KMEM_HIDDEN size_t caches_trim_locked(void);

/* reclaim_thread.c: settles whether there may be a thread; early, after the options. */
KMEM_HIDDEN void reclaim_thread_init(void);

/*
 * Ends the reclaim thread if there is one, for which it waits up to a second, mostly to its next look.
 * None starts before reclaim_thread_allow, which the caller owes; false if that cannot be had.
 */
KMEM_HIDDEN bool reclaim_thread_stop(void);
KMEM_HIDDEN void reclaim_thread_allow(void);
/* False only if there is none, and nobody starts one. */
KMEM_HIDDEN bool reclaim_thread_is_there(void);

#endif
