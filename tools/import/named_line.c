/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A line about a kmem tracepoint whose fields stand in brackets, each behind its name, as babeltrace
 * prints traces of LTTng, of a kernel or by its wrapper of a program's malloc, and as perf trace prints
 * events:
 *
 *     [10:00:00.123456789] (+0.000001234) host kmem_kmalloc: { cpu_id = 2 }, { tid = 77 }, { ptr = 0x..., ... }
 *     [2018-05-16 01:51:29.858503019] host kmem_kfree: { cpu_id = 4 }, { call_site = 0x..., ptr = 0x... }
 *     [10:00:00.123456789] (+0.000001234) host lttng_ust_libc:malloc: { cpu_id = 2 }, { size = 8, ptr = 0x... }
 *       0.108 bash/1234 kmem:kmalloc(call_site: -2124952363, ptr: 0x..., bytes_req: 4096, gfp_flags: 3264)
 *       0.108 (         ): bash/1234 kmem:kfree(call_site=f+0x258 ptr=0x...)
 *       0.108 kmem:kfree:call_site=f+0x258 ptr=0x...)
 *
 * Times of perf trace are milliseconds. It leaves out a field that is zero, and of call_site it prints
 * the lower 32 bits as a signed number, which on x86 is the whole address of a kernel's function.
 */
#include "tools/import/kernel_event.h"

#include "lang/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
        FRAME_BLANKS = 20,        /* in front of a frame of perf trace's stacks, at least */
        MILLISECOND_DIGITS = 3,   /* behind the point of perf trace's times */
        SITE_BYTES = 24,          /* an address of 64 bits as text */
        MILLISECOND_NS = 1000000, /* ns */
        YEAR_MOST = 2500,         /* its ns since 1970 have 64 bits */
};

#define LETTERS "abcdefghijklmnopqrstuvwxyz_"

/* What a line of LTTng says besides a kernel's fields: the place of an event, and what malloc was asked for. */
struct lttng_fields {
        struct part cpu, thread, process;
        struct part size, times, released, result, error;
};

static const char *behind_blanks(const char *text)
{
        return text + strspn(text, " \t");
}

/* Behind the string whose first quotation mark is at @text; backslashes hide marks. */
static const char *behind_string(const char *text)
{
        for (text++; *text && *text != '"'; text++)
                if (*text == '\\' && text[1])
                        text++;
        return text + (*text == '"');
}

static struct part *lttng_field(struct lttng_fields *fields, struct part key)
{
        const struct {
                const char *name;
                struct part *field;
        } known[] = {
                {"cpu_id", &fields->cpu},     {"tid", &fields->thread},
                {"vtid", &fields->thread},    {"pid", &fields->process},
                {"vpid", &fields->process},   {"size", &fields->size},
                {"nmemb", &fields->times},    {"in_ptr", &fields->released},
                {"out_ptr", &fields->result}, {"result", &fields->error},
        };

        for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
                if (part_is(key, known[i].name))
                        return known[i].field;
        return NULL;
}

/* "NAME = VALUE" or "NAME: VALUE" at @text; behind it, or NULL if there is none. */
static const char *read_field(const char *text, struct kernel_fields *fields,
                              struct lttng_fields *lttng)
{
        struct part key = {text, strspn(text, LETTERS)};
        const char *value = behind_blanks(text + key.length);
        const char *end;
        struct part *field;

        if (!key.length || (*value != '=' && *value != ':'))
                return NULL;
        value = behind_blanks(value + 1);
        field = kernel_field(fields, key);
        if (!field && lttng)
                field = lttng_field(lttng, key);
        if (*value == '"') {
                end = behind_string(value);
                value++;
                if (field)
                        *field = (struct part){value, (size_t)(end - value) - (end[-1] == '"')};
                return end;
        }
        end = value + strcspn(value, ", \t{}[]()");
        if (field && end != value)
                *field = (struct part){value, (size_t)(end - value)};
        return end;
}

/* All fields to the line's end, however they are grouped. */
static struct kernel_fields read_named(const char *text, struct lttng_fields *lttng)
{
        struct kernel_fields fields = {.decimal_flags = true};

        while (*text) {
                const char *behind = read_field(text, &fields, lttng);

                if (behind)
                        text = behind;
                else if (*text == '"')
                        text = behind_string(text);
                else
                        text += strspn(text, LETTERS) + !strspn(text, LETTERS);
        }
        return fields;
}

/* The call site in the letters of other recorders: an address is in small letters, without 0x. */
static void name_site(struct kernel_fields *fields, char *text)
{
        struct part site = fields->call_site;
        bool is_negative = site.length && *site.text == '-';
        uint64_t address;

        if (!site.length)
                return;
        if (is_negative)
                site = (struct part){site.text + 1, site.length - 1};
        if (strncmp(site.text, "0x", 2) == 0 ? !kernel_address(site, &address)
                                             : !kernel_number(site, INT64_MAX, &address))
                return;
        if (is_negative)
                address = -address;
        site.length = (size_t)snprintf(text, SITE_BYTES, "%" PRIx64, address);
        fields->call_site = (struct part){text, site.length};
}

