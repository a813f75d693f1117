/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Children that are forked off a process with threads, and go on in it without exec.
 */
#ifndef TESTS_UNIT_FORKED_H
#define TESTS_UNIT_FORKED_H

#include "skip.h"

#include "heap/heap.h"
#include "page/reclaim.h"
#include "process/start.h"

/*
 * For the child, first of all. If it starts a thread under qemu, the emulator ends it, because it
 * still has a number of the parent's threads in its tables, or waits without end for a lock that
 * the parent held at the fork. The library's own thread is started by frees, so nobody is to ask for
 * it; the start of the heap asks for it, so that comes first. Elsewhere the child starts the thread as
 * any program's does.
 */
static inline void forked_child_starts_no_thread_under_qemu(void)
{
        if (under_qemu() && heap_ready())
                store_relaxed(&reclaim_wanted, 0u);
}

#endif
