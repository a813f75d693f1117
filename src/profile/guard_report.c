/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reports of sampled guards: lines on standard error, and a line of JSON in a file that stays when
 * the process has ended (`kmem guards` reads it).
 *
 * A report may be made in a signal handler, in the middle of anything: it uses system calls and
 * static memory only. One thread reports at a time, and others wait, because a thread that has
 * reported usually ends the process. Functions are not named here, as the dynamic linker takes a
 * lock for that; places in files stand for them (machine/code_map.h).
 */
#define _GNU_SOURCE
#include "profile/guard.h"

#include "lang/text.h"
#include "machine/code_map.h"
#include "machine/fault.h"
#include "machine/file.h"
#include "machine/message.h"
#include "machine/syscall.h"
#include "machine/system.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
        TRACES = 3,
        REPORT_BYTES = 16 << 10,
        WALK_BYTES = 12 << 10, /* room on the stack for a walk */
        REPORTS_MOST = 64,     /* of a process; others are only counted */
};

/* A call stack of the report. */
struct trace {
        const char *title; /* in the lines */
        const char *key;   /* in JSON */
        uint32_t thread;   /* 0: there is no such step */
        uint32_t count;
        uintptr_t frame[STACK_FRAMES];
};

/* Of the thread that reports. */
static struct {
        struct trace trace[TRACES];
        struct code_map *map; /* NULL: places are not known */
        char text[REPORT_BYTES];
} report KMEM_SPARSE;
/* The thread that has `report`, by the address of its errno; NULL: none has. */
static void *reporter;

static const char *const kinds[] = {
        [GUARD_OVERFLOW] = "overflow",
        [GUARD_UNDERFLOW] = "underflow",
        [GUARD_USE_AFTER_FREE] = "use after free",
        [GUARD_FREED_TWICE] = "double free",
        [GUARD_FREED_INSIDE] = "wrong free",
        [GUARD_NO_OBJECT] = "wild access",
};

/* ---- The stacks ---------------------------------------------------------------------------------- */

static void add_step(struct trace *trace, const struct guard_step *step, const char *title,
                     const char *key)
{
        *trace = (struct trace){.title = title, .key = key, .thread = step->thread};
        if (!step->thread || !step->stack)
                return;
        trace->count = step->stack->count;
        memcpy(trace->frame, step->stack->frame, trace->count * sizeof(*trace->frame));
}

/*
 * The stack of the fault. The instruction stands for a call: readers look at the byte in front of an
 * address.
 */
static void add_here(struct trace *trace, uintptr_t instruction)
{
        *trace = (struct trace){.title = "here", .key = "here", .thread = system_thread_id()};
        if (!instruction) {
                trace->count = stack_capture(trace->frame, STACK_FRAMES);
                return;
        }
        if (fault_stack_has(WALK_BYTES))
                trace->count = stack_capture_from(instruction, trace->frame);
        if (!trace->count) {
                trace->count = 1;
                trace->frame[0] = instruction;
        }
        trace->frame[0]++;
}

/* ---- The texts ----------------------------------------------------------------------------------- */

static void add_frame_line(struct text *text, uintptr_t address)
{
        size_t start = text->used;

        text_add(text, "kmem:     ");
        text->used += code_map_text(report.map, address, text->start + text->used,
                                    text->room - text->used);
        if (text->used < text->room - 1)
                text_add(text, "\n");
        else
                text->used = start; /* it has no room */
}

/* "12 bytes behind the object" and the like. */
static void add_where(struct text *text, const struct guard_event *event)
{
        size_t bytes = event->guard->bytes;
        size_t distance = event->distance;

        if (event->fault == GUARD_OVERFLOW)
                text_add(text, "%zu bytes behind the end", distance);
        else if (event->fault == GUARD_UNDERFLOW)
                text_add(text, "%zu bytes in front of the start", distance);
        else if (event->address < event->guard->address)
                text_add(text, "%zu bytes in front of the start",
                         (size_t)(event->guard->address - event->address));
        else if (distance < bytes || !distance)
                text_add(text, "%zu bytes into it", distance);
        else
                text_add(text, "%zu bytes behind the end", distance - bytes + 1);
}

static void add_lines(struct text *text, const struct guard_event *event)
{
        const struct guard *guard = event->guard;

        text_add(text, "kmem: %s: %s at 0x%lx", kinds[event->fault], event->access,
                 (unsigned long)event->address);
        if (guard) {
                text_add(text, ", ");
                add_where(text, event);
                text_add(text, ", of an object of %zu bytes at 0x%lx of cache %s", guard->bytes,
                         (unsigned long)guard->address, guard->cache);
        } else {
                text_add(text, ", where no guarded object was yet");
        }
        text_add(text, "\n");
        for (int t = 0; t < TRACES; t++) {
                const struct trace *trace = &report.trace[t];

                if (!trace->thread)
                        continue;
                text_add(text, "kmem:   %s by thread %u:\n", trace->title, trace->thread);
                if (!trace->count)
                        text_add(text, "kmem:     (no stack)\n");
                for (uint32_t i = 0; i < trace->count; i++)
                        add_frame_line(text, trace->frame[i]);
        }
}

