/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A map from 64-bit indexes to extents of them, in a radix tree.
 */
#ifndef TESTS_KERNEL_RANGEMAP_H
#define TESTS_KERNEL_RANGEMAP_H

#include <linux/types.h>

/* Gives [first, last] the value, which is not 0, over whatever was there; -EINVAL, -ENOMEM. */
int rm_store(u64 first, u64 last, u64 value);
/* Takes values away; returns how many indexes had a value, or -ENOMEM. */
s64 rm_erase(u64 first, u64 last);
/* The value of an index without locks; 0: none. */
u64 rm_load(u64 index);
/* The first extent that ends at or behind @index; false: none. */
bool rm_next(u64 index, u64 *first, u64 *last, u64 *value);
/* Extents and nodes that exist. */
unsigned long rm_extents(void);
unsigned long rm_nodes(void);
/* Checks the whole tree; 0 if it is sound, else the number of faults. */
unsigned int rm_check(void);

#endif
