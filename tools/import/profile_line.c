/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A line of a heap profile, as jemalloc and tcmalloc write it: how many objects live, by stack.
 *
 *     heap_v2/524288                                          of jemalloc: bytes between samples
 *       t*: 28106: 56637512 [0: 0]                            the whole heap, and then each thread
 *     @ 0x55d0 0x55e4                                         a stack
 *       t*: 13: 6688 [0: 0]                                   its objects and bytes
 *     heap profile: 3: 300 [ 5: 500] @ heapprofile            of tcmalloc; heap_v2/524288 if sampled
 *          1: 100 [ 2: 200] @ 0x55d0 0x55e4                   objects, bytes and stack
 *     MAPPED_LIBRARIES:                                       the rest are mappings
 *
 * A snapshot has no frees and no times. Its trace allocates each stack's objects, all of their mean
 * size. Sampled counts are scaled up: an object of `size` bytes is sampled with probability
 * 1 - exp(-size / bytes between samples).
 */
#include "tools/import/import.h"

#include "lang/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
        STEP_NS = 1000,
        SIZE_BITS = 47, /* of an address */
};

/* "13: 6688 [" with blanks in between; *text is then behind the bracket. */
static bool read_counts(const char **text, uint64_t *objects, uint64_t *bytes)
{
        *text += strspn(*text, " ");
        if (number_scan(text, 10, objects) != NUMBER_READ || **text != ':')
                return false;
        ++*text;
        *text += strspn(*text, " ");
        if (number_scan(text, 10, bytes) != NUMBER_READ || strncmp(*text, " [", 2) != 0)
                return false;
        *text += 2;
        return true;
}

/* The first address of a stack, which called the allocator; *length is its length. */
static const char *innermost(const char *stack, size_t *length)
{
        stack += strspn(stack, " ");
        *length = strcspn(stack, " ");
        return stack;
}

static enum line_kind add_objects(struct import *import, uint64_t objects, uint64_t bytes,
                                  const char *site, size_t site_bytes)
{
        struct lives_event event = {
                .operation = TRACE_ALLOC,
                .cache = TRACE_CACHE_KMALLOC,
        };
        double size;
        double alive = (double)objects;

        if (!objects)
                return LINE_TAKEN;
        size = (double)bytes / (double)objects;
        if (!(size < (double)(1ull << SIZE_BITS)))
                return line_bad(import, "a heap profile's objects of more than 2^%d bytes",
                                SIZE_BITS);
        if (!bytes && import->sample_bytes)
                return line_bad(import, "a heap profile's sampled objects of 0 bytes");
        if (import->sample_bytes)
                alive /= -expm1(-size / (double)import->sample_bytes);
        if (!(alive < (double)(import->objects_most - import->snapshot_objects)))
                return line_bad(import, "a heap profile of more than %llu objects",
                                (unsigned long long)import->objects_most);
        event.requested = (uint64_t)llround(size);
        for (uint64_t i = (uint64_t)llround(alive); i; i--) {
                import->made_times = true;
                import->now += STEP_NS;
                event.address = ADDRESS_LEAST + ++import->snapshot_objects;
                import_event(import, &event, site, site_bytes);
        }
        return LINE_TAKEN;
}

/* "1: 100 [ 2: 200] @ 0x55d0 0x55e4" */
static enum line_kind tcmalloc_line(struct import *import, const char *text)
{
        uint64_t objects;
        uint64_t bytes;
        size_t length;

        if (!read_counts(&text, &objects, &bytes) || !(text = strchr(text, '@')))
                return line_bad(import, "heap profile: expected objects, bytes and a stack");
        text = innermost(text + 1, &length);
        return add_objects(import, objects, bytes, text, length);
}

/* "t*: 13: 6688 [0: 0]" behind its stack, or of the whole heap. */
static enum line_kind jemalloc_line(struct import *import, const char *text)
{
        uint64_t objects;
        uint64_t bytes;
        const char *site;
        size_t length;

        if (text[1] != '*')
                return LINE_TAKEN; /* a thread's part of the line before */
        text += 2 + (text[2] == ':');
        if (!read_counts(&text, &objects, &bytes))
                return line_bad(import, "heap profile: expected objects and bytes");
        if (!import->stack[0])
                return LINE_TAKEN; /* the whole heap */
        site = innermost(import->stack + 1, &length);
        return add_objects(import, objects, bytes, site, length);
}

static enum line_kind head_line(struct import *import, const char *line)
{
        const char *slash = line + strlen("heap_v2/");

        if (strncmp(line, "heap_v2/", 8) == 0) {
                if (number_scan(&slash, 10, &import->sample_bytes) != NUMBER_READ || *slash)
                        return line_bad(import, "heap profile: expected the bytes between samples");
                import->profile = true;
                return LINE_TAKEN;
        }
        if (strncmp(line, "heap profile:", 13) != 0)
                return LINE_NOT_OURS;
        slash = strstr(line, "@ heap_v2/");
        if (slash) {
                slash += strlen("@ heap_v2/");
                if (number_scan(&slash, 10, &import->sample_bytes) != NUMBER_READ)
                        return line_bad(import, "heap profile: expected the bytes between samples");
        } else if (!strstr(line, "@ heapprofile")) {
                return line_bad(import, "heap profile: expected @ heapprofile or @ heap_v2/BYTES");
        }
        import->profile = true;
        return LINE_TAKEN;
}

enum line_kind profile_line(struct import *import, const char *line)
{
        const char *text = line + strspn(line, " \t");

        if (!import->profile) {
                if (import->lines != 1)
                        return LINE_NOT_OURS;
                return head_line(import, line);
        }
        if (import->profile_ended || strncmp(text, "MAPPED_LIBRARIES:", 17) == 0) {
                import->profile_ended = true;
                import->others++;
                return LINE_TAKEN;
        }
        if (!*text)
                return LINE_TAKEN;
        if (*text == '@') {
                snprintf(import->stack, sizeof(import->stack), "%.63s", text);
                import->others++;
                return LINE_TAKEN;
        }
        return *text == 't' ? jemalloc_line(import, text) : tcmalloc_line(import, text);
}
