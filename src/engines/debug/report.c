/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reports of debug caches in the kernel's format: gathers a call's text, then finds the places of
 * functions and writes it (report.h).
 */
#define _GNU_SOURCE
#include "engines/debug/report.h"

#include "machine/code_map.h"
#include "machine/message.h"
#include "machine/stack.h"
#include "base/metadata.h"
#include "base/options.h"
#include "lang/text.h"
#include "engines/debug/object.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DUMP_BYTES = 16 };

/* As the kernel says of itself after an error: from then on nothing in the heap can be trusted. */
static uint32_t tainted;

static void capture(struct debug_caller *caller)
{
        uintptr_t frames[STACK_FRAMES];
        unsigned int count = stack_capture(frames, STACK_FRAMES);

        caller->address = count ? frames[0] : 0;
        caller->stack = depot_keep(frames, count);
}

struct debug_caller report_caller(const struct kmem_cache *cache)
{
        struct debug_caller caller = {0};

        if (has_flag(cache, SLAB_STORE_USER | SLAB_TRACE))
                capture(&caller);
        return caller;
}

void report_begin(struct debug_report *report, struct kmem_cache *cache)
{
        report->cache = cache;
        report->caller = (struct debug_caller){0};
        text_begin(&report->text, report->small, sizeof(report->small));
        report->failed = false;
}

/* Gives the text twice the room; false if the text must do with its present room. */
static bool grow(struct debug_report *report)
{
        char *before = report->text.start;
        size_t room = report->text.room;
        size_t bytes = max_of(room * 2, (size_t)REPORT_LEAST_BYTES);
        char *text = bytes <= REPORT_MOST_BYTES ? metadata_alloc(bytes) : NULL;

        if (!text)
                return false;
        text_move(&report->text, text, bytes);
        if (before != report->small)
                metadata_free(before, room);
        return true;
}

/* A part that had no room is added again where the text went. */
static void add_list(struct debug_report *report, const char *format, va_list arguments)
{
        bool cut = report->text.full;
        va_list copy;

        do {
                va_copy(copy, arguments);
                text_add_list(&report->text, format, copy);
                va_end(copy);
        } while (!cut && report->text.full && grow(report));
}

void report_add(struct debug_report *report, const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        add_list(report, format, arguments);
        va_end(arguments);
}

void report_add_name(struct debug_report *report, const char *name)
{
        size_t start = report->text.used;

        report_add(report, "%s", name);
        for (size_t i = start; i < report->text.used; i++)
                if ((unsigned char)report->text.start[i] < ' ' || report->text.start[i] == 127)
                        report->text.start[i] = '?';
}

/* A place in code, found when the report is written (machine/code_map.h). */
static void report_add_symbol(struct debug_report *report, uintptr_t address)
{
        if (address)
                report_add(report, SYMBOL_MARK "%016lx", (unsigned long)address);
        else
                report_add(report, "<not-available>");
}

void report_add_bytes(struct debug_report *report, const char *what, const uint8_t *start,
                      size_t bytes)
{
        for (size_t at = 0; at < bytes; at += DUMP_BYTES) {
                size_t end = min_of(at + DUMP_BYTES, bytes);

                report_add(report, "%s%016lx:", what, (unsigned long)(uintptr_t)(start + at));
                for (size_t i = at; i < at + DUMP_BYTES; i++)
                        if (i < end)
                                report_add(report, " %02x", start[i]);
                        else
                                report_add(report, "   ");
                report_add(report, "  ");
                for (size_t i = at; i < end; i++)
                        report_add(report, "%c",
                                   start[i] >= ' ' && start[i] < 0x7f ? start[i] : '.');
                report_add(report, "\n");
        }
}

static void add_stack(struct debug_report *report, const struct stack *stack)
{
        for (uint32_t i = 0; stack && i < stack->count; i++) {
                report_add(report, " ");
                report_add_symbol(report, stack->frame[i]);
                report_add(report, "\n");
        }
}

