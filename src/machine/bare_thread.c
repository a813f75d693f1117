/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * From low to high: a page without access, the stack, storage below the thread pointer, storage
 * above it. x86-64 has variables below and libc's own record above, AArch64 has them in reverse, so
 * there is room on both sides.
 */
#define _GNU_SOURCE
#include "machine/bare_thread.h"

#include "lang/bits.h"
#include "machine/syscall.h"
#include "machine/system.h"

#include <sched.h>
#include <signal.h>
#include <string.h>

static const size_t STACK_BYTES = 64 << 10;
/* Room for the variables that are named by their offsets, and for our own variables beside them. */
static const size_t MARGIN_BYTES = 8 << 10;

struct extent {
        size_t below;
        size_t above;
};

static struct extent storage_extent(const intptr_t *offsets, unsigned int count)
{
        struct extent extent = {MARGIN_BYTES, MARGIN_BYTES};

        for (unsigned int i = 0; i < count; i++) {
                if (offsets[i] < 0)
                        extent.below = max_of(extent.below, (size_t)-offsets[i] + MARGIN_BYTES);
                else
                        extent.above = max_of(extent.above, (size_t)offsets[i] + MARGIN_BYTES);
        }
        extent.below = round_up(extent.below, system_page_bytes());
        extent.above = round_up(extent.above, system_page_bytes());
        return extent;
}

static bool memory_make(struct bare_thread *thread, struct extent extent)
{
        size_t guard = system_page_bytes();
        size_t stack = round_up(STACK_BYTES, system_page_bytes());
        size_t bytes = guard + stack + extent.below + extent.above;
        char *memory = system_reserve(bytes);

        if (!memory)
                return false;
        if (!system_commit(memory + guard, bytes - guard)) {
                system_unmap(memory, bytes);
                return false;
        }
        thread->memory = memory;
        thread->pointer = memory + guard + stack + extent.below;
        return true;
}

/* Clears the storage of the thread before; new memory is zero, and mostly stays untouched. */
static void storage_clear(struct bare_thread *thread, struct extent extent)
{
        memset(thread->pointer - extent.below, 0, extent.below + extent.above);
}

static void storage_begin(struct bare_thread *thread)
{
#if defined(__x86_64__)
        /* The thread pointer is read through itself, at offset 0 by the ABI and at 16 by libc. */
        memcpy(thread->pointer, &thread->pointer, sizeof(void *));
        memcpy(thread->pointer + 16, &thread->pointer, sizeof(void *));
#endif
}

bool bare_thread_start(struct bare_thread *thread, int (*run)(void *argument), void *argument,
                       const intptr_t *offsets, unsigned int count)
{
        const long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                           CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
                           CLONE_CHILD_CLEARTID;
        const uint64_t all = ~(uint64_t)0;
        struct extent extent = storage_extent(offsets, count);
        uint64_t old;
        bool started;

        if (thread->memory)
                storage_clear(thread, extent);
        else if (!memory_make(thread, extent))
                return false;
        storage_begin(thread);
        /* The new thread inherits the mask. Without it, it could run the program's handlers. */
        if (system_call_failed(signals_set(&all, &old)))
                return false;
        started = thread_clone(run, argument, thread->pointer - extent.below, flags,
                               thread->pointer, &thread->id) > 0;
        signals_set(&old, NULL);
        return started;
}
