/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Raw recordings (record/format.h), as record-program reads them. The first byte of an input is the
 * process whose trace is made, 0 for the list of all; then comes the header, of which there is no
 * more than its fields, and then the events.
 */
#define _GNU_SOURCE
#include "target.h"

#include "lab/format.h"
#include "tools/record/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static jmp_buf died;

/* What the program leaves behind when it ends. */
enum { KEPT_MOST = 4096 };
static void *kept[KEPT_MOST];
static size_t kept_count;

static void *keep(void *block)
{
        expect(block && kept_count < KEPT_MOST);
        kept[kept_count++] = block;
        return block;
}

static void *keep_array(size_t count, size_t bytes)
{
        return keep(calloc(count, bytes));
}

static void *keep_longer(void *block, size_t bytes)
{
        size_t place = 0;

        if (!block)
                return keep(malloc(bytes));
        while (kept[place] != block)
                expect(++place < kept_count);
        kept[place] = realloc(block, bytes);
        expect(kept[place] != NULL);
        return kept[place];
}

#define calloc keep_array
#define realloc keep_longer
#define main record_program_main
#include "tools/record/program.c"
#undef main
#undef realloc
#undef calloc

void die(const char *format, ...)
{
        char text[512];
        va_list arguments;

        va_start(arguments, format);
        expect(vsnprintf(text, sizeof(text), format, arguments) > 0);
        va_end(arguments);
        longjmp(died, 1);
}

void print_counts(FILE *file, const struct lives_counts *counts)
{
        expect(counts->living == counts->allocations - counts->frees - counts->implied);
}

/* In the place of the writer, which would compress: what it is given must be a trace. */
struct trace_writer {
        uint64_t last_time;
        uint64_t objects;
        uint32_t cpus;
        uint32_t caches;
        uint32_t sites;
        bool given_up;
};
static struct trace_writer writer;

struct trace_writer *trace_writer_open(const char *path, uint32_t cpus, uint32_t page_bytes,
                                       const char *source, struct trace_error *error)
{
        writer = (struct trace_writer){.cpus = cpus};
        expect(cpus <= TRACE_CPUS_MAX);
        return &writer;
}

void trace_writer_cache(struct trace_writer *to, const char *name)
{
        expect(strlen(name) < NAME_BYTES_MAX && to->caches++ < TRACE_CACHES_MAX);
}

void trace_writer_site(struct trace_writer *to, const char *name)
{
        expect(strlen(name) < NAME_BYTES_MAX);
        to->sites++;
}

void trace_writer_add(struct trace_writer *to, const struct trace_record *record)
{
        expect(record->time >= to->last_time && record->cache < to->caches &&
               record->site < to->sites && (record->cpu < to->cpus || !record->cpu));
        to->last_time = record->time;
        if (record->object >= to->objects)
                to->objects = (uint64_t)record->object + 1;
}

void trace_writer_give_up(struct trace_writer *to, const char *why)
{
        to->given_up = true;
}

bool trace_writer_close(struct trace_writer *to, uint64_t objects, struct trace_error *error)
{
        expect(to->given_up || to->objects == objects);
        return !to->given_up || trace_fail(error, 0, "given up");
}

static const char *make_file(const uint8_t *bytes, size_t size)
{
        static char path[64];
        static int file = -1;
        size_t head = size < sizeof(struct record_header) ? size : sizeof(struct record_header);

        if (file < 0)
                file = memfd_create("raw", MFD_CLOEXEC);
        expect(file >= 0 && !ftruncate(file, 0));
        expect(pwrite(file, bytes, head, 0) == (ssize_t)head);
        if (size > head) {
                expect(!ftruncate(file, RECORD_HEADER_BYTES));
                expect(pwrite(file, bytes + head, size - head, RECORD_HEADER_BYTES) ==
                       (ssize_t)(size - head));
        }
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
        return path;
}

static void run(const char *path, unsigned int number, struct raw *raw)
{
        map_raw(raw, path);
        find_processes(raw);
        if (number && raw->processes[number].id)
                write_trace(raw, path, number, "", "fuzz");
        else if (!number)
                print_processes(raw);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        static struct raw raw;
        const char *path;

        if (!size)
                return 0;
        raw = (struct raw){0};
        path = make_file(bytes + 1, size - 1);
        if (!setjmp(died))
                run(path, *bytes, &raw);
        if (raw.header)
                munmap((void *)(uintptr_t)raw.header,
                       RECORD_HEADER_BYTES + size - 1 - sizeof(struct record_header));
        while (kept_count)
                free(kept[--kept_count]);
        return 0;
}