static void add_track(struct debug_report *report, const char *what, const struct track *track)
{
        if (!track->pid)
                return;
        report_add(report, "%s in ", what);
        report_add_symbol(report, track->address);
        report_add(report, " age=%lu cpu=%d pid=%d\n",
                   (unsigned long)(system_time_ms() - track->when_ms), track->cpu, track->pid);
        if (!report->text.full && depot_has(track->stack))
                add_stack(report, track->stack);
}

void report_add_tracks(struct debug_report *report, void *object)
{
        if (!has_flag(report->cache, SLAB_STORE_USER))
                return;
        add_track(report, "Allocated", object_track(report->cache, object, TRACK_ALLOC));
        add_track(report, "Freed", object_track(report->cache, object, TRACK_FREE));
}

void debug_report_stranger(struct kmem_cache *cache, void *object)
{
        struct debug_report report;
        struct engine_node *node;

        if (!has_flag(cache, SLAB_STORE_USER) || !cache->engine->is_object(cache, object))
                return;
        report_begin(&report, cache);
        node = slab_node(cache, slub_slab_of(cache, object));
        lock_take(&node->list_lock);
        report_add_tracks(&report, object);
        lock_drop(&node->list_lock);
        report_send(&report);
}

static void add_slab(struct debug_report *report, struct page *slab)
{
        struct slab_state state = state_read(slab);

        report_add(report,
                   "Slab 0x%016lx objects=%u used=%u fp=0x%016lx flags=slab|node=%u|order=%u%s\n",
                   (unsigned long)(uintptr_t)page_address(slab), state.objects, state.inuse,
                   (unsigned long)(uintptr_t)first_free(report->cache, slab), slab->node,
                   slab->order, state.frozen ? "|disabled" : "");
}

static size_t offset_in_slab(const struct page *slab, const void *address)
{
        return (uintptr_t)address - (uintptr_t)page_address(slab);
}

static void add_object(struct debug_report *report, struct page *slab, void *object)
{
        const struct kmem_cache *cache = report->cache;
        const uint8_t *bytes = object;

        report_add(report, "Object 0x%016lx @offset=%zu fp=0x%016lx\n\n",
                   (unsigned long)(uintptr_t)object, offset_in_slab(slab, object),
                   (unsigned long)(uintptr_t)*free_pointer_place(cache, object));
        if (has_flag(cache, SLAB_RED_ZONE))
                report_add_bytes(report, "Redzone  ", bytes - cache->red_left_pad,
                                 cache->red_left_pad);
        else if (offset_in_slab(slab, object) >= DUMP_BYTES)
                report_add_bytes(report, "Bytes b4 ", bytes - DUMP_BYTES, DUMP_BYTES);
        report_add_bytes(report, "Object   ", bytes, min_of((size_t)cache->object_size, PAGE_SIZE));
        if (has_flag(cache, SLAB_RED_ZONE))
                report_add_bytes(report, "Redzone  ", bytes + cache->object_size,
                                 cache->inuse - cache->object_size);
        report_add_bytes(report, "Padding  ", bytes + padding_offset(cache),
                         padding_end(cache) - padding_offset(cache));
}

void report_count(struct debug_report *report)
{
        report->failed = true;
        add_relaxed(&report->cache->debug_errors, 1);
}

uint64_t debug_errors(const struct kmem_cache *cache)
{
        return load_relaxed(&cache->debug_errors);
}

static void add_all(struct debug_report *report, struct page *slab, void *object)
{
        report_add(report,
                   "\n----------------------------------------------------------------------"
                   "-------\n\n");
        if (object)
                report_add_tracks(report, object);
        if (slab)
                add_slab(report, slab);
        if (object)
                add_object(report, slab, object);
        store_relaxed(&tainted, 1);
}