/* The seconds from 1970 to "2018-05-16 " at @text; false if no date is there, or none of a trace. */
static bool read_date(const char *text, uint64_t *seconds)
{
        uint64_t part[3];
        struct tm date = {0};

        for (unsigned int i = 0; i < 3; i++)
                if (number_scan(&text, 10, &part[i]) != NUMBER_READ || *text++ != "-- "[i])
                        return false;
        if (part[0] < 1970 || part[0] > YEAR_MOST || !part[1] || part[1] > 12 || !part[2] ||
            part[2] > 31)
                return false;
        date.tm_year = (int)part[0] - 1900;
        date.tm_mon = (int)part[1] - 1;
        date.tm_mday = (int)part[2];
        *seconds = (uint64_t)timegm(&date);
        return true;
}

/* "10:00:00.123456789", behind a date or not, "1234.567890123", or ticks, between brackets. */
static bool read_stamp(struct import *import, const char *open, const char *close)
{
        const char *text = close;
        const char *colon;
        unsigned int colons = 0;
        uint64_t part;
        uint64_t seconds = 0;
        uint64_t date;
        uint64_t time;

        while (text > open + 1 && text[-1] != ' ')
                text--;
        colon = text;
        while ((colon = memchr(colon, ':', (size_t)(close - colon)))) {
                if (number_scan(&text, 10, &part) != NUMBER_READ || text != colon || part > 60 ||
                    ++colons > 2)
                        return false;
                seconds = 60 * (seconds + part);
                text = ++colon;
        }
        if (!kernel_time(text, close, &time))
                return false;
        import->now = time + seconds * SECOND_NS;
        if (colons && read_date(open + 1, &date))
                import->now += date * SECOND_NS;
        else if (colons)
                import->now = import_time_of_day(import, import->now);
        return true;
}

/* A call of a program by LTTng's wrapper: malloc, free, calloc, realloc, memalign or posix_memalign. */
static enum line_kind wrapped_call(struct import *import, struct part name,
                                   const struct kernel_fields *fields,
                                   const struct lttng_fields *lttng, struct open_call *call)
{
        struct part result = lttng->result.text ? lttng->result : fields->pointer;
        uint64_t address;
        uint64_t times = 1;

        if (!kernel_address(result, &address))
                return line_bad(import, "%.*s without ptr", (int)name.length, name.text);
        if (part_is(name, "free")) {
                call->released = address;
                import_call(import, call, 0);
                return LINE_TAKEN;
        }
        if (!kernel_number(lttng->size, UINT64_MAX, &call->bytes) ||
            (lttng->times.text && !kernel_number(lttng->times, UINT64_MAX, &times)))
                return line_bad(import, "%.*s without size", (int)name.length, name.text);
        if (lttng->released.text && !kernel_address(lttng->released, &call->released))
                return line_bad(import, "%.*s without in_ptr", (int)name.length, name.text);
        /* posix_memalign returns an error, and leaves its result alone then. */
        if (lttng->error.text && !part_is(lttng->error, "0"))
                address = 0;
        if (__builtin_mul_overflow(call->bytes, times, &call->bytes))
                import->failed++;
        else
                import_call(import, call, address);
        return LINE_TAKEN;
}

static enum line_kind babeltrace_line(struct import *import, const char *line)
{
        static const char wrapper[] = "lttng_ust_libc:";
        const char *close = strchr(line, ']');
        const char *groups = close ? strstr(close, ": {") : NULL;
        struct part name = {groups, 0};
        struct lives_event event = {0};
        struct lttng_fields lttng = {0};
        const struct kernel_kind *kind;
        struct kernel_fields fields;
        char site[SITE_BYTES];
        uint64_t number;
        bool is_call;

        if (!groups)
                return LINE_NOT_OURS;
        while (name.text > close + 1 && name.text[-1] != ' ')
                name.text--;
        is_call = strncmp(name.text, wrapper, sizeof(wrapper) - 1) == 0;
        if (is_call)
                name.text += sizeof(wrapper) - 1;
        else if (strncmp(name.text, "kmem_", 5) == 0 && !kernel_kind(name.text, ':'))
                name.text += 5;
        name.length = (size_t)(groups - name.text);
        kind = is_call ? NULL : kernel_kind(name.text, ':');
        if (!kind && !is_call) {
                import->others++;
                return LINE_TAKEN;
        }
        if (line_trim(groups, groups + strlen(groups))[-1] != '}')
                return line_bad(import, "%.*s without its last \"}\"", (int)name.length, name.text);
        fields = read_named(groups + 1, &lttng);
        if (!kernel_number(lttng.cpu, UINT64_MAX, &number))
                return line_bad(import, "%.*s without cpu_id", (int)name.length, name.text);
        if (number >= import->cpus_most)
                return line_bad(import, "expected a CPU below %u", import->cpus_most);
        event.cpu = (uint16_t)number;
        if (kernel_number(lttng.thread, INT32_MAX, &number) ||
            kernel_number(lttng.process, INT32_MAX, &number))
                event.thread = (int32_t)number;
        if (!read_stamp(import, line, close))
                return line_bad(import, "expected a time before the event, not \"%.*s\"",
                                (int)(close - line > 40 ? 40 : close - line), line);
        if (is_call)
                return wrapped_call(import, name, &fields, &lttng,
                                    &(struct open_call){.cpu = event.cpu, .thread = event.thread});
        name_site(&fields, site);
        return kernel_event(import, kind, &fields, &event);
}

