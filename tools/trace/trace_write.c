/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Writes trace files (docs/trace-format.md): each block is compressed and written when it is full.
 */
#define _GNU_SOURCE
#include "tools/trace/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEVEL = 3 };

/* Names that were added and are not yet in the file. */
struct waiting_names {
        uint32_t count;
        size_t bytes;
        char text[BLOCK_BYTES_MAX / 4];
};

struct trace_writer {
        FILE *file;
        /*
         * While the number of CPUs is not known: the trace's file, which gets the header at the
         * end. `file` is then a file without a name, for the blocks behind the header.
         */
        FILE *headless;
        char *path;
        char *source;
        uint32_t cpus; /* 0: not known before the end */
        uint32_t page_bytes;
        uint32_t cpus_seen; /* the highest CPU of a record, and 1 */
        ZSTD_CCtx *compressor;
        uint64_t records;   /* in all */
        uint32_t waiting;   /* the part of them in `waiting_columns` */
        uint64_t last_time; /* of a record, ns */
        struct waiting_names caches;
        struct waiting_names sites;
        struct trace_error error; /* the first error */
        bool failed;              /* then nothing more is written */
        size_t packed_room;
        uint8_t *packed;                /* a frame */
        uint8_t block[BLOCK_BYTES_MAX]; /* the block that is being written */
        uint8_t waiting_columns[BLOCK_RECORDS_MAX * RECORD_BYTES]; /* each with room for all */
};

static void fail(struct trace_writer *writer, const char *what, const char *why)
{
        if (!writer->failed)
                trace_fail(&writer->error, 0, "%s: %s", what, why);
        writer->failed = true;
}

/* Writes a column as planes; returns their end. */
static uint8_t *column_split(uint8_t *to, const uint8_t *from, uint32_t count, size_t bytes)
{
        for (size_t byte = 0; byte < bytes; byte++)
                for (uint32_t i = 0; i < count; i++)
                        *to++ = from[i * bytes + byte];
        return to;
}

/* Writes a frame. */
static void write_frame(struct trace_writer *writer, const void *plain, size_t bytes)
{
        size_t packed;

        if (writer->failed)
                return;
        packed = ZSTD_compress2(writer->compressor, writer->packed, writer->packed_room, plain,
                                bytes);
        if (ZSTD_isError(packed))
                fail(writer, "cannot compress", ZSTD_getErrorName(packed));
        else if (fwrite(writer->packed, 1, packed, writer->file) != packed)
                fail(writer, "cannot write", strerror(errno));
}

static void write_names(struct trace_writer *writer, enum block_kind kind,
                        struct waiting_names *names)
{
        struct block_header header = {kind, names->count};

        if (!names->count)
                return;
        memcpy(writer->block, &header, sizeof(header));
        memcpy(writer->block + sizeof(header), names->text, names->bytes);
        write_frame(writer, writer->block, sizeof(header) + names->bytes);
        names->count = 0;
        names->bytes = 0;
}

static void write_records(struct trace_writer *writer)
{
        const uint8_t *from = writer->waiting_columns;
        uint8_t *to = writer->block;
        struct block_header header = {BLOCK_RECORDS, writer->waiting};

        write_names(writer, BLOCK_CACHES, &writer->caches);
        write_names(writer, BLOCK_SITES, &writer->sites);
        if (!writer->waiting)
                return;
        memcpy(to, &header, sizeof(header));
        to += sizeof(header);
        for (unsigned int i = 0; i < COLUMNS; i++) {
                to = column_split(to, from, writer->waiting, columns[i].bytes);
                from += BLOCK_RECORDS_MAX * columns[i].bytes;
        }
        write_frame(writer, writer->block, (size_t)(to - writer->block));
        writer->waiting = 0;
}

static void add_name(struct trace_writer *writer, enum block_kind kind, struct waiting_names *names,
                     const char *name)
{
        size_t bytes = strlen(name) + 1;

        if (bytes > NAME_BYTES_MAX) {
                fail(writer, "a name is longer than 4,095 bytes", name);
                return;
        }
        if (names->bytes + bytes > sizeof(names->text))
                write_names(writer, kind, names);
        memcpy(names->text + names->bytes, name, bytes);
        names->bytes += bytes;
        names->count++;
}

void trace_writer_cache(struct trace_writer *writer, const char *name)
{
        add_name(writer, BLOCK_CACHES, &writer->caches, name);
}

void trace_writer_site(struct trace_writer *writer, const char *name)
{
        add_name(writer, BLOCK_SITES, &writer->sites, name);
}

void trace_writer_add(struct trace_writer *writer, const struct trace_record *record)
{
        uint8_t *column = writer->waiting_columns;
        struct trace_record stepped = *record;

        if (record->time < writer->last_time) {
                fail(writer, "a record is earlier than the one before", "times must not fall");
                return;
        }
        if (record->cpu >= writer->cpus_seen)
                writer->cpus_seen = record->cpu + 1u;
        stepped.time -= writer->last_time;
        writer->last_time = record->time;
        for (unsigned int i = 0; i < COLUMNS; i++) {
                memcpy(column + writer->waiting * columns[i].bytes,
                       (char *)&stepped + columns[i].field, columns[i].bytes);
                column += BLOCK_RECORDS_MAX * columns[i].bytes;
        }
        writer->records++;
        if (++writer->waiting == BLOCK_RECORDS_MAX)
                write_records(writer);
}

void trace_writer_give_up(struct trace_writer *writer, const char *why)
{
        if (!writer->failed)
                trace_fail(&writer->error, 0, "%s", why);
        writer->failed = true;
}

