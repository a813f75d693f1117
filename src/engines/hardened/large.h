/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Large hardened blocks: each is a mapping of its own, at a drawn address, between guards of a drawn length. A freed
 * block is unreadable and its memory is gone, but its addresses wait, as HARD-6 has it, before the system may give
 * them to somebody else.
 *
 * LARGE-1  The bytes from the end of a block to the end of its last page are zero; what is written there is found when
 *          the block is freed or resized.
 * LARGE-2  Behind the last page of a block is a page without access. A block that has grown has room behind it, also
 *          without access, into which it may grow further; other blocks keep their length.
 */
#ifndef KMEM_ENGINES_HARDENED_LARGE_H
#define KMEM_ENGINES_HARDENED_LARGE_H

#include "engines/hardened/hardened.h"

extern KMEM_HIDDEN struct lock hardened_large_lock;

/* As hardened_alloc and its relatives in hardened.h. @size is not 0. */
KMEM_HIDDEN void *hardened_large_alloc(size_t size, size_t align, enum block_form form);
KMEM_HIDDEN bool hardened_large_free(void *block, size_t size, enum block_form form,
                                     const char *call, const void *site);
KMEM_HIDDEN size_t hardened_large_bytes(const void *block, bool *known);
KMEM_HIDDEN void *hardened_large_resize(void *block, size_t size, size_t align, const char *call);

/* Adds the figures of large blocks. */
KMEM_HIDDEN void hardened_large_count(struct hardened_counts *counts);
/* Unmaps the blocks that wait; returns 0, because they have no memory. */
KMEM_HIDDEN void hardened_large_trim(void);
/* Checks LARGE-1 of all blocks. */
KMEM_HIDDEN void hardened_large_sweep(void);

#endif
