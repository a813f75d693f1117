/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A further word for each page, for the owners of the objects in it, which few processes keep. The
 * table is address space until the first word is wanted.
 *
 * A word is 0, or the address of a metadata block that begins with its size in eight bytes, or an
 * odd number. When pages stop being a slab's, their blocks are freed (page_map_set).
 */
#ifndef KMEM_PAGE_EXTRA_H
#define KMEM_PAGE_EXTRA_H

#include "page/page.h"

/* Makes the table grow; nothing is taken under it. */
extern KMEM_HIDDEN struct lock extra_lock;

/* Both are written under extra_lock; pages (release) after table. */
extern KMEM_HIDDEN uintptr_t *extra_table;
extern KMEM_HIDDEN uint32_t extra_pages; /* pages the table is accessible for */

/* The word of a page; NULL if it was never wanted, and is 0 therefore. */
static inline uintptr_t *page_extra(uint32_t number)
{
        return number < load_acquire(&extra_pages) ? &extra_table[number] : NULL;
}

/* The word of a page, to write to; NULL without memory. */
KMEM_HIDDEN uintptr_t *page_extra_make(uint32_t number);

/* The heap will never have more than @pages. */
KMEM_HIDDEN void page_extras_fit(size_t pages);

/*
 * Address space that is kept for words, of which the part without access no longer counts as
 * locked.
 */
KMEM_HIDDEN size_t page_extras_reserved_bytes(void);
KMEM_HIDDEN void page_extras_unlock(void);

/* Frees the blocks of @count pages from @first on, which no thread uses any more. */
KMEM_HIDDEN void page_extras_drop(uint32_t first, size_t count);

#endif
