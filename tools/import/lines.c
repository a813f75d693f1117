/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Cuts text into lines, and counts what they hold. */
#include "tools/import/import.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum line_kind line_bad(struct import *import, const char *format, ...)
{
        va_list arguments;

        if (!import->unreadable++) {
                import->first_unreadable = import->lines;
                va_start(arguments, format);
                vsnprintf(import->reason, sizeof(import->reason), format, arguments);
                va_end(arguments);
        }
        return LINE_BAD;
}

void import_event(struct import *import, struct lives_event *event, const char *site,
                  size_t site_bytes)
{
        uint32_t before = import->sites.count;
        struct text *known = site_bytes ? texts_find(&import->sites, site, site_bytes) : NULL;

        if (known && import->sites.count != before)
                known->value = import->sites.count;
        if (!import->events++)
                import->first_time = import->now;
        event->site = known ? known->value : 0;
        event->time = import->now > import->first_time ? import->now - import->first_time : 0;
        lives_add(import->lives, event);
}

void import_line(struct import *import, char *line, size_t length)
{
        import->lines++;
        line[length] = '\0';
        if (length && line[length - 1] == '\r')
                line[length - 1] = '\0';
        if (heaptrack_line(import, line) == LINE_NOT_OURS &&
            profile_line(import, line) == LINE_NOT_OURS &&
            kernel_line(import, line) == LINE_NOT_OURS && heap_line(import, line) == LINE_NOT_OURS)
                line_bad(import, "expected an event, not \"%.60s\"", line);
}

size_t import_lines(struct import *import, char *bytes, size_t have, bool *skip)
{
        char *line = bytes;
        char *end;

        while ((end = memchr(line, '\n', have - (size_t)(line - bytes)))) {
                if (!*skip)
                        import_line(import, line, (size_t)(end - line));
                *skip = false;
                line = end + 1;
        }
        have -= (size_t)(line - bytes);
        if (have > LINE_BYTES_MOST) {
                if (!*skip) {
                        import->lines++;
                        line_bad(import, "a line of more than %d bytes", LINE_BYTES_MOST);
                }
                *skip = true;
                have = 0;
        }
        memmove(bytes, line, have);
        return have;
}
