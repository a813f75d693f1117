/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Traces: allocations and frees, each with its object, CPU, thread, time, and place in the code. In
 * memory a trace is columns; in a file it is blocks of columns (docs/trace-format.md). Files of
 * recorded kernels in the older form (.slt, .slt.zst) are read as well.
 *
 * Not part of the library: the laboratory's tools and kmem.traces.file (Python) use it. No function
 * prints; struct trace_error describes a faulty file.
 */
#ifndef KMEM_TOOLS_TRACE_TRACE_H
#define KMEM_TOOLS_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum trace_operation {
        TRACE_ALLOC = 0,      /* the object's life begins */
        TRACE_FREE = 1,       /* and ends */
        TRACE_IMPLIED = 2,    /* a free that nobody recorded: the address was handed out again */
        TRACE_ORPHAN = 3,     /* free of an object that was allocated before the trace */
        TRACE_PAGE_ALLOC = 4, /* pages from the page allocator */
        TRACE_PAGE_FREE = 5,
        TRACE_OPERATIONS,
        TRACE_OPERATION_MASK = 7,
        /* Bits beside the operation. */
        TRACE_KFREE = 8,    /* the free came through kfree */
        TRACE_SOFTIRQ = 16, /* in a soft interrupt: the thread is the interrupted thread */
        TRACE_HARDIRQ = 32,
};

enum {
        TRACE_CACHE_KMALLOC = 0, /* memory by size has no cache */
        TRACE_CACHE_UNKNOWN = 1,
        TRACE_SITE_UNKNOWN = 0,
        TRACE_CACHES_MAX = 1 << 16,
        TRACE_CPUS_MAX = 1 << 16,
        /*
         * The memory that may be taken: so many times the bytes of the file, but at least the
         * second.
         */
        TRACE_MEMORY_MULTIPLE = 128,
        TRACE_MEMORY_LEAST = 256 << 20,
};

/* An environment variable: the bytes that may be taken instead. Option --memory of kmem sets it. */
#define TRACE_MEMORY_VARIABLE "KMEM_TRACE_MEMORY"

/* Names by id; each ends with a zero byte. */
struct trace_names {
        uint32_t count;
        const char **name;
        char *text;
        size_t text_bytes;
};

struct trace {
        uint64_t records;
        uint64_t objects; /* ids of objects are below; an id is a life, not an address */
        uint32_t cpus;    /* CPUs of the machine; numbers in `cpu` are below */
        uint32_t page_bytes;
        uint64_t file_bytes; /* of the file that was read; 0 if there is none */
        char *source;        /* text: a description of the recording; may be empty */
        struct trace_names caches;
        struct trace_names sites; /* places in the code, "symbol+0xoffset" */

        /* An entry for each record, in the order of time. */
        uint64_t *time;      /* nanoseconds since the trace began; never falls */
        uint64_t *requested; /* bytes; a free repeats those of its allocation; 0 if unknown */
        uint64_t *given;     /* bytes that the recorded allocator gave; 0 if unknown */
        int32_t *thread;
        uint32_t *object;
        uint32_t *site;  /* id of the call's place */
        uint32_t *flags; /* gfp bits as the recorded kernel numbers them; 0 for frees */
        uint16_t *cpu;
        uint16_t *cache;    /* id */
        uint8_t *operation; /* enum trace_operation, and bits */
};

/* A fault of a file, and its place. */
struct trace_error {
        uint64_t offset; /* byte in the file at which the unreadable part begins */
        char text[240];  /* a line, without the file's name */
};

/* Bytes that a user of a trace takes for each record and so on. */
struct trace_demand {
        uint64_t record;
        uint64_t object;
        uint64_t name;      /* of a cache or site */
        uint64_t name_byte; /* of its text */
};

/* The numbers of records and so on in a trace. */
struct trace_contents {
        uint64_t records;
        uint64_t objects;
        uint64_t names;
        uint64_t name_bytes;
        uint64_t others; /* bytes that are taken besides */
};

/*
 * trace_memory_allows - whether a file of @file_bytes may have that much memory taken
 * @demand: beside the memory of a loaded trace; may be NULL
 *
 * Returns false with *error saying how much is needed, and which option allows it; its offset is 0.
 */
bool trace_memory_allows(const struct trace_contents *contents, const struct trace_demand *demand,
                         uint64_t file_bytes, struct trace_error *error);

/*
 * trace_load - read a whole trace of either form, told apart by content
 * @demand: the memory that the caller will take for the trace besides; may be NULL
 *
 * Returns false with *error set if the file cannot be read, was cut short, is damaged, has content
 * that no trace has (an id without a name, an unknown operation, a newer version), or needs more
 * memory than it may take. Then *trace is empty. Free with trace_free.
 */
bool trace_load(const char *path, const struct trace_demand *demand, struct trace *trace,
                struct trace_error *error);

/* Writes a whole trace. False with *error set (offset 0), and then no file is left. */
bool trace_save(const char *path, const struct trace *trace, struct trace_error *error);

void trace_free(struct trace *trace);

/*
 * trace_check - whether the lives of objects are whole
 *
 * Each id is allocated at most once and freed at most once, after that; orphans have no
 * allocation. Returns false with *error saying the first record (counted from 0) that is wrong, or
 * that there is no memory for a byte of each object; its offset is 0.
 */
bool trace_check(const struct trace *trace, struct trace_error *error);

/*
 * Writing while recording. Names are given their ids in the order they are added, before the
 * first record that uses them. Any failure is kept and reported by trace_writer_close.
 */
struct trace_writer;

struct trace_record {
        uint64_t time;
        uint64_t requested;
        uint64_t given;
        int32_t thread;
        uint32_t object;
        uint32_t site;
        uint32_t flags;
        uint16_t cpu;
        uint16_t cache;
        uint8_t operation;
};

/*
 * NULL with *error set if the file cannot be made. @source may be NULL. @cpus may be 0 if nobody
 * knows: then the header has as many as the records, or as trace_writer_cpus says if these are more.
 */
struct trace_writer *trace_writer_open(const char *path, uint32_t cpus, uint32_t page_bytes,
                                       const char *source, struct trace_error *error);
void trace_writer_cache(struct trace_writer *writer, const char *name);
void trace_writer_site(struct trace_writer *writer, const char *name);
/* Times must not fall. */
void trace_writer_add(struct trace_writer *writer, const struct trace_record *record);
/* Makes the closing of an incomplete trace fail, with @why unless there was an earlier failure. */
void trace_writer_give_up(struct trace_writer *writer, const char *why);
/* The number of CPUs, of a trace that was opened without. */
void trace_writer_cpus(struct trace_writer *writer, uint32_t cpus);
/* @objects: as in struct trace. Frees the writer; on failure the file is removed. */
bool trace_writer_close(struct trace_writer *writer, uint64_t objects, struct trace_error *error);

#endif
