/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Cuts text into lines, and counts what they hold. Mails put quotes in front of lines, and make several
 * lines of an event: what misses fields waits for a line that begins with one.
 */
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

uint64_t import_time_of_day(struct import *import, uint64_t time)
{
        if (time < import->time_of_day && import->time_of_day - time > 12 * 3600 * SECOND_NS)
                import->days++;
        import->time_of_day = time;
        return time + import->days * 24 * 3600 * SECOND_NS;
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

const char *line_trim(const char *first, const char *end)
{
        while (end > first && (end[-1] == ' ' || end[-1] == '\t'))
                end--;
        return end;
}

/* Without a byte order mark and without a mail's quotes. */
static char *own_text(const struct import *import, char *line)
{
        static const char mark[] = "\xef\xbb\xbf";

        if (import->lines == 1 && strncmp(line, mark, sizeof(mark) - 1) == 0)
                line += sizeof(mark) - 1;
        if (*line == '>')
                line += strspn(line, "> ");
        return line;
}

/* Whether the line begins with a field, "ptr=...", or with trace-cmd's "(function)". */
static bool begins_with_field(const char *line)
{
        const char *key = line + strspn(line, " \t");
        size_t letters = strspn(key, "abcdefghijklmnopqrstuvwxyz_");

        return *key == '(' || (letters && key[letters] == '=');
}

static enum line_kind take_line(struct import *import, const char *line)
{
        enum line_kind kind = heaptrack_line(import, line);

        if (kind == LINE_NOT_OURS)
                kind = profile_line(import, line);
        if (kind == LINE_NOT_OURS)
                kind = named_line(import, line);
        if (kind == LINE_NOT_OURS)
                kind = kernel_line(import, line);
        if (kind == LINE_NOT_OURS)
                kind = heap_line(import, line);
        if (kind == LINE_NOT_OURS)
                line_bad(import, "expected an event, not \"%.60s\"", line);
        return kind;
}

/* Takes the event that waits, as a whole one if no line can complete it. */
static bool take_folded(struct import *import, bool is_whole)
{
        uint64_t lines = import->lines;
        enum line_kind kind;

        import->lines = import->folded_line;
        import->is_whole = is_whole;
        kind = take_line(import, import->folded);
        import->is_whole = false;
        import->lines = lines;
        if (kind == LINE_FOLDED)
                return false;
        import->folded_bytes = 0;
        return true;
}

/* Adds a line to the event that waits; false if it belongs to none, so that the event is over. */
static bool complete_folded(struct import *import, const char *line)
{
        size_t length;

        line += strspn(line, " \t");
        length = strlen(line);
        if (!begins_with_field(line) || import->folded_bytes + length + 2 > FOLDED_MOST) {
                take_folded(import, true);
                return false;
        }
        import->folded[import->folded_bytes] = ' ';
        memcpy(import->folded + import->folded_bytes + 1, line, length + 1);
        import->folded_bytes += length + 1;
        take_folded(import, false);
        return true;
}

void import_line(struct import *import, char *line, size_t length)
{
        import->lines++;
        line[length] = '\0';
        /* As a crash of the machine leaves them; what is behind one would be passed over. */
        if (memchr(line, '\0', length)) {
                line_bad(import, "a zero byte in the line; expected text");
                heaptrack_bad_line(import, *line);
                return;
        }
        if (length && line[length - 1] == '\r')
                line[length - 1] = '\0';
        line = own_text(import, line);
        if (import->folded_bytes && complete_folded(import, line))
                return;
        if (take_line(import, line) != LINE_FOLDED)
                return;
        length = strlen(line);
        if (length >= FOLDED_MOST) {
                import->is_whole = true;
                take_line(import, line);
                import->is_whole = false;
                return;
        }
        memcpy(import->folded, line, length + 1);
        import->folded_bytes = length;
        import->folded_line = import->lines;
}

void import_end(struct import *import)
{
        if (import->folded_bytes)
                take_folded(import, true);
        if (import->profile && !import->profile_ended)
                line_bad(import, "heap profile: no MAPPED_LIBRARIES: behind the stacks: cut off");
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
                        heaptrack_bad_line(import, *line);
                }
                *skip = true;
                have = 0;
        }
        memmove(bytes, line, have);
        return have;
}
