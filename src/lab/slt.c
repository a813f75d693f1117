/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reads traces in the form SLTR0001 (docs/trace-format.md), plain or as one zstd frame. The
 * frame's checksum is only known at its end, so counts are not believed before that: memory grows
 * with the data that is there.
 */
#include "lab/format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 20 };

/* Plain bytes, one after the other. */
struct source {
        ZSTD_inBuffer in;
        ZSTD_DStream *stream; /* NULL: the file is plain */
        size_t hint;          /* bytes the decompressor wants next; 0: the frame has ended */
        size_t asked;         /* where the step that is being taken began */
};

struct slt_header {
        char magic[MAGIC_BYTES];
        uint64_t records;
        uint32_t caches;
        uint32_t sites;
        uint32_t objects;
        uint32_t text_bytes;
};

/* Feeds the decompressor what it asks for, so that an error is found where it is. */
static bool decompress(struct source *source, ZSTD_outBuffer *out, struct trace_error *error)
{
        while (out->pos < out->size) {
                ZSTD_inBuffer step = source->in;
                size_t before = out->pos;

                source->asked = step.pos;
                if (!source->hint)
                        return trace_fail(error, step.pos, "the compressed data ends too early");
                if (source->hint < step.size - step.pos)
                        step.size = step.pos + source->hint;
                source->hint = ZSTD_decompressStream(source->stream, out, &step);
                if (ZSTD_isError(source->hint))
                        return trace_fail(error, source->asked, "damaged: %s",
                                          ZSTD_getErrorName(source->hint));
                source->in.pos = step.pos;
                if (out->pos == before && step.pos == source->asked && step.pos == step.size)
                        return trace_fail(error, step.pos, "the file ends too early");
        }
        return true;
}

static bool read_bytes(struct source *source, void *bytes, size_t count, struct trace_error *error)
{
        ZSTD_outBuffer out = {bytes, count, 0};

        if (source->stream)
                return decompress(source, &out, error);
        if (count > source->in.size - source->in.pos)
                return trace_fail(error, source->in.size, "the file ends too early");
        memcpy(bytes, (const uint8_t *)source->in.src + source->in.pos, count);
        source->in.pos += count;
        return true;
}

/* Reads @count bytes into memory that grows with them. */
static void *read_growing(struct source *source, uint64_t count, struct trace_error *error)
{
        uint8_t *bytes = malloc(1);
        uint64_t got = 0;

        while (bytes && got < count) {
                size_t piece = count - got < PIECE_BYTES ? count - got : PIECE_BYTES;
                uint8_t *moved = realloc(bytes, got + piece);

                if (moved && read_bytes(source, moved + got, piece, error)) {
                        bytes = moved;
                        got += piece;
                        continue;
                }
                free(moved ? moved : bytes);
                if (moved)
                        return NULL;
                bytes = NULL;
        }
        if (!bytes)
                trace_fail(error, source->in.pos, "no memory for what comes here");
        return bytes;
}

static bool read_column(struct source *source, void **column, uint64_t count, size_t bytes,
                        struct trace_error *error)
{
        uint64_t all;

        if (__builtin_mul_overflow(count, bytes, &all))
                return trace_fail(error, 0, "%lu records are more than any file has",
                                  (unsigned long)count);
        *column = read_growing(source, all, error);
        return *column != NULL;
}

/* A column of narrower numbers than ours. */
static bool read_widened(struct source *source, uint64_t count, size_t from_bytes, void **column,
                         size_t to_bytes, struct trace_error *error)
{
        void *narrow = NULL;
        uint8_t *wide;

        if (!read_column(source, &narrow, count, from_bytes, error))
                return false;
        wide = calloc(count + 1, to_bytes);
        for (uint64_t i = 0; wide && i < count; i++)
                memcpy(wide + i * to_bytes, (uint8_t *)narrow + i * from_bytes, from_bytes);
        free(narrow);
        *column = wide;
        return wide ||
               trace_fail(error, source->in.pos, "no memory for %lu records", (unsigned long)count);
}

/* Where @count names end, in bytes; 0 if there are fewer. */
static size_t names_end(const char *text, size_t bytes, uint32_t count)
{
        size_t end = 0;

        for (; count; count--) {
                const char *zero = end < bytes ? memchr(text + end, 0, bytes - end) : NULL;

                if (!zero)
                        return 0;
                end = (size_t)(zero - text) + 1;
        }
        return end;
}

