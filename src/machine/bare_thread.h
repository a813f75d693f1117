/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A thread of our own that libc knows nothing of: made by clone, with all signals blocked, and with
 * a stack and thread-local storage of ours. Starting it takes no lock of libc and allocates nothing
 * from the heap, so it may be started in the middle of a free; and libc neither counts it among the
 * program's threads nor waits for it.
 *
 * Thread-local storage is zero but for the header; only variables at the offsets that were named
 * may be used, and nothing of libc but system calls, errno, and functions of memory and strings.
 */
#ifndef KMEM_MACHINE_BARE_THREAD_H
#define KMEM_MACHINE_BARE_THREAD_H

#include "lang/compiler.h"

struct bare_thread {
        uint32_t id;   /* the kernel's; the kernel clears it when the thread is gone for good */
        char *memory;  /* stack and storage, made once and used again; NULL: not made yet */
        char *pointer; /* the thread pointer, in it */
};

/*
 * Starts @run, which ends the thread by returning. Only if id is 0 (acquire), and by a single
 * caller at a time. @offsets: @count offsets from the thread pointer to variables that are used.
 * False without memory, or if the kernel refuses. Keeps errno.
 */
KMEM_HIDDEN bool bare_thread_start(struct bare_thread *thread, int (*run)(void *argument),
                                   void *argument, const intptr_t *offsets, unsigned int count);

/* Its step: the system call, which sets *id, and clears it at the end. Below 0: -errno. */
KMEM_HIDDEN long thread_clone(int (*run)(void *argument), void *argument, void *stack, long flags,
                              void *storage, uint32_t *id);

#endif
