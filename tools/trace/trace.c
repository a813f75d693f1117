/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Traces in memory: room for columns and names, and the check that a trace is possible. */
#include "tools/trace/checked.h"
#include "lang/number.h"
#include "tools/trace/format.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool trace_fail(struct trace_error *error, uint64_t offset, const char *format, ...)
{
        va_list arguments;

        error->offset = offset;
        va_start(arguments, format);
        vsnprintf(error->text, sizeof(error->text), format, arguments);
        va_end(arguments);
        return false;
}

/* The bytes that a trace may take. */
static bool memory_allowed(uint64_t file_bytes, uint64_t *allowed, struct trace_error *error)
{
        const char *given = getenv(TRACE_MEMORY_VARIABLE);

        *allowed = 0;
        if (!given) {
                if (!checked_add(allowed, file_bytes, TRACE_MEMORY_MULTIPLE))
                        *allowed = UINT64_MAX;
                if (*allowed < TRACE_MEMORY_LEAST)
                        *allowed = TRACE_MEMORY_LEAST;
                return true;
        }
        if (!number_whole(given, allowed))
                return trace_fail(error, 0, TRACE_MEMORY_VARIABLE "=%.64s: expected bytes", given);
        return true;
}

bool trace_memory_allows(const struct trace_contents *contents, const struct trace_demand *demand,
                         uint64_t file_bytes, struct trace_error *error)
{
        static const struct trace_demand nothing;
        const struct trace_demand *more = demand ? demand : &nothing;
        uint64_t needed = file_bytes;
        uint64_t allowed;

        if (!memory_allowed(file_bytes, &allowed, error))
                return false;
        /* trace_check takes a byte of each object. */
        if (!checked_add(&needed, contents->records, RECORD_BYTES) ||
            !checked_add(&needed, contents->records, more->record) ||
            !checked_add(&needed, contents->objects, more->object + 1) ||
            !checked_add(&needed, contents->names, more->name + sizeof(char *)) ||
            !checked_add(&needed, contents->name_bytes, more->name_byte + 1) ||
            !checked_add(&needed, contents->others, 1))
                return trace_fail(error, 0, "%lu records take more memory than any machine has",
                                  (unsigned long)contents->records);
        if (needed <= allowed)
                return true;
        return trace_fail(error, 0,
                          "it takes %lu bytes of memory, and a file of %lu may take %lu; "
                          "--memory %luM allows it",
                          (unsigned long)needed, (unsigned long)file_bytes, (unsigned long)allowed,
                          (unsigned long)(needed >> 20) + 1);
}

bool trace_columns_make(struct trace *trace, uint64_t records)
{
        for (unsigned int i = 0; i < COLUMNS; i++) {
                uint64_t bytes = 1; /* there is always a column */

                if (checked_add(&bytes, records, columns[i].bytes))
                        *column_of(trace, &columns[i]) = malloc(bytes);
                if (!*column_of(trace, &columns[i]))
                        return false;
        }
        return true;
}

bool trace_names_add(struct trace_names *names, const char *text, size_t bytes, uint32_t count)
{
        size_t found = 0;
        uint32_t all;
        char *moved;

        for (size_t i = 0; i < bytes; i++)
                found += !text[i];
        errno = EINVAL;
        if (found != count || (bytes && text[bytes - 1]))
                return false;
        errno = EOVERFLOW;
        if (__builtin_add_overflow(names->count, count, &all))
                return false;
        errno = ENOMEM;
        moved = realloc(names->text, names->text_bytes + bytes + 1);
        if (!moved)
                return false;
        names->text = moved;
        memcpy(names->text + names->text_bytes, text, bytes);
        names->text_bytes += bytes;
        names->count = all;
        return true;
}

bool trace_names_finish(struct trace_names *names)
{
        const char *text = names->text;

        names->name = calloc((size_t)names->count + 1, sizeof(*names->name));
        if (!names->name)
                return false;
        for (uint32_t i = 0; i < names->count; i++) {
                names->name[i] = text;
                text += strlen(text) + 1;
        }
        return true;
}

static void names_free(struct trace_names *names)
{
        free(names->text);
        free(names->name);
}

void trace_free(struct trace *trace)
{
        for (unsigned int i = 0; i < COLUMNS; i++)
                free(*column_of(trace, &columns[i]));
        names_free(&trace->caches);
        names_free(&trace->sites);
        free(trace->source);
        memset(trace, 0, sizeof(*trace));
}

bool trace_records_valid(const struct trace *trace, uint64_t first, uint64_t objects,
                         uint64_t offset, struct trace_error *error)
{
        for (uint64_t i = first; i < trace->records; i++) {
                unsigned long record = (unsigned long)i;

                if ((trace->operation[i] & TRACE_OPERATION_MASK) >= TRACE_OPERATIONS ||
                    trace->operation[i] >> 6)
                        return trace_fail(error, offset,
                                          "record %lu has operation %u, which is none", record,
                                          trace->operation[i]);
                if (trace->cache[i] >= trace->caches.count)
                        return trace_fail(error, offset, "record %lu is of cache %u; %u have names",
                                          record, trace->cache[i], trace->caches.count);
                if (trace->site[i] >= trace->sites.count)
                        return trace_fail(error, offset, "record %lu is of site %u; %u have names",
                                          record, trace->site[i], trace->sites.count);
                if (trace->object[i] >= objects)
                        return trace_fail(error, offset,
                                          "record %lu is of object %u; there are %lu", record,
                                          trace->object[i], (unsigned long)objects);
                if (trace->cpu[i] >= trace->cpus)
                        return trace_fail(error, offset, "record %lu is of CPU %u; there are %u",
                                          record, trace->cpu[i], trace->cpus);
        }
        return true;
}

enum life { UNBORN, LIVES, GONE };

/* The fault of an operation on an object in this state, or NULL. */
static const char *wrong_operation(enum trace_operation operation, enum life life)
{
        switch (operation) {
        case TRACE_ALLOC:
        case TRACE_PAGE_ALLOC:
                return life == UNBORN ? NULL : "allocates an object that has been there already";
        case TRACE_ORPHAN:
                return life == UNBORN ? NULL : "is a free of an orphan that has been there already";
        default:
                break;
        }
        if (life == UNBORN)
                return "frees an object before its allocation";
        return life == LIVES ? NULL : "frees an object a second time";
}

static bool check_lives(const struct trace *trace, uint8_t *lives, struct trace_error *error)
{
        for (uint64_t i = 0; i < trace->records; i++) {
                enum trace_operation operation = trace->operation[i] & TRACE_OPERATION_MASK;
                uint8_t *life = &lives[trace->object[i]];
                const char *wrong = wrong_operation(operation, *life);

                if (wrong)
                        return trace_fail(error, 0, "record %lu %s: %u", (unsigned long)i, wrong,
                                          trace->object[i]);
                *life = operation == TRACE_ALLOC || operation == TRACE_PAGE_ALLOC ? LIVES : GONE;
        }
        return true;
}

bool trace_check(const struct trace *trace, struct trace_error *error)
{
        uint8_t *lives = calloc(trace->objects + 1, 1);
        bool sound;

        if (!lives)
                return trace_fail(error, 0, "no memory for %lu objects",
                                  (unsigned long)trace->objects);
        sound = check_lives(trace, lives, error);
        free(lives);
        return sound;
}
