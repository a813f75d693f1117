/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * All attributes of all caches as files, laid out as /sys/kernel/slab: a directory for each cache,
 * named by its unique id if it may be merged, and symbolic links for the other names (S4-45). Files
 * have the kernel's modes: 0400, or 0600 for what can be written. In names '/' becomes '!', as in
 * the kernel. Of several caches with one name the newest is written.
 */
#ifndef KMEM_INTROSPECT_TREE_H
#define KMEM_INTROSPECT_TREE_H

#include "lang/compiler.h"

/* Makes the directory if need be. 0 or an errno: ENOTEMPTY if it has entries, so that no file of
 * an older tree can pass for one of ours. */
KMEM_HIDDEN int tree_begin(const char *path, bool alone);
/*
 * Writes the tree into it; 0 or the first errno, and then it is empty again, so that a directory with
 * entries has the whole tree. ENOTEMPTY as above. Allocates nothing.
 */
KMEM_HIDDEN int tree_write(const char *path);

#endif
