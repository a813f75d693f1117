/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The end of a process that has made a wrong call (fatal.h). */
#define _GNU_SOURCE
#include "machine/fatal.h"

#include "lang/text.h"
#include "machine/code_map.h"
#include "machine/message.h"
#include "machine/stack.h"
#include "machine/system.h"

#include <stdarg.h>
#include <stdlib.h>

enum { LINE_BYTES = 1024 }; /* message's */

/* Not inlined: its room is not needed while the stack is walked. */
static KMEM_NOINLINE void print_frame(struct code_map *map, uintptr_t address)
{
        char line[LINE_BYTES];

        code_map_text(map, address, line, sizeof(line));
        message("    %s", line);
}

static KMEM_NOINLINE void print_line(const char *format, va_list arguments)
{
        char line[LINE_BYTES];

        text_print_list(line, sizeof(line), format, arguments);
        message("%s", line);
}

void print_callers(void)
{
        uintptr_t frames[STACK_FRAMES];
        struct code_map *map;
        unsigned int count;

        if (stack_walk && !stack_is_refused())
                stack_prepare();
        count = stack_capture(frames, STACK_FRAMES);
        if (!count)
                return;
        map = code_map_take();
        message("  here by thread %u:", system_thread_id());
        for (unsigned int i = 0; i < count; i++)
                print_frame(map, frames[i]);
        code_map_drop(map);
}

void fatal_call(const char *format, ...)
{
        va_list arguments;

        /* The line first, as the stack may be harmed too. */
        va_start(arguments, format);
        print_line(format, arguments);
        va_end(arguments);
        print_callers();
        abort();
}
