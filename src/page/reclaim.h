/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Free paths ask here for a thread that gives memory back later, in case they never run again.
 */
#ifndef KMEM_PAGE_RECLAIM_H
#define KMEM_PAGE_RECLAIM_H

#include "lang/atomic.h"

/*
 * Whether a thread can be asked for, and none is at work already. The answering side writes it
 * (process/reclaim_thread.c); readers read it without order, because after a stale 0 the next free
 * asks.
 */
extern KMEM_HIDDEN uint32_t reclaim_wanted;
/* Constant once reclaim_wanted has been 1 (release). */
extern KMEM_HIDDEN void (*reclaim_start)(void);

/*
 * Called on slow paths that free memory. The caller holds no lock that the answer needs; the call
 * allocates nothing and keeps errno.
 */
static inline void reclaim_ask(void)
{
        if (unlikely(load_acquire(&reclaim_wanted)))
                reclaim_start();
}

#endif
