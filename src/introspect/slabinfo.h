/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The table of /proc/slabinfo, version 2.1 (S9-10, S9-11, S6-70).
 *
 * As in the kernel, active_objs also counts free objects in CPU slabs and sheaves; attribute
 * objects_inuse has the objects that the program holds. After the table come comment lines with
 * figures that the format has no room for.
 */
#ifndef KMEM_INTROSPECT_SLABINFO_H
#define KMEM_INTROSPECT_SLABINFO_H

#include "lang/compiler.h"

/* Writes the table to a file descriptor. Allocates nothing. 0 or an errno. */
KMEM_HIDDEN int slabinfo_write(int file);
/*
 * For process/at_exit.c: slabinfo_begin looks whether a file can be written, "-" for standard
 * error, and slabinfo_end writes the table to it. Both return 0 or an errno. A file that this
 * process writes @alone is emptied at the beginning, and any file after an error. So a file with a
 * table has the whole table of this process.
 */
KMEM_HIDDEN int slabinfo_begin(const char *path, bool alone);
KMEM_HIDDEN int slabinfo_end(const char *path);

#endif
