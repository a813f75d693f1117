/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The table of /proc/slabinfo, version 2.1 (S9-10, S9-11, S6-70).
 *
 * active_objs counts the objects that the program holds: unlike the kernel's it leaves out free
 * objects in CPU slabs and sheaves, which are known exactly here. After the table come comment
 * lines with figures that the format has no room for.
 */
#ifndef KMEM_INTROSPECT_SLABINFO_H
#define KMEM_INTROSPECT_SLABINFO_H

#include "base/compiler.h"

/* Writes the table to a file descriptor. Allocates nothing. */
KMEM_HIDDEN void slabinfo_write(int file);
/* Remembers where standard error goes; called when the heap starts. */
KMEM_HIDDEN void slabinfo_init(void);
/* Whether option slabinfo is set. */
KMEM_HIDDEN bool slabinfo_is_wanted(void);
/* Makes the calling process the one that writes; called in a forked child too. */
KMEM_HIDDEN void slabinfo_claim(void);
/* Writes it as option slabinfo says, once; called when the process ends. */
KMEM_HIDDEN void slabinfo_at_exit(void);

#endif
