/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * All attributes of all caches as files, laid out as /sys/kernel/slab: a directory for each cache,
 * named by its unique id if it may be merged, and symbolic links for the other names (S4-45). Files
 * have the kernel's modes: 0400, or 0600 if they can be written. In names '/' becomes '!', as in
 * the kernel. If several caches have the same name, the newest is written.
 */
#ifndef KMEM_INTROSPECT_TREE_H
#define KMEM_INTROSPECT_TREE_H

#include "lang/compiler.h"

/*
 * Makes the directory if need be. 0 or an errno: ENOTEMPTY if it has entries, so that no file of an
 * older tree can pass for a file of this tree.
 */
KMEM_HIDDEN int tree_begin(const char *path, bool alone);
/*
 * Writes the tree into the directory; 0 or the first errno. After an error the directory is empty
 * again, so a directory with entries has the whole tree. ENOTEMPTY as in tree_begin. Allocates
 * nothing.
 */
KMEM_HIDDEN int tree_write(const char *path);

#endif
