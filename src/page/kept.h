/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Large blocks that were freed last, for the next requests of as many pages. A thread that
 * allocates and frees blocks of equal size again and again so takes no zone's lock for them and
 * changes no run.
 */
#ifndef KMEM_PAGE_KEPT_H
#define KMEM_PAGE_KEPT_H

#include "page/zone.h"

/* A kept block of @pages, aligned to @align_pages, which now belongs to the caller; or NULL. */
KMEM_HIDDEN struct page *kept_take(size_t pages, size_t align_pages);
/*
 * Keeps the caller's block, of kind PAGE_UNUSED. Returns a block of *@pages that the caller must
 * free in its place, possibly the block it gave; NULL if there is none.
 */
KMEM_HIDDEN struct page *kept_put(struct page *page, size_t *pages);
/* Frees the kept blocks of a zone; false if it has none. */
KMEM_HIDDEN bool kept_free_locked(struct zone *zone);
/* Blocks that kept_take has returned, cumulative. */
KMEM_HIDDEN size_t kept_handed_out(void);

#endif
