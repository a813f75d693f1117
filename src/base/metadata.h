/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The metadata arena: memory for the allocator's own records (of caches and slots, sheaves, index
 * tables). It never comes from a slab cache, so nothing here can recurse.
 *
 * Blocks are zeroed, aligned to 16 bytes (to 64 from 64 bytes on) and live in mappings of
 * their own (or the reserve) that are never unmapped. Freed blocks are kept by size class for
 * reuse. Sizes are rounded up to a class; metadata_round tells the rounded size.
 */
#ifndef KMEM_BASE_METADATA_H
#define KMEM_BASE_METADATA_H

#include "machine/lock.h"

extern KMEM_HIDDEN struct lock metadata_lock;

/*
 * Sets the reserve, from which blocks come when the system maps no more: whole system pages of
 * address space without access, in the heap's reservation. Before this call there is no reserve.
 */
KMEM_HIDDEN void metadata_set_reserve(void *start, size_t bytes);
/* The reserve ends at @end, or behind the last block if that is further; returns the end. */
KMEM_HIDDEN char *metadata_cut_reserve(char *end);
/* The part of the reserve without access no longer counts as locked memory. */
KMEM_HIDDEN void metadata_unlock_reserve(void);
/* NULL if the system has no memory. Any size; a large block has a mapping of its own. */
KMEM_HIDDEN void *metadata_alloc(size_t bytes);
/*
 * Up to @count blocks of @bytes each, under a single hold of the lock; returns how many there were.
 */
KMEM_HIDDEN unsigned int metadata_alloc_many(void **blocks, unsigned int count, size_t bytes);
/* @bytes must be the size that was asked for. NULL is allowed. */
KMEM_HIDDEN void metadata_free(void *block, size_t bytes);
/*
 * Frees blocks of equal size up to 64 KiB, linked through their first words; the last word is NULL.
 */
KMEM_HIDDEN void metadata_free_chain(void *first, size_t bytes);
KMEM_HIDDEN size_t metadata_round(size_t bytes);

/* Bytes mapped for metadata, and bytes of them in use. */
KMEM_HIDDEN size_t metadata_mapped_bytes(void);
KMEM_HIDDEN size_t metadata_used_bytes(void);

#endif
