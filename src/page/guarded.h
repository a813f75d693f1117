/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Large blocks with large.debug=Z: each is a mapping of its own, with a page without
 * access behind it. The bytes between the block and that page are a red zone, which is checked when
 * the block is freed and when the process ends. A freed block keeps its addresses, without access,
 * until the next such block is freed.
 */
#ifndef KMEM_PAGE_GUARDED_H
#define KMEM_PAGE_GUARDED_H

#include "page/huge_table.h"

/* The name that large blocks have in option debug: large.debug=Z. */
#define GUARDED_NAME "large"

/* Whether large blocks are guarded; never changes once the options are read. */
extern KMEM_HIDDEN bool large_guarded;

/* Reads the option; once. */
KMEM_HIDDEN void guarded_init(void);

/* Bytes behind each mapping that are never accessible. */
KMEM_HIDDEN size_t guarded_behind(void);
/* Takes access to the bytes behind a new mapping away, or unmaps it and returns false. */
KMEM_HIDDEN bool guarded_close_behind(void *start, size_t bytes);
/* Notes the bytes that were asked for. Under huge_lock. */
KMEM_HIDDEN void guarded_note_locked(struct huge_block *block, size_t request);
/* Reports a red zone that was written to. Under huge_lock. */
KMEM_HIDDEN void guarded_check_locked(const struct huge_block *block);
/* Takes the access to a freed block away; returns the block that was freed before it, or NULL. */
KMEM_HIDDEN void *guarded_close_locked(void *start, size_t *bytes);
/* Checks all blocks in use. */
KMEM_HIDDEN void guarded_check_all(void);

#endif
