/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Huge blocks by address: an open-addressing hash table in metadata, under huge_lock.
 */
#ifndef KMEM_PAGE_HUGE_TABLE_H
#define KMEM_PAGE_HUGE_TABLE_H

#include "lang/compiler.h"

struct huge_block {
        uintptr_t start; /* 0: this entry is empty */
        size_t bytes;    /* mapped from start on, whole system pages */
        void *owner;     /* the owner it is charged to, or NULL */
        size_t charge;   /* bytes of that */
        size_t request;  /* bytes asked for, of a guarded block; 0 of others (page/guarded.h) */
};

/* Makes room for a further block; false without memory. */
KMEM_HIDDEN bool huge_table_reserve_locked(void);
/* The room must have been reserved since the lock was taken. The entry has no owner. */
KMEM_HIDDEN struct huge_block *huge_table_add_locked(void *start, size_t bytes);
KMEM_HIDDEN struct huge_block *huge_table_find_locked(const void *start);
/* Moves other entries: pointers into the table end here. */
KMEM_HIDDEN void huge_table_remove_locked(struct huge_block *block);
KMEM_HIDDEN void huge_table_each_locked(void (*act)(const struct huge_block *block));
/* Blocks in the table; may be read without the lock as a hint. */
KMEM_HIDDEN size_t huge_table_length(void);

#endif
