/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Purging, as the other files of page/ and fork handlers see it.
 */
#ifndef KMEM_PAGE_PURGE_H
#define KMEM_PAGE_PURGE_H

#include "page/page.h"

/*
 * Held while blocks are off the free lists to be purged. Between huge lock and zone locks
 * in the lock order; fork handlers take it, so that no block vanishes in the child.
 */
extern KMEM_HIDDEN struct lock purge_lock;

/*
 * A large block has @fresh pages that were never touched: in a program of one thread free pages may go back to the system
 * in return (PURGE-1). No zone's lock is held.
 */
KMEM_HIDDEN void pages_purge_in_return(const struct page *block, size_t fresh);
/* Gives the pages of objects that rest in slots to the free ones, in a program of one thread; NULL: none rest. Relaxed. */
extern KMEM_HIDDEN void (*pages_end_rest)(void);

/* Returns when no purge that was under way is still under way; no zone's lock is held. */
KMEM_HIDDEN void purge_wait(void);

#endif
