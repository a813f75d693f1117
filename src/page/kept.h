/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Large blocks that were freed last, for the next requests of as many pages: who allocates and frees
 * blocks of one size again and again takes no zone's lock for it and changes no run.
 */
#ifndef KMEM_PAGE_KEPT_H
#define KMEM_PAGE_KEPT_H

#include "page/zone.h"

/* A kept block of @pages that is aligned to @align_pages, which is the caller's now; or NULL. */
KMEM_HIDDEN struct page *kept_take(size_t pages, size_t align_pages);
/*
 * Keeps a block of the caller's, whose kind is PAGE_UNUSED. Returns a block of *@pages that is to be
 * freed in its place, which may be the same; NULL if there is none.
 */
KMEM_HIDDEN struct page *kept_put(struct page *page, size_t *pages);
/* Frees what is kept of a zone's pages; false if that is nothing. */
KMEM_HIDDEN bool kept_free_locked(struct zone *zone);
/* Blocks that kept_take has returned, cumulative. */
KMEM_HIDDEN size_t kept_handed_out(void);

#endif
