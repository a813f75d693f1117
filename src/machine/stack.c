/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Return addresses of a call, without the library's own frames (stack.h). */
#define _GNU_SOURCE
#include "machine/stack.h"

#include "lang/atomic.h"
#include "machine/system.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

/* Frames of the library between a signal's handler and the code that it interrupted. */
enum { HANDLER_FRAMES = 12 };

/* glibc's, for programs that the library is linked into; other C libraries have none. */
extern int backtrace(void **frames, int count) __attribute__((weak));

/* Begin and end of the shared library, or of the program where the library is a part of it. */
extern const char __ehdr_start[] __attribute__((visibility("hidden"), weak));
extern const char etext[] __attribute__((visibility("hidden")));

static uint32_t prepared;
/* Of the program; 0: not asked for yet. Relaxed, as each thread finds the same. */
static uintptr_t entry;
/*
 * Set while a walk runs, because functions that it calls may allocate, and so come here again. Set
 * for good in a thread that is refused.
 */
static _Thread_local bool capturing __attribute__((tls_model("initial-exec")));

/* Whether the library is a part of the program: then nothing tells their frames apart. */
static bool is_linked_in(void)
{
        uintptr_t known = load_relaxed(&entry);

        if (!known) {
                known = system_auxv(AT_ENTRY);
                store_relaxed(&entry, known);
        }
        return known >= (uintptr_t)__ehdr_start && known < (uintptr_t)etext;
}

/*
 * At most @room frames, without those of the library, by their addresses; in a program that it is
 * linked into, without this function's.
 */
static unsigned int walk(void **frames, unsigned int room)
{
        uintptr_t own = is_linked_in() ? 0 : (uintptr_t)__ehdr_start;
        int count;

        if (stack_walk)
                return (unsigned int)stack_walk(frames, (int)room, own, own ? (uintptr_t)etext : 0);
        count = backtrace ? backtrace(frames, (int)room) : 0;
        if (count < 1)
                return 0;
        memmove(frames, frames + 1, (size_t)(count - 1) * sizeof(*frames));
        return (unsigned int)count - 1;
}

void stack_prepare(void)
{
        void *frame;
        int saved_errno = errno;

        if (load_acquire(&prepared) || capturing)
                return;
        capturing = true;
        if (stack_walk_prepare)
                stack_walk_prepare();
        else
                walk(&frame, 1);
        capturing = false;
        /* Release: the unwinder is loaded, the walk prepared. Partner: the acquire in stack_capture. */
        store_release(&prepared, 1);
        errno = saved_errno;
}

void stack_refuse_this_thread(void)
{
        capturing = true;
}

bool stack_is_refused(void)
{
        return capturing;
}

unsigned int stack_capture(uintptr_t *frames, unsigned int room)
{
        int saved_errno = errno;
        unsigned int count;

        if (!load_acquire(&prepared) || capturing)
                return 0;
        capturing = true;
        count = walk((void **)frames, room);
        capturing = false;
        errno = saved_errno;
        return count;
}

unsigned int stack_capture_from(uintptr_t instruction, uintptr_t frames[STACK_FRAMES])
{
        uintptr_t found[STACK_FRAMES + HANDLER_FRAMES];
        unsigned int count = stack_capture(found, array_size(found));
        unsigned int first = 0;

        while (first < count && found[first] != instruction)
                first++;
        count = min_of(count - first, (unsigned int)STACK_FRAMES);
        memcpy(frames, found + first, count * sizeof(*frames));
        return count;
}