static void write_header(struct trace_writer *writer)
{
        struct file_header header = {
                .version = TRACE_VERSION,
                .page_bytes = writer->page_bytes,
                .cpus = writer->cpus,
                .source_bytes = (uint32_t)strnlen(writer->source, SOURCE_BYTES_MAX),
        };

        memcpy(header.magic, TRACE_MAGIC, MAGIC_BYTES);
        memcpy(writer->block, &header, sizeof(header));
        memcpy(writer->block + sizeof(header), writer->source, header.source_bytes);
        write_frame(writer, writer->block, sizeof(header) + header.source_bytes);
}

/* Puts the blocks behind the header, which could not be written before. */
static void join(struct trace_writer *writer)
{
        FILE *blocks = writer->file;
        size_t got;

        writer->file = writer->headless;
        writer->headless = NULL;
        if (writer->cpus < writer->cpus_seen)
                writer->cpus = writer->cpus_seen;
        if (!writer->cpus)
                writer->cpus = 1;
        write_header(writer);
        rewind(blocks);
        while (!writer->failed && (got = fread(writer->packed, 1, writer->packed_room, blocks)) > 0)
                if (fwrite(writer->packed, 1, got, writer->file) != got)
                        fail(writer, "cannot write", strerror(errno));
        if (ferror(blocks))
                fail(writer, "cannot read what was written", strerror(errno));
        fclose(blocks);
}

static void writer_free(struct trace_writer *writer)
{
        if (writer->file)
                fclose(writer->file);
        if (writer->headless)
                fclose(writer->headless);
        ZSTD_freeCCtx(writer->compressor);
        free(writer->packed);
        free(writer->source);
        free(writer->path);
        free(writer);
}

/* A file beside the trace, where there is room for it, and without a name. */
static FILE *open_blocks(const char *path)
{
        FILE *file;
        char *name;

        if (asprintf(&name, "%s.blocks", path) < 0)
                return NULL;
        file = fopen(name, "w+bxe");
        if (file)
                unlink(name);
        free(name);
        return file;
}

static bool writer_prepare(struct trace_writer *writer, const char *path, const char *source,
                           struct trace_error *error)
{
        writer->path = strdup(path);
        writer->source = strdup(source);
        writer->packed_room = ZSTD_compressBound(BLOCK_BYTES_MAX);
        writer->packed = malloc(writer->packed_room);
        writer->compressor = ZSTD_createCCtx();
        if (!writer->path || !writer->source || !writer->packed || !writer->compressor)
                return trace_fail(error, 0, "no memory");
        ZSTD_CCtx_setParameter(writer->compressor, ZSTD_c_compressionLevel, LEVEL);
        ZSTD_CCtx_setParameter(writer->compressor, ZSTD_c_checksumFlag, 1);
        writer->file = fopen(path, "wbe");
        if (writer->file && !writer->cpus) {
                writer->headless = writer->file;
                writer->file = open_blocks(path);
        }
        return writer->file || trace_fail(error, 0, "cannot write: %s", strerror(errno));
}

struct trace_writer *trace_writer_open(const char *path, uint32_t cpus, uint32_t page_bytes,
                                       const char *source, struct trace_error *error)
{
        struct trace_writer *writer = calloc(1, sizeof(*writer));

        if (!writer) {
                trace_fail(error, 0, "no memory");
                return NULL;
        }
        writer->cpus = cpus;
        writer->page_bytes = page_bytes;
        if (!writer_prepare(writer, path, source ? source : "", error)) {
                writer_free(writer);
                return NULL;
        }
        if (cpus)
                write_header(writer);
        return writer;
}

void trace_writer_cpus(struct trace_writer *writer, uint32_t cpus)
{
        if (writer->headless)
                writer->cpus = cpus;
}

bool trace_writer_close(struct trace_writer *writer, uint64_t objects, struct trace_error *error)
{
        struct end_block end = {.header = {BLOCK_END, 0}, .objects = objects};
        struct stat status;
        bool is_file;
        bool whole;

        write_records(writer);
        end.records = writer->records;
        write_frame(writer, &end, sizeof(end));
        if (writer->headless)
                join(writer);
        is_file = fstat(fileno(writer->file), &status) == 0 && S_ISREG(status.st_mode);
        if (fclose(writer->file))
                fail(writer, "cannot write", strerror(errno));
        writer->file = NULL;
        whole = !writer->failed;
        if (!whole) {
                *error = writer->error;
                /* A device must not be removed. */
                if (is_file)
                        unlink(writer->path);
        }
        writer_free(writer);
        return whole;
}

bool trace_save(const char *path, const struct trace *trace, struct trace_error *error)
{
        struct trace_writer *writer =
                trace_writer_open(path, trace->cpus, trace->page_bytes, trace->source, error);

        if (!writer)
                return false;
        for (uint32_t i = 0; i < trace->caches.count; i++)
                trace_writer_cache(writer, trace->caches.name[i]);
        for (uint32_t i = 0; i < trace->sites.count; i++)
                trace_writer_site(writer, trace->sites.name[i]);
        for (uint64_t i = 0; i < trace->records; i++) {
                struct trace_record record = {0};

                for (unsigned int c = 0; c < COLUMNS; c++)
                        memcpy((char *)&record + columns[c].field,
                               (char *)*column_of((struct trace *)trace, &columns[c]) +
                                       i * columns[c].bytes,
                               columns[c].bytes);
                trace_writer_add(writer, &record);
        }
        return trace_writer_close(writer, trace->objects, error);
}