/* Names are the program's: quotes, control characters and bytes beyond ASCII become '?'. */
static void add_quoted(struct text *text, const char *name)
{
        size_t start = text->used + 1;

        text_add(text, "\"%s\"", name);
        for (size_t i = start; i + 1 < text->used; i++) {
                unsigned char letter = (unsigned char)text->start[i];

                if (letter < ' ' || letter > '~' || letter == '"' || letter == '\\')
                        text->start[i] = '?';
        }
}

static void add_trace_json(struct text *text, int t)
{
        const struct trace *trace = &report.trace[t];

        text_add(text, ",\"%s\":{\"thread\":%u,\"frames\":[", trace->key, trace->thread);
        for (uint32_t i = 0; i < trace->count; i++) {
                struct code_place place = {0};

                if (report.map)
                        place = code_map_find(report.map, trace->frame[i]);
                text_add(text, "%s[", i ? "," : "");
                add_quoted(text, place.path ? place.path : "");
                text_add(text, ",%lu,%lu]", (unsigned long)place.offset,
                         (unsigned long)trace->frame[i]);
        }
        text_add(text, "]}");
}

static void add_json(struct text *text, const struct guard_event *event)
{
        char command[SYSTEM_NAME_BYTES];

        system_thread_name(command);
        text_add(text,
                 "{\"fault\":\"%s\",\"access\":\"%s\",\"address\":%lu,\"process\":%u,"
                 "\"time\":%lu,\"command\":",
                 kinds[event->fault], event->access, (unsigned long)event->address,
                 system_process_id(), (unsigned long)system_clock_seconds());
        add_quoted(text, command);
        if (event->guard) {
                text_add(text, ",\"object\":%lu,\"bytes\":%zu,\"distance\":%zu,\"where\":\"",
                         (unsigned long)event->guard->address, event->guard->bytes,
                         event->distance);
                add_where(text, event);
                text_add(text, "\",\"cache\":");
                add_quoted(text, event->guard->cache);
        }
        for (int t = 0; t < TRACES; t++)
                if (report.trace[t].thread)
                        add_trace_json(text, t);
        text_add(text, "}\n");
}

/*
 * A line that the program's limit of file sizes would cut is left out, and of one that a full folder cuts the part is
 * taken away: readers could not read the next one.
 */
static void write_file(const struct text *text)
{
        struct stat status;
        long file;

        if (text->full || system_entered_sandbox())
                return;
        file = registry_open_faults();
        if (file < 0)
                return;
        if (file_status((int)file, NULL, &status) == 0 &&
            file_limit_allows((uint64_t)status.st_size + text->used) &&
            message_write((int)file, text->start, text->used))
                system_call(SYS_ftruncate, file, status.st_size, 0);
        file_close(file);
}

void guard_report(const struct guard_event *event)
{
        static const struct guard_step none;
        uint64_t number = add_relaxed(&guard_figures.faults, 1);
        void *nobody = NULL;
        struct text text;

        if (number > REPORTS_MOST)
                return;
        /* A signal handler interrupted this thread's report, which goes on when it returns. */
        if (load_relaxed(&reporter) == &errno) {
                message("%s: %s at 0x%lx, in a signal handler while another fault was reported",
                        kinds[event->fault], event->access, (unsigned long)event->address);
                return;
        }
        /* Acquire, with the release below. */
        while (!compare_swap_acquire(&reporter, &nobody, (void *)&errno)) {
                nobody = NULL;
                system_sleep_ns(1000000);
        }
        add_here(&report.trace[0], event->instruction);
        add_step(&report.trace[1], event->guard ? &event->guard->allocated : &none, "allocated",
                 "allocated");
        add_step(&report.trace[2], event->guard ? &event->guard->freed : &none, "freed", "freed");
        report.map = code_map_take();
        text_begin(&text, report.text, sizeof(report.text));
        add_lines(&text, event);
        message_write(STDERR_FILENO, text.start, text.used);
        text_begin(&text, report.text, sizeof(report.text));
        add_json(&text, event);
        write_file(&text);
        code_map_drop(report.map);
        store_release(&reporter, NULL);
}

void guard_report_fork_child(void)
{
        if (load_relaxed(&reporter) != &errno)
                store_relaxed(&reporter, NULL);
}
