/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The kernel's clocks, not libc's: a program, or a library beside us, may have a clock_gettime of
 * its own, which may allocate, wait for a lock that our caller holds, or give another time.
 */
#ifndef KMEM_MACHINE_CLOCK_H
#define KMEM_MACHINE_CLOCK_H

#include "lang/compiler.h"

#include <time.h>

/*
 * @clock is a clock that every kernel has; errno stays as it is. May be called at any time, in any
 * thread.
 */
KMEM_HIDDEN struct timespec clock_read(clockid_t clock);

#endif
