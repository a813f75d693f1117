/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Faults of memory (SIGSEGV), looked at before the program's own handler runs.
 *
 *  FAULT-CHAIN-1  Once fault_watch has been called, the kernel's handler is ours. A handler that the
 *                 program had, or sets later by libc (malloc/signals.c), is kept beside it: the
 *                 program reads back what it set, and ours calls it. Whether a signal that
 *                 is sent restarts system calls is as with the program's handler alone.
 *  FAULT-CHAIN-2  A fault without a handler of the program ends the process as if there were no
 *                 handler at all: ours restores the default, and the instruction faults again.
 *
 * The handler allocates nothing, takes no lock of libc, and runs on the thread's alternate stack if
 * it has one. A program that sets its handler past libc, by a system call of its own, replaces ours.
 */
#ifndef KMEM_MACHINE_FAULT_H
#define KMEM_MACHINE_FAULT_H

#include "lang/compiler.h"

#include <signal.h>
#include <stdint.h>

/* What the program wants done at a fault, as sigaction(2) tells the kernel. */
struct fault_action {
        union {
                void (*plain)(int number);
                void (*full)(int number, siginfo_t *info, void *context);
        } handler;
        int flags;
        uint64_t mask;
};

/* The kernel's mask of one signal. */
static inline uint64_t fault_mask(int number)
{
        return (uint64_t)1 << (number - 1);
}

struct fault {
        uintptr_t address;
        uintptr_t instruction; /* 0: not known on this processor */
        enum fault_access { FAULT_ACCESS, FAULT_READ, FAULT_WRITE } access;
};

/*
 * Shows each fault to @look, in its handler, before the program's action. Once a process; false if
 * the kernel refuses.
 */
KMEM_HIDDEN bool fault_watch(void (*look)(const struct fault *fault));
KMEM_HIDDEN bool fault_is_watched(void);
/* The program's action, and its change; both only while faults are watched. */
KMEM_HIDDEN struct fault_action fault_action(void);
KMEM_HIDDEN void fault_set_action(const struct fault_action *action);
/* Whether so much is left of the stack that the handler runs on. */
KMEM_HIDDEN bool fault_stack_has(size_t bytes);

#endif
