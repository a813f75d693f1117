/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Where free paths ask for somebody who gives memory back later, when they may not come again.
 */
#ifndef KMEM_PAGE_RECLAIM_H
#define KMEM_PAGE_RECLAIM_H

#include "lang/atomic.h"

/*
 * Whether there is anybody to ask, and nobody is at it already. Written by whoever answers
 * (process/reclaim_thread.c), read without order: a stale 0 means that the next one asks.
 */
extern KMEM_HIDDEN uint32_t reclaim_wanted;
/* Constant once reclaim_wanted has been 1 (release). */
extern KMEM_HIDDEN void (*reclaim_start)(void);

/*
 * On slow paths that free memory. No lock that the answer needs may be held; it allocates nothing
 * and keeps errno.
 */
static inline void reclaim_ask(void)
{
        if (unlikely(load_acquire(&reclaim_wanted)))
                reclaim_start();
}

#endif