static bool read_all_names(struct source *source, const struct slt_header *header,
                           struct trace *trace, struct trace_error *error)
{
        char *text = read_growing(source, header->text_bytes, error);
        size_t end;
        bool sound;

        if (!text)
                return false;
        end = names_end(text, header->text_bytes, header->caches);
        sound = trace_names_add(&trace->caches, text, end, header->caches) &&
                trace_names_add(&trace->sites, text + end, header->text_bytes - end, header->sites);
        free(text);
        return sound ||
               trace_fail(error, source->asked, "expected the names of %u caches and %u sites",
                          header->caches, header->sites);
}

static bool read_columns(struct source *source, uint64_t records, struct trace *trace,
                         struct trace_error *error)
{
        const struct {
                void *column;
                size_t from, to;
        } order[] = {
                {&trace->time, 4, 8},      {&trace->operation, 1, 1}, {&trace->cpu, 1, 2},
                {&trace->thread, 4, 4},    {&trace->cache, 2, 2},     {&trace->site, 2, 4},
                {&trace->requested, 4, 8}, {&trace->given, 4, 8},     {&trace->object, 4, 4},
                {&trace->flags, 4, 4},
        };

        for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
                if (!read_widened(source, records, order[i].from, order[i].column, order[i].to,
                                  error))
                        return false;
        trace->records = records;
        for (uint64_t i = 1; i < records; i++)
                trace->time[i] += trace->time[i - 1];
        return true;
}

/* The checksum, and that nothing follows. */
static bool read_to_the_end(struct source *source, struct trace_error *error)
{
        uint8_t more;
        ZSTD_outBuffer out = {&more, 1, 0};

        while (source->stream && source->hint && !out.pos) {
                ZSTD_inBuffer *in = &source->in;
                size_t from = in->pos;

                source->hint = ZSTD_decompressStream(source->stream, &out, in);
                if (ZSTD_isError(source->hint))
                        return trace_fail(error, from, "damaged: %s",
                                          ZSTD_getErrorName(source->hint));
                if (in->pos == from && !out.pos && source->hint)
                        return trace_fail(error, from, "the file ends too early");
        }
        if (out.pos || source->in.pos != source->in.size)
                return trace_fail(error, source->in.pos, "more data follows behind the trace");
        return true;
}

static bool read_trace(struct source *source, struct trace *trace, struct trace_error *error)
{
        struct slt_header header;
        uint32_t cpus = 0;

        if (!read_bytes(source, &header, sizeof(header), error))
                return false;
        if (memcmp(header.magic, SLT_MAGIC, MAGIC_BYTES) != 0)
                return trace_fail(error, 0, "expected " SLT_MAGIC);
        if (!read_all_names(source, &header, trace, error) ||
            !read_columns(source, header.records, trace, error) || !read_to_the_end(source, error))
                return false;
        /* Readers make tables of objects. */
        if (header.objects > header.records)
                return trace_fail(error, 0, "%u objects in %lu records; expected one of each",
                                  header.objects, (unsigned long)header.records);
        for (uint64_t i = 0; i < trace->records; i++)
                cpus = cpus > trace->cpu[i] ? cpus : trace->cpu[i] + 1u;
        trace->cpus = cpus;
        trace->page_bytes = 4096;
        trace->objects = header.objects;
        trace->source = calloc(1, 1);
        if (!trace->source)
                return trace_fail(error, 0, "no memory");
        return trace_records_valid(trace, 0, trace->objects, source->in.size, error);
}

bool slt_load(const uint8_t *bytes, size_t size, struct trace *trace, struct trace_error *error)
{
        struct source source = {.in = {bytes, size, 0}};
        bool sound;

        if (size < MAGIC_BYTES || memcmp(bytes, SLT_MAGIC, MAGIC_BYTES) != 0) {
                source.stream = ZSTD_createDStream();
                if (!source.stream)
                        return trace_fail(error, 0, "no memory");
                source.hint = ZSTD_initDStream(source.stream);
        }
        sound = read_trace(&source, trace, error);
        ZSTD_freeDStream(source.stream);
        return sound;
}
