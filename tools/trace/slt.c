/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reads traces in the form SLTR0001 (docs/trace-format.md), plain or in a single zstd frame. The
 * frame's checksum is only known at its end, so counts are not believed before that: memory grows
 * with the data that is there.
 */
#include "tools/trace/checked.h"
#include "tools/trace/format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
        PIECE_BYTES = 1 << 20,
        SLT_RECORD_BYTES = 6 * 4 + 2 * 2 + 2 * 1, /* in the file, plain */
};

/* The plain bytes of a file in order. */
struct source {
        struct input *input;
        size_t at;            /* in the file */
        ZSTD_DStream *stream; /* NULL: the file is plain */
        size_t hint;          /* bytes the decompressor wants next; 0: the frame has ended */
        size_t asked;         /* where the present step began */
        struct frame frame;   /* of the stream */
};

struct slt_header {
        char magic[MAGIC_BYTES];
        uint64_t records;
        uint32_t caches;
        uint32_t sites;
        uint32_t objects;
        uint32_t text_bytes;
};

/*
 * Takes a step of the decompressor with the bytes that it asks for, so that an error gets its exact
 * place.
 */
static bool step(struct source *source, ZSTD_outBuffer *out, struct trace_error *error)
{
        size_t before = out->pos;
        ZSTD_inBuffer in;

        source->asked = source->at;
        if (!input_fetch(source->input, (uint64_t)source->at + source->hint, error))
                return false;
        in = (ZSTD_inBuffer){source->input->bytes, source->input->have, source->at};
        if (source->hint < in.size - in.pos)
                in.size = in.pos + source->hint;
        source->hint = ZSTD_decompressStream(source->stream, out, &in);
        if (ZSTD_isError(source->hint))
                return trace_fail(error, source->asked, "damaged: %s",
                                  ZSTD_getErrorName(source->hint));
        source->at = in.pos;
        if (source->hint && out->pos == before && in.pos == source->asked && in.pos == in.size)
                return trace_fail(error, in.pos, "the file ends too early");
        return true;
}

static bool decompress(struct source *source, ZSTD_outBuffer *out, struct trace_error *error)
{
        while (out->pos < out->size) {
                if (!source->hint)
                        return trace_fail(error, source->at, "the compressed data ends too early");
                if (!step(source, out, error))
                        return false;
        }
        return true;
}

static bool read_bytes(struct source *source, void *bytes, size_t count, struct trace_error *error)
{
        ZSTD_outBuffer out = {bytes, count, 0};

        if (source->stream)
                return decompress(source, &out, error);
        if (!input_fetch(source->input, (uint64_t)source->at + count, error))
                return false;
        if (count > source->input->have - source->at)
                return trace_fail(error, source->input->have, "the file ends too early");
        memcpy(bytes, source->input->bytes + source->at, count);
        source->at += count;
        return true;
}

/* Reads @count bytes into memory that grows with them. */
static void *read_growing(struct source *source, uint64_t count, struct trace_error *error)
{
        uint8_t *bytes = malloc(1); /* there is always something */
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
                trace_fail(error, source->at, "no memory for what comes here");
        return bytes;
}

static bool read_column(struct source *source, void **column, uint64_t count, size_t bytes,
                        struct trace_error *error)
{
        uint64_t all = 0;

        if (!checked_add(&all, count, bytes))
                return trace_fail(error, 0, "%lu records are more than any file has",
                                  (unsigned long)count);
        *column = read_growing(source, all, error);
        return *column != NULL;
}

/* Reads a column with narrower numbers than a trace has. */
static bool read_widened(struct source *source, uint64_t count, size_t from_bytes, void **column,
                         size_t to_bytes, struct trace_error *error)
{
        void *narrow = NULL;
        uint8_t *wide;

        if (!read_column(source, &narrow, count, from_bytes, error))
                return false;
        wide = calloc(count ? count : 1, to_bytes);
        for (uint64_t i = 0; wide && i < count; i++)
                memcpy(wide + i * to_bytes, (uint8_t *)narrow + i * from_bytes, from_bytes);
        free(narrow);
        *column = wide;
        return wide ||
               trace_fail(error, source->at, "no memory for %lu records", (unsigned long)count);
}

