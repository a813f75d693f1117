/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Return addresses of a call, without the library's own frames (stack.h). */
#define _GNU_SOURCE
#include "machine/stack.h"

#include "lang/atomic.h"
#include "machine/system.h"

#include <elf.h>
#include <errno.h>

/* Frames of the library between a program's call and stack_capture, and a few to spare. */
enum { OWN_FRAMES = 12 };

/* glibc's, for programs that the library is linked into; other C libraries have none. */
extern int backtrace(void **frames, int count) __attribute__((weak));

/* Begin and end of the shared library, or of the program where the library is a part of it. */
extern const char __ehdr_start[] __attribute__((visibility("hidden"), weak));
extern const char etext[] __attribute__((visibility("hidden")));

static uint32_t prepared;
/*
 * Set while a walk runs, because functions that it calls may allocate, and so come here again. Set
 * for good in a thread that is refused.
 */
static _Thread_local bool capturing __attribute__((tls_model("initial-exec")));

static int walk(void **frames, int room)
{
        if (stack_walk)
                return stack_walk(frames, room);
        return backtrace ? backtrace(frames, room) : 0;
}

void stack_prepare(void)
{
        void *frame;
        int saved_errno = errno;

        if (load_acquire(&prepared) || capturing)
                return;
        capturing = true;
        walk(&frame, 1);
        capturing = false;
        /* Release: the unwinder is loaded. Partner: the acquire in stack_capture. */
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

static bool is_near(uintptr_t address)
{
        return address >= (uintptr_t)__ehdr_start && address < (uintptr_t)etext;
}

/*
 * The number of frames of the library, by their addresses; in a program that it is linked into,
 * only this function's caller.
 */
static unsigned int own_frames(void *const *frames, unsigned int count)
{
        unsigned int own = 0;

        if (is_near(system_auxv(AT_ENTRY)))
                return min_of(1u, count);
        while (own < count && is_near((uintptr_t)frames[own]))
                own++;
        return own;
}

unsigned int stack_capture(uintptr_t frames[STACK_FRAMES])
{
        void *found[STACK_FRAMES + OWN_FRAMES];
        int saved_errno = errno;
        unsigned int first;
        unsigned int count;

        if (!load_acquire(&prepared) || capturing)
                return 0;
        capturing = true;
        count = (unsigned int)walk(found, (int)array_size(found));
        capturing = false;
        first = own_frames(found, count);
        count = min_of(count - first, (unsigned int)STACK_FRAMES);
        for (unsigned int i = 0; i < count; i++)
                frames[i] = (uintptr_t)found[first + i];
        errno = saved_errno;
        return count;
}

unsigned int stack_capture_from(uintptr_t instruction, uintptr_t frames[STACK_FRAMES])
{
        void *found[STACK_FRAMES + OWN_FRAMES];
        unsigned int first = 0;
        unsigned int count;

        if (!load_acquire(&prepared) || capturing)
                return 0;
        capturing = true;
        count = (unsigned int)walk(found, (int)array_size(found));
        capturing = false;
        while (first < count && (uintptr_t)found[first] != instruction)
                first++;
        count = min_of(count - first, (unsigned int)STACK_FRAMES);
        for (unsigned int i = 0; i < count; i++)
                frames[i] = (uintptr_t)found[first + i];
        return count;
}