/* Behind a time of perf trace, which is "?" for a call that began before; NULL without one. */
static const char *behind_milliseconds(const char *text, uint64_t *time)
{
        uint64_t fraction;

        *time = 0;
        if (text[0] == '?' && text[1] == ' ')
                return text + 1;
        if (number_scan(&text, 10, time) != NUMBER_READ || *text++ != '.' ||
            strspn(text, "0123456789") != MILLISECOND_DIGITS ||
            *time > UINT64_MAX / (2 * MILLISECOND_NS))
                return NULL;
        number_scan(&text, 10, &fraction);
        *time = *time * MILLISECOND_NS + fraction * 1000;
        return *text == ' ' ? text : NULL;
}

/* A line of a stack: "    kmem_cache_alloc ([kernel.kallsyms])". */
static bool is_stack(const char *line)
{
        const char *text = behind_blanks(line);
        const char *open = strstr(text, " (");

        return text - line >= FRAME_BLANKS && open && open != text &&
               line_trim(text, text + strlen(text))[-1] == ')';
}

/* The number behind the "/" of "name/12", before @end: -1 of a task that is gone. False without it. */
static bool thread_before(const char *line, const char *end, int32_t *thread)
{
        const char *first = end = line_trim(line, end);
        uint64_t number;
        bool gone;

        while (first > line && first[-1] >= '0' && first[-1] <= '9')
                first--;
        gone = first > line && first[-1] == '-';
        if (!kernel_number((struct part){first, (size_t)(end - first)}, INT32_MAX, &number) ||
            first - gone == line || first[-1 - gone] != '/')
                return false;
        *thread = gone ? -1 : (int32_t)number;
        return true;
}

/* Fields as the kernel prints them, up to the bracket that ends the event. */
static struct kernel_fields fields_before(const char *text, const char *close)
{
        struct kernel_fields fields = kernel_fields(text);
        struct part *const all[] = {&fields.call_site, &fields.pointer, &fields.requested,
                                    &fields.given,     &fields.flags,   &fields.name};

        for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
                if (all[i]->text && all[i]->text + all[i]->length > close)
                        all[i]->length = (size_t)(close - all[i]->text);
        return fields;
}

/* The fields behind @end, "(" or ":", which older releases print. */
static enum line_kind perf_trace_event(struct import *import, const struct kernel_kind *kind,
                                       const char *text, char end, struct lives_event *event)
{
        static const struct part zero = {"0", 1};
        const char *close = line_trim(text, text + strlen(text));
        bool is_closed = close > text && close[-1] == ')';
        struct kernel_fields fields;
        char site[SITE_BYTES];

        if (!is_closed && end == '(')
                return line_bad(import, "%s without its last \")\"", kind->name);
        if (text[strspn(text, LETTERS)] == ':') {
                fields = read_named(text, NULL);
                name_site(&fields, site);
                if (!fields.pointer.text)
                        fields.pointer = zero;
                if (!fields.requested.text)
                        fields.requested = zero;
        } else {
                fields = fields_before(text, close - is_closed);
        }
        return kernel_event(import, kind, &fields, event);
}

static enum line_kind perf_trace_line(struct import *import, const char *line)
{
        static const char group[] = "kmem:";
        uint64_t time;
        const char *text = behind_milliseconds(behind_blanks(line), &time);
        const char *name = text;
        struct lives_event event = {0};

        if (!text)
                return is_stack(line) ? import->others++, LINE_TAKEN : LINE_NOT_OURS;
        text = behind_blanks(text);
        while ((name = strstr(name, group))) {
                const struct kernel_kind *kind;
                bool is_first = name == text || strncmp(name - 3, "): ", 3) == 0;
                bool has_thread = thread_before(text, name, &event.thread);
                char end;

                name += sizeof(group) - 1;
                end = name[strspn(name, LETTERS)];
                kind = end == '(' || end == ':' ? kernel_kind(name, end) : NULL;
                if (!kind || (!has_thread && !is_first))
                        continue;
                import->now = time;
                return perf_trace_event(import, kind, name + kind->length + 1, end, &event);
        }
        /* Other tracepoints, and calls of the kernel with their durations. */
        name = strchr(text, '/');
        if (*text != '(' && (!name || name[1] < '0' || name[1] > '9'))
                return LINE_NOT_OURS;
        import->others++;
        return LINE_TAKEN;
}

enum line_kind named_line(struct import *import, const char *line)
{
        const char *text = behind_blanks(line);

        if (*text == '[' && text[1] >= '0' && text[1] <= '9')
                return babeltrace_line(import, text);
        return perf_trace_line(import, line);
}
