/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Raw recordings (record/format.h), as record-program reads them. The first byte of an input
 * chooses the process to make a trace of, 0 the list of all processes. Then come the header's
 * fields, and then the events.
 */
#define _GNU_SOURCE
#include "target.h"

#include "tools/trace/format.h"
#include "tools/record/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static jmp_buf died;

/* The program leaves texts behind when it ends, and here it ends with each input. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
        return "detect_leaks=0";
}

/*
 * State that the program leaves behind when it ends. Its large tables are mapped, and emptied for
 * the next input, because a run uses only few of their pages; a page without access follows each
 * table.
 */
enum { KEPT_MOST = 4096, LARGE_BYTES = 1 << 16, GUARD_BYTES = 4096, SPARE_MOST = 32 };
static struct block {
        void *start;
        void *mapped; /* NULL: by malloc */
        size_t bytes;
} kept[KEPT_MOST], spare[SPARE_MOST];
static size_t kept_count;
static size_t spare_count; /* empty frames */

static void *keep(struct block block)
{
        expect(block.start && kept_count < KEPT_MOST);
        kept[kept_count++] = block;
        return block.start;
}

static void *keep_array(size_t count, size_t bytes)
{
        size_t all = count * bytes;
        size_t room = (all + GUARD_BYTES - 1) / GUARD_BYTES * GUARD_BYTES;
        char *mapped;

        if (all < LARGE_BYTES)
                return keep((struct block){calloc(count, bytes), NULL, all});
        for (size_t i = 0; i < spare_count; i++)
                if (spare[i].bytes == room + GUARD_BYTES) {
                        struct block found = spare[i];

                        spare[i] = spare[--spare_count];
                        return keep(found);
                }
        mapped = mmap(NULL, room + GUARD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
        expect(mapped != MAP_FAILED && !mprotect(mapped + room, GUARD_BYTES, PROT_NONE));
        return keep((struct block){mapped + room - all, mapped, room + GUARD_BYTES});
}

static void *keep_longer(void *block, size_t bytes)
{
        void *longer = keep((struct block){malloc(bytes), NULL, bytes});

        for (size_t i = 0; block && i < kept_count; i++)
                if (kept[i].start == block)
                        memcpy(longer, block, kept[i].bytes);
        return longer;
}

static void keep_on(void *block)
{
}

static void drop_kept(void)
{
        for (; kept_count; kept_count--) {
                struct block *last = &kept[kept_count - 1];

                if (!last->mapped)
                        free(last->start);
                else if (spare_count == SPARE_MOST)
                        munmap(last->mapped, last->bytes);
                else if (!madvise(last->mapped, last->bytes, MADV_DONTNEED))
                        spare[spare_count++] = *last;
        }
}

int record_program_main(int argc, char **argv);

#define calloc keep_array
#define realloc keep_longer
#define free keep_on
#define main record_program_main
#define write write_record
#include "tools/trace/lives.c"
#undef write
#include "tools/record/program.c"
#undef main
#undef free
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

/* Stands in for the writer, which would compress: its input must be a trace. */
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

void trace_writer_cpus(struct trace_writer *to, uint32_t cpus)
{
        to->cpus = cpus;
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
        drop_kept();
        return 0;
}
