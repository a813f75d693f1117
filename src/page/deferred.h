/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Pages that RCU readers may still look at: they go back to the runs after a grace period
 * (S1-59, S8-30). Freeing never waits; slow paths that come by later do the rest.
 */
#ifndef KMEM_PAGE_DEFERRED_H
#define KMEM_PAGE_DEFERRED_H

#include "page/page.h"

extern KMEM_HIDDEN struct lock release_lock;
extern KMEM_HIDDEN struct lock deferred_lock; /* inside release_lock */
extern KMEM_HIDDEN size_t deferred_pages;     /* waiting; written under deferred_lock */

/*
 * As pages_free, but the content stays as it is until all readers have left the read sections that
 * began before this call. The caller's locks may be held.
 */
KMEM_HIDDEN void pages_free_deferred(struct page *page, size_t count);

KMEM_HIDDEN void pages_release_deferred_slow(void);

/* Frees the pages that have waited long enough. No lock may be held. */
static inline void pages_release_deferred(void)
{
        /* Relaxed: pages that this read misses are found by the next slow path. */
        if (unlikely(load_relaxed(&deferred_pages)))
                pages_release_deferred_slow();
}

/* Waits until all pages deferred before this call are free. Not in a read section. */
KMEM_HIDDEN void pages_wait_deferred(void);

#endif
