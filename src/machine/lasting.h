/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Programs and libraries that stay where they are until the process ends, as the dynamic linker knows
 * them.
 */
#ifndef KMEM_MACHINE_LASTING_H
#define KMEM_MACHINE_LASTING_H

#include "lang/compiler.h"

/*
 * Finds them, once a process, with no lock held; it asks the dynamic linker. Before, and for a second
 * thread meanwhile, there are none or only some.
 */
KMEM_HIDDEN void lasting_find(void);

/* Whether @address is in the code of one of them. False also for some that are. */
KMEM_HIDDEN bool is_lasting(uintptr_t address);
/*
 * Whether @address is in the data of one of them, which can be read as long as the process runs. Of the
 * shared libraries alone, as stack_walk.
 */
KMEM_HIDDEN bool is_lasting_data(uintptr_t address) __attribute__((weak));

#endif
