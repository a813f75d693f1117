/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "base/message.h"

#include "base/system.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * One write(2) per line, so that lines of several threads do not mix. vsnprintf with the
 * conversions named in the header does not allocate.
 */
static void print_line(const char *format, va_list arguments)
{
        char line[1024];
        int saved_errno = errno;
        const char prefix[] = "kmem: ";
        size_t used = sizeof(prefix) - 1;
        int printed;

        memcpy(line, prefix, used);
        printed = vsnprintf(line + used, sizeof(line) - used - 1, format, arguments);
        if (printed > 0)
                used += min_of((size_t)printed, sizeof(line) - used - 2);
        /* Names that the program gave may hold line ends, or a terminal's controls. */
        for (size_t i = 0; i < used; i++)
                if ((unsigned char)line[i] < ' ' || line[i] == 127)
                        line[i] = '?';
        line[used++] = '\n';
        system_write(STDERR_FILENO, line, used);
        errno = saved_errno;
}

void message(const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        print_line(format, arguments);
        va_end(arguments);
}

void message_fatal(const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        print_line(format, arguments);
        va_end(arguments);
        abort();
}

/* glibc 2.32. strerror may translate, and allocate. */
extern const char *strerrordesc_np(int error) __attribute__((weak));

const char *message_error(int error)
{
        const char *text = strerrordesc_np ? strerrordesc_np(error) : NULL;

        return text ? text : "failed";
}

int message_write(int file, const char *text, size_t bytes)
{
        while (bytes) {
                long written = system_write(file, text, bytes);

                if (written == -EINTR)
                        continue;
                if (written <= 0)
                        return written < 0 ? (int)-written : EIO;
                text += written;
                bytes -= (size_t)written;
        }
        return 0;
}

int message_print(int file, const char *format, ...)
{
        char line[256];
        size_t length = 0;
        va_list arguments;
        int printed;

        va_start(arguments, format);
        printed = vsnprintf(line, sizeof(line), format, arguments);
        va_end(arguments);
        if (printed > 0)
                length = min_of((size_t)printed, sizeof(line) - 1);
        return message_write(file, line, length);
}