static void add_heading(struct debug_report *report)
{
        report_add(report, "======================================================================="
                           "======\nBUG ");
        report_add_name(report, report->cache->name);
        report_add(report, " (%s): ", load_relaxed(&tainted) ? "Tainted: B" : "Not tainted");
}

void report_show(struct debug_report *report, struct page *slab, void *object, const char *reason)
{
        add_heading(report);
        report_add(report, "%s", reason);
        add_all(report, slab, object);
}

void report_error(struct debug_report *report, struct page *slab, void *object, const char *format,
                  ...)
{
        va_list arguments;

        report_count(report);
        add_heading(report);
        va_start(arguments, format);
        add_list(report, format, arguments);
        va_end(arguments);
        add_all(report, slab, object);
}

void report_fix(struct debug_report *report, const char *format, ...)
{
        va_list arguments;

        report_count(report);
        report_add(report, "FIX ");
        report_add_name(report, report->cache->name);
        report_add(report, ": ");
        va_start(arguments, format);
        add_list(report, format, arguments);
        va_end(arguments);
        report_add(report, "\n");
}

void report_trace(struct debug_report *report, struct page *slab, void *object, bool alloc)
{
        if (!has_flag(report->cache, SLAB_TRACE))
                return;
        report_add(report, "TRACE ");
        report_add_name(report, report->cache->name);
        report_add(report, " %s 0x%016lx inuse=%u fp=0x%016lx\n", alloc ? "alloc" : "free",
                   (unsigned long)(uintptr_t)object, state_read(slab).inuse,
                   (unsigned long)(uintptr_t)first_free(report->cache, slab));
        if (!alloc)
                report_add_bytes(report, "Object   ", object,
                                 min_of((size_t)report->cache->object_size, PAGE_SIZE));
}

/* The caller of the operation that found the errors (item 7). */
static void add_caller(struct debug_report *report)
{
        char name[SYSTEM_NAME_BYTES];

        if (!report->caller.stack)
                capture(&report->caller);
        system_thread_name(name);
        report_add(report, "CPU: %u PID: %u Comm: ", system_current_cpu(), system_thread_id());
        report_add_name(report, name);
        report_add(report, "\nCall Trace:\n");
        if (report->caller.stack)
                add_stack(report, report->caller.stack);
        else
                report_add(report, " <not-available>\n");
        report_add(report, "\n");
}

/* Without memory for places the addresses are written, each behind a dot. */
static void write_marked(struct debug_report *report)
{
        for (size_t i = 0; i < report->text.used; i++)
                if (report->text.start[i] == SYMBOL_MARK[0])
                        report->text.start[i] = '.';
        message_write(STDERR_FILENO, report->text.start, report->text.used);
}

/*
 * Places in files, not names of functions: the dynamic linker takes a lock for those, which a
 * thread may hold that waits for this one.
 */
static void write_report(struct debug_report *report)
{
        struct code_map *map = code_map_take();
        size_t bytes = code_map_resolve(map, report->text.start, NULL, 0) + 1;
        char *placed = metadata_alloc(bytes);

        if (placed) {
                code_map_resolve(map, report->text.start, placed, bytes);
                message_write(STDERR_FILENO, placed, bytes - 1);
                metadata_free(placed, bytes);
        } else {
                write_marked(report);
        }
        code_map_drop(map);
}

/* Written behind a report that was cut. */
static void write_why_cut(const struct debug_report *report)
{
        const char *why = report->text.room < REPORT_MOST_BYTES
                                  ? "\n(there is no memory for the rest)\n"
                                  : "\n(a report has 4 MiB at most: the rest is left out)\n";

        message_write(STDERR_FILENO, why, strlen(why));
}

void report_send(struct debug_report *report)
{
        if (report->text.used) {
                add_caller(report);
                write_report(report);
                if (report->text.full)
                        write_why_cut(report);
        }
        if (report->text.start != report->small)
                metadata_free(report->text.start, report->text.room);
        if (report->failed && options.debug_abort)
                abort();
}
