/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Numbers of the trace file that reader and writer share; docs/trace-format.md has their meaning.
 */
#ifndef KMEM_TOOLS_TRACE_FORMAT_H
#define KMEM_TOOLS_TRACE_FORMAT_H

#include "tools/trace/trace.h"

#include <zstd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "trace files are little-endian, and so must be the machine"
#endif

#define TRACE_MAGIC "KMEMTRCE"
#define SLT_MAGIC "SLTR0001"

enum {
        TRACE_VERSION = 1,
        MAGIC_BYTES = 8,
        BLOCK_RECORDS_MAX = 1 << 16, /* at most, in a block */
        BLOCK_BYTES_MAX = 4 << 20,   /* of any block, decompressed */
        NAME_BYTES_MAX = 4096,       /* of a name, its zero byte included */
        SOURCE_BYTES_MAX = 1 << 16,  /* of the text in the header */
        WINDOW_BYTES_MAX = 1 << 27,  /* of a frame; zstd's own limit without an option for more */
};

enum block_kind { BLOCK_CACHES = 1, BLOCK_SITES = 2, BLOCK_RECORDS = 3, BLOCK_END = 4 };

struct file_header {
        char magic[MAGIC_BYTES];
        uint32_t version;
        uint32_t page_bytes;
        uint32_t cpus;
        uint32_t source_bytes;
};

struct block_header {
        uint32_t kind;
        uint32_t count; /* names or records; 0 at the end */
};

struct end_block {
        struct block_header header;
        uint64_t records;
        uint64_t objects;
};

/* The columns of a block in the order of the file, and their places in a struct trace. */
struct column {
        size_t offset; /* of the pointer in struct trace */
        size_t bytes;  /* of an entry */
        size_t field;  /* offset in struct trace_record */
};
#define COLUMN(name)                                                                               \
        {                                                                                          \
                offsetof(struct trace, name), sizeof(*((struct trace *)NULL)->name),               \
                        offsetof(struct trace_record, name)                                        \
        }
static const struct column columns[] = {
        COLUMN(time), COLUMN(requested), COLUMN(given), COLUMN(thread), COLUMN(object),
        COLUMN(site), COLUMN(flags),     COLUMN(cpu),   COLUMN(cache),  COLUMN(operation),
};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]), RECORD_BYTES = 3 * 8 + 4 * 4 + 2 * 2 + 1 };

_Static_assert(BLOCK_RECORDS_MAX *RECORD_BYTES + sizeof(struct block_header) <= BLOCK_BYTES_MAX,
               "a block of records is within the bound for blocks");

/* The place of a column's pointer in a trace. */
static inline void **column_of(struct trace *trace, const struct column *column)
{
        return (void **)(void *)((char *)trace + column->offset);
}

bool trace_fail(struct trace_error *error, uint64_t offset, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* The bytes of a file that were read so far, from the first on. */
struct input {
        int file;
        uint8_t *bytes;
        size_t have;
        size_t size; /* of the file */
};

/* Reads on until there are @until bytes, or the whole file. The bytes may move. */
bool input_fetch(struct input *input, uint64_t until, struct trace_error *error);

/* The facts in the header of a zstd frame. */
struct frame {
        uint64_t content; /* bytes, or ZSTD_CONTENTSIZE_UNKNOWN */
        uint64_t window;  /* bytes */
        bool has_checksum;
};

/*
 * Whether a standard zstd frame without dictionary, and with a window of usual size, begins at
 * @bytes.
 */
bool frame_look(const uint8_t *bytes, size_t left, uint64_t offset, struct frame *frame,
                struct trace_error *error);

/* Makes all columns, each of @records entries. */
bool trace_columns_make(struct trace *trace, uint64_t records);

/*
 * Adds @count names, @bytes with their zero bytes. False if @text has fewer names (errno EINVAL),
 * if there would be 2^32 names (EOVERFLOW), or without memory (ENOMEM). trace_names_finish sets the
 * pointers, because the text moves.
 */
bool trace_names_add(struct trace_names *names, const char *text, size_t bytes, uint32_t count);
bool trace_names_finish(struct trace_names *names);

/* slt.c: the older form, from its first byte on. */
bool slt_load(struct input *input, const struct trace_demand *demand, struct trace *trace,
              struct trace_error *error);

/*
 * Whether records from @first on are possible in a trace, by the names and CPUs known so far and
 * ids below @objects. If not, *error has @offset and the record's number.
 */
bool trace_records_valid(const struct trace *trace, uint64_t first, uint64_t objects,
                         uint64_t offset, struct trace_error *error);

#endif
