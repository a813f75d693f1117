/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What calloc writes of a block above 256 KiB.
 *
 * Programs use such blocks in two ways. A table that stays sparse should not have its pages written for it.
 * In a block that becomes full, a page that is read before it is written costs two faults, and the second
 * one stops the other CPUs to replace the system's page of zeros. So calloc looks at the blocks of about
 * this size that it gave last: if the program has written to them everywhere, the next one is written as
 * a whole, and if not, pages that read as zero are left alone.
 */
#ifndef KMEM_PAGE_CLEARED_H
#define KMEM_PAGE_CLEARED_H

#include "page/page.h"

/* Bytes of the longest block that calloc writes as a whole, whatever the program did before. */
enum { WRITTEN_MOST = 256 << 10 };

/*
 * Whether the last blocks of about so many bytes, at least half of them, were filled. False at other
 * sizes than above WRITTEN_MOST up to 32 MiB, and in a process that may be in a sandbox.
 */
KMEM_HIDDEN bool cleared_are_filled(size_t bytes);
/* calloc gives out this block of whole pages, all of it @written or not: it may be looked at from now on. */
KMEM_HIDDEN void cleared_given(void *block, size_t bytes, bool written);
/* The program frees a block of so many bytes, of calloc or not, whose pages are still as it left them. */
KMEM_HIDDEN void cleared_freed(const void *block, size_t bytes);
/* The block is about to have so many bytes in place, or to be moved if there is no room. */
KMEM_HIDDEN void cleared_resized(const void *block, size_t old_bytes, size_t bytes);
/* Writes zeros to the whole pages from @start that do not read as zero. */
KMEM_HIDDEN void cleared_make_zero(void *start, size_t pages);

#endif
