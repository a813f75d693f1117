/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The end of a process that has made a wrong call: the line that says so, and who made it. */
#ifndef KMEM_MACHINE_FATAL_H
#define KMEM_MACHINE_FATAL_H

#include "lang/compiler.h"

/* Prints the callers as places in files, if they can be known (fatal_call). */
KMEM_HIDDEN KMEM_COLD void print_callers(void);

/*
 * As message_fatal, and prints between both the callers as places in files (machine/code_map.h),
 * where a walk of the stack needs nothing that a lock may keep: not in programs that have the
 * library inside, unless something else walked their stacks before.
 */
KMEM_HIDDEN void fatal_call(const char *format, ...) KMEM_PRINTF(1, 2)
        __attribute__((noreturn, cold));

#endif
