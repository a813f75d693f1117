/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Lines on standard error and in files, made on the stack and written by system calls (message.h).
 */
#define _GNU_SOURCE
#include "machine/message.h"

#include "machine/system.h"
#include "lang/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * A single write(2) per line, so that lines of several threads do not mix.
 */
static void print_line(const char *format, va_list arguments)
{
        char line[1024];
        int saved_errno = errno;
        const char prefix[] = "kmem: ";
        size_t used = sizeof(prefix) - 1;

        memcpy(line, prefix, used);
        used += min_of(text_print_list(line + used, sizeof(line) - used - 1, format, arguments),
                       sizeof(line) - used - 2);
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

/* libc's strerror may translate, and allocate. */
const char *message_error(int error)
{
        static const struct {
                int error;
                const char *text;
        } known[] = {
                {EPERM, "Operation not permitted"},
                {ENOENT, "No such file or directory"},
                {EIO, "Input/output error"},
                {EBADF, "Bad file descriptor"},
                {ENOMEM, "Cannot allocate memory"},
                {EACCES, "Permission denied"},
                {EEXIST, "File exists"},
                {ENODEV, "No such device"},
                {ENOTDIR, "Not a directory"},
                {EISDIR, "Is a directory"},
                {EINVAL, "Invalid argument"},
                {ENFILE, "Too many open files in system"},
                {EMFILE, "Too many open files"},
                {ETXTBSY, "Text file busy"},
                {EFBIG, "File too large"},
                {ENOSPC, "No space left on device"},
                {EROFS, "Read-only file system"},
                {EPIPE, "Broken pipe"},
                {ENAMETOOLONG, "File name too long"},
                {ENOTEMPTY, "Directory not empty"},
                {ELOOP, "Too many levels of symbolic links"},
                {EUSERS, "Too many users"},
                {EOPNOTSUPP, "Operation not supported"},
                {ESTALE, "Stale file handle"},
                {EDQUOT, "Disk quota exceeded"},
        };

        for (size_t i = 0; i < array_size(known); i++)
                if (known[i].error == error)
                        return known[i].text;
        return "failed";
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
        va_list arguments;
        size_t length;

        va_start(arguments, format);
        length = text_print_list(line, sizeof(line), format, arguments);
        va_end(arguments);
        return message_write(file, line, min_of(length, sizeof(line) - 1));
}