/* The end of @count names, in bytes; 0 if there are fewer. */
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
        if (!sound && errno == ENOMEM)
                return trace_fail(error, source->asked, "no memory for names");
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
                if (!checked_add(&trace->time[i], trace->time[i - 1], 1))
                        return trace_fail(error, source->at, "record %lu is later than any clock",
                                          (unsigned long)i);
        return true;
}

/* Reads the checksum, and checks that nothing follows. */
static bool read_to_the_end(struct source *source, struct trace_error *error)
{
        uint8_t more;
        ZSTD_outBuffer out = {&more, 1, 0};

        while (source->stream && source->hint && !out.pos)
                if (!step(source, &out, error))
                        return false;
        if (out.pos || source->at != source->input->size)
                return trace_fail(error, source->at, "more data follows behind the trace");
        return true;
}

/*
 * Whether the data can be as long as the header says, and may be. If the frame does not tell its
 * length, the allowed memory bounds the counts.
 */
static bool header_fits(const struct source *source, const struct slt_header *header,
                        const struct trace_demand *demand, struct trace_error *error)
{
        uint64_t there = source->stream ? source->frame.content : source->input->size;
        uint64_t bytes = sizeof(*header) + header->text_bytes;
        struct trace_contents contents = {
                .records = header->records,
                .objects = header->objects,
                .names = (uint64_t)header->caches + header->sites,
                .name_bytes = header->text_bytes,
                /* Names are copied. */
                .others = source->frame.window + header->text_bytes,
        };

        if (there != ZSTD_CONTENTSIZE_UNKNOWN &&
            (!checked_add(&bytes, header->records, SLT_RECORD_BYTES) || bytes > there))
                return trace_fail(error, source->input->size,
                                  "the file ends too early for %lu records and %u bytes of names",
                                  (unsigned long)header->records, header->text_bytes);
        /* Readers make tables of objects. */
        if (header->objects > header->records)
                return trace_fail(error, 0, "%u objects in %lu records; expected one of each",
                                  header->objects, (unsigned long)header->records);
        /*
         * For a while a column is narrow and wide at once. A sum beyond 64 bits is refused below.
         */
        checked_add(&contents.others, header->records, sizeof(uint32_t));
        return trace_memory_allows(&contents, demand, source->input->size, error);
}

static bool read_trace(struct source *source, const struct trace_demand *demand,
                       struct trace *trace, struct trace_error *error)
{
        struct slt_header header;
        uint32_t cpus = 0;

        if (!read_bytes(source, &header, sizeof(header), error))
                return false;
        if (memcmp(header.magic, SLT_MAGIC, MAGIC_BYTES) != 0)
                return trace_fail(error, 0, "expected " SLT_MAGIC);
        if (!header_fits(source, &header, demand, error) ||
            !read_all_names(source, &header, trace, error) ||
            !read_columns(source, header.records, trace, error) || !read_to_the_end(source, error))
                return false;
        for (uint64_t i = 0; i < trace->records; i++)
                cpus = cpus > trace->cpu[i] ? cpus : trace->cpu[i] + 1u;
        trace->cpus = cpus;
        trace->page_bytes = 4096;
        trace->objects = header.objects;
        trace->source = calloc(1, 1);
        if (!trace->source)
                return trace_fail(error, 0, "no memory");
        return trace_records_valid(trace, 0, trace->objects, source->input->size, error);
}

static bool start_stream(struct source *source, struct trace_error *error)
{
        const struct input *input = source->input;

        if (!frame_look(input->bytes, input->have, 0, &source->frame, error))
                return false;
        source->stream = ZSTD_createDStream();
        if (!source->stream)
                return trace_fail(error, 0, "no memory");
        source->hint = ZSTD_initDStream(source->stream);
        return true;
}

bool slt_load(struct input *input, const struct trace_demand *demand, struct trace *trace,
              struct trace_error *error)
{
        struct source source = {.input = input};
        bool sound;

        if ((input->have < MAGIC_BYTES || memcmp(input->bytes, SLT_MAGIC, MAGIC_BYTES) != 0) &&
            !start_stream(&source, error))
                return false;
        sound = read_trace(&source, demand, trace, error);
        ZSTD_freeDStream(source.stream);
        return sound;
}
