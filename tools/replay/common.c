/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Arguments and errors of the programs that replay a trace.
 */
#include "tools/replay/steps.h"

#include "lang/number.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void say(const char *format, va_list arguments)
{
        fputs("replay: ", stderr);
        vfprintf(stderr, format, arguments);
        fputc('\n', stderr);
}

void die(const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        say(format, arguments);
        va_end(arguments);
        exit(1);
}

void refuse(const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        say(format, arguments);
        va_end(arguments);
        exit(2);
}

void *need(void *memory)
{
        if (!memory)
                die("out of memory");
        return memory;
}

unsigned int number_of(const char *name, const char *value, unsigned int most)
{
        uint64_t parsed;

        if (!number_whole(value, &parsed) || parsed < 1 || parsed > most)
                refuse("%s=%s: expected a number from 1 to %u", name, value, most);
        return (unsigned int)parsed;
}

void load_or_die(const char *path, const struct trace_demand *demand, struct trace *trace)
{
        struct trace_error error;

        if (!trace_load(path, demand, trace, &error))
                die("%s: byte %lu: %s", path, (unsigned long)error.offset, error.text);
        if (!trace_check(trace, &error))
                die("%s: %s", path, error.text);
}
