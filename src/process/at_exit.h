/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The end of the process: its last checks, and the reports that it writes about itself, which are
 * the slab table (option slabinfo) and the tree of attributes (option attrs).
 */
#ifndef KMEM_PROCESS_AT_EXIT_H
#define KMEM_PROCESS_AT_EXIT_H

#include "lang/compiler.h"

/* Checks that the reports can be written, and says so if not; called when the heap starts. */
KMEM_HIDDEN void at_exit_init(void);
/* Whether there is a report to write. */
KMEM_HIDDEN bool at_exit_is_wanted(void);
/* Writes the reports, once; called when the process ends. */
KMEM_HIDDEN void at_exit_write(void);
/* The last checks of protect=hardened, once. */
KMEM_HIDDEN void at_exit_sweep(void);

#endif
