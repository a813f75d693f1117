/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Large blocks: whole pages for an allocation. Below 32 MiB they come from the heap, at their exact
 * number of pages; freed blocks go back to the runs, where they are reused before fresh memory and
 * purged after a delay. From 32 MiB on, or when the reservation is used up, they are mappings of
 * their own (but see pages_limit_was_lowered), found by address in a locked table ("huge"); a few
 * freed huge mappings are kept for reuse within a bound.
 *
 * Every returned address is the start of its block, aligned to a page at least.
 */
#ifndef KMEM_PAGE_LARGE_H
#define KMEM_PAGE_LARGE_H

#include "page/page.h"

#define HUGE_BYTES ((size_t)32 << 20)

extern KMEM_HIDDEN struct lock huge_lock;

/* @align: a power of two, any size. NULL without memory. With @zero the block reads as zero. */
KMEM_HIDDEN void *large_alloc(size_t bytes, size_t align, bool zero);
/* Bytes of the block that starts at this address (whole pages), 0 if none does. */
KMEM_HIDDEN size_t large_size(const void *address);
/* False if no large block starts at this address; then nothing happened. */
KMEM_HIDDEN bool large_free(void *address);
/*
 * What realloc has done to a block. Growth in small steps would copy a block at each step, where others are in its
 * way, and leave as many touched holes. So a block that has moved before moves with room behind it.
 */
enum large_growth { GROWTH_NONE, GROWTH_MOVED, GROWTH_HAS_ROOM };
/* GROWTH_NONE also of blocks outside of the heap, which grow by remapping. */
KMEM_HIDDEN enum large_growth large_growth(const void *block);
/* realloc has copied the content to this block. */
KMEM_HIDDEN void large_set_growth(void *block, enum large_growth growth);
/*
 * Gives the block a new size: in place, by remapping (huge to huge), or NULL if the caller
 * must copy. Content up to the smaller size is kept. Blocks never shrink below a page.
 */
KMEM_HIDDEN void *large_resize(void *address, size_t bytes);

struct large_counts {
        size_t handed_out; /* blocks of both kinds, cumulative */
        size_t blocks;
        size_t bytes;
        size_t huge_handed_out;
        size_t huge_blocks;
        size_t huge_bytes;
        size_t huge_kept_bytes;  /* freed mappings kept for reuse */
        size_t huge_peak_blocks; /* the most that there were at once */
        size_t huge_peak_bytes;
};
KMEM_HIDDEN void large_count(struct large_counts *counts);

#endif
