/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Huge blocks: mappings of their own, outside the heap. Callers use large.h.
 */
#ifndef KMEM_PAGE_HUGE_H
#define KMEM_PAGE_HUGE_H

#include "page/large.h"

/* @bytes up to PTRDIFF_MAX and @align any power of two; NULL without memory. */
KMEM_HIDDEN void *huge_alloc(size_t bytes, size_t align, bool zero);
KMEM_HIDDEN size_t huge_size(const void *address);
KMEM_HIDDEN bool huge_free(void *address);
/*
 * The owner that a block is charged to, and the bytes; both stay when the block is resized. Setting
 * is false, and getting NULL, if no block starts there.
 */
KMEM_HIDDEN bool huge_owner_set(const void *address, void *owner, size_t charge);
KMEM_HIDDEN void *huge_owner(const void *address, size_t *charge);
/* In place or by remapping; NULL if that is refused, or if the heap is a better place now. */
KMEM_HIDDEN void *huge_resize(void *address, size_t bytes);

/* Lays the red zone of a guarded block that was asked for with @request bytes (page/guarded.h). */
KMEM_HIDDEN void huge_note_request(const void *address, size_t request);

/* When a kept mapping will be due, in ms; UINT64_MAX for none. No lock needed. */
KMEM_HIDDEN uint64_t huge_kept_due(void);
/* Gives back the kept mappings that are due, UINT64_MAX for all. Returns their bytes. */
KMEM_HIDDEN size_t huge_kept_drop(uint64_t now);

/* Bytes of all huge blocks, and of mappings kept for reuse; without a lock. */
KMEM_HIDDEN size_t huge_held_bytes(void);

/* Shows them to other processes. */
KMEM_HIDDEN void huge_show(void);
/* Fills the huge_* fields. */
KMEM_HIDDEN void huge_count(struct large_counts *counts);

#endif
