/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reads trace files (docs/trace-format.md). Each block is a zstd frame with a checksum, so a frame
 * is known to be sound before its content is read, and an error has the frame's offset.
 */
#include "tools/trace/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The most bytes of a frame in the file: zstd's bound for a block that cannot be compressed. */
#define FRAME_BYTES_MAX ZSTD_COMPRESSBOUND(BLOCK_BYTES_MAX)

/* Ids have 32 bits. */
#define OBJECTS_MAX ((uint64_t)UINT32_MAX + 1)

/* The file, and the block that is being read. */
struct reading {
        struct input *input;
        size_t at;      /* of the next frame */
        size_t started; /* of the frame of this block */
        uint8_t *block;
        size_t block_bytes;
        size_t block_room;
        uint64_t room; /* entries in the columns */
        uint64_t last_time;
};

static bool no_memory(const struct reading *reading, struct trace_error *error)
{
        return trace_fail(error, reading->started, "no memory for what comes here");
}

static bool make_block_room(struct reading *reading, size_t bytes)
{
        if (bytes <= reading->block_room)
                return true;
        free(reading->block);
        reading->block = malloc(bytes);
        reading->block_room = reading->block ? bytes : 0;
        return reading->block != NULL;
}

/* Decompresses the next frame into reading->block. */
static bool next_block(struct reading *reading, struct trace_error *error)
{
        struct input *input = reading->input;
        size_t at = reading->at;
        struct frame frame;
        size_t packed;
        size_t got;

        reading->started = at;
        if (!input_fetch(input, (uint64_t)at + FRAME_BYTES_MAX, error))
                return false;
        if (at == input->have)
                return trace_fail(error, at, "the file ends without its end block");
        if (!frame_look(input->bytes + at, input->have - at, at, &frame, error))
                return false;
        packed = ZSTD_findFrameCompressedSize(input->bytes + at, input->have - at);
        if (ZSTD_isError(packed))
                return trace_fail(error, at, "expected a whole zstd frame: %s",
                                  ZSTD_getErrorName(packed));
        if (frame.content < sizeof(struct block_header) || frame.content > BLOCK_BYTES_MAX)
                return trace_fail(error, at,
                                  "expected a block of %zu to %d bytes with its size stated",
                                  sizeof(struct block_header), BLOCK_BYTES_MAX);
        if (!frame.has_checksum)
                return trace_fail(error, at, "expected a block with a checksum");
        if (!make_block_room(reading, frame.content))
                return no_memory(reading, error);
        got = ZSTD_decompress(reading->block, frame.content, input->bytes + at, packed);
        if (ZSTD_isError(got))
                return trace_fail(error, at, "damaged block: %s", ZSTD_getErrorName(got));
        if (got != frame.content)
                return trace_fail(error, at, "a block of %zu bytes; its frame says %lu", got,
                                  (unsigned long)frame.content);
        reading->block_bytes = got;
        reading->at += packed;
        return true;
}

static uint64_t least(uint64_t one, uint64_t other)
{
        return one < other ? one : other;
}

/*
 * Counts the content of the blocks from here on, so that all of it is known before any is kept. A
 * block that is not sound ends the count, and is reported when it is read. A number in its header
 * is not believed beyond the block's room.
 */
static void count_blocks(struct reading *reading, struct trace_contents *contents)
{
        size_t first = reading->at;
        struct block_header header = {0};
        struct trace_error unsound;

        while (header.kind != BLOCK_END && next_block(reading, &unsound)) {
                uint64_t bytes = reading->block_bytes - sizeof(header);

                memcpy(&header, reading->block, sizeof(header));
                if (header.kind == BLOCK_CACHES || header.kind == BLOCK_SITES) {
                        contents->names += least(header.count, bytes);
                        contents->name_bytes += bytes;
                } else if (header.kind == BLOCK_RECORDS) {
                        contents->records += least(header.count, bytes / RECORD_BYTES);
                } else if (header.kind == BLOCK_END &&
                           reading->block_bytes == sizeof(struct end_block)) {
                        struct end_block end;

                        memcpy(&end, reading->block, sizeof(end));
                        contents->objects = end.objects <= OBJECTS_MAX ? end.objects : 0;
                }
        }
        reading->at = first;
}

/* Makes the columns, if that much memory may be taken. */
static bool make_room(struct reading *reading, const struct trace_demand *demand,
                      struct trace *trace, struct trace_error *error)
{
        struct trace_contents contents = {.others = BLOCK_BYTES_MAX};

        count_blocks(reading, &contents);
        if (!trace_memory_allows(&contents, demand, reading->input->size, error))
                return false;
        reading->room = contents.records;
        return trace_columns_make(trace, contents.records) || no_memory(reading, error);
}

static bool read_header(struct reading *reading, struct trace *trace, struct trace_error *error)
{
        struct file_header header;

        if (reading->block_bytes < sizeof(header))
                return trace_fail(error, 0, "expected a header of %zu bytes at least",
                                  sizeof(header));
        memcpy(&header, reading->block, sizeof(header));
        if (memcmp(header.magic, TRACE_MAGIC, MAGIC_BYTES) != 0)
                return trace_fail(error, 0,
                                  "expected a trace, which begins with " TRACE_MAGIC
                                  " or " SLT_MAGIC);
        if (header.version != TRACE_VERSION)
                return trace_fail(error, 0, "a trace of version %u; expected version %d",
                                  header.version, TRACE_VERSION);
        if (header.cpus > TRACE_CPUS_MAX || header.source_bytes > SOURCE_BYTES_MAX ||
            header.source_bytes != reading->block_bytes - sizeof(header))
                return trace_fail(error, 0,
                                  "the header has %u CPUs and %u bytes of text; expected "
                                  "at most %d, and %zu bytes",
                                  header.cpus, header.source_bytes, TRACE_CPUS_MAX,
                                  reading->block_bytes - sizeof(header));
        trace->cpus = header.cpus;
        trace->page_bytes = header.page_bytes;
        trace->source = strndup((char *)reading->block + sizeof(header), header.source_bytes);
        return trace->source ? true : no_memory(reading, error);
}

static bool read_names(struct reading *reading, struct trace_names *names, uint32_t count,
                       struct trace_error *error)
{
        const char *text = (const char *)reading->block + sizeof(struct block_header);
        size_t bytes = reading->block_bytes - sizeof(struct block_header);

        if (trace_names_add(names, text, bytes, count))
                return true;
        if (errno == ENOMEM)
                return no_memory(reading, error);
        if (errno == EOVERFLOW)
                return trace_fail(error, reading->started,
                                  "%u names behind %u others; expected at most %u in all", count,
                                  names->count, UINT32_MAX);
        return trace_fail(error, reading->started, "expected %u names, each with a zero byte",
                          count);
}

/* Turns steps of time into times. */
static bool add_up_times(struct reading *reading, struct trace *trace, uint32_t count,
                         struct trace_error *error)
{
        for (uint64_t i = trace->records; i < trace->records + count; i++)
                if (__builtin_add_overflow(reading->last_time, trace->time[i], &reading->last_time))
                        return trace_fail(error, reading->started,
                                          "record %lu is later than any clock", (unsigned long)i);
                else
                        trace->time[i] = reading->last_time;
        return true;
}

/* Joins a column from its planes. */
static void column_join(uint8_t *to, const uint8_t *from, uint32_t count, size_t bytes)
{
        for (size_t byte = 0; byte < bytes; byte++)
                for (uint32_t i = 0; i < count; i++)
                        to[i * bytes + byte] = *from++;
}

static bool read_records(struct reading *reading, struct trace *trace, uint32_t count,
                         struct trace_error *error)
{
        const uint8_t *from = reading->block + sizeof(struct block_header);
        uint64_t first = trace->records;

        if (count > BLOCK_RECORDS_MAX ||
            reading->block_bytes != sizeof(struct block_header) + (size_t)count * RECORD_BYTES)
                return trace_fail(
                        error, reading->started,
                        "expected %d bytes for each of at most %d records, not %zu for %u",
                        RECORD_BYTES, BLOCK_RECORDS_MAX,
                        reading->block_bytes - sizeof(struct block_header), count);
        if (count > reading->room - trace->records)
                return trace_fail(error, reading->started, "more records than were counted");
        for (unsigned int i = 0; i < COLUMNS; i++) {
                uint8_t *column = *column_of(trace, &columns[i]);

                column_join(column + first * columns[i].bytes, from, count, columns[i].bytes);
                from += count * columns[i].bytes;
        }
        if (!add_up_times(reading, trace, count, error))
                return false;
        trace->records += count;
        return trace_records_valid(trace, first, OBJECTS_MAX, reading->started, error);
}

static bool read_end(struct reading *reading, struct trace *trace, struct trace_error *error)
{
        struct end_block end;

        if (reading->block_bytes != sizeof(end))
                return trace_fail(error, reading->started, "expected an end block of %zu bytes",
                                  sizeof(end));
        memcpy(&end, reading->block, sizeof(end));
        if (end.records != trace->records)
                return trace_fail(error, reading->started, "%lu records are there; expected %lu",
                                  (unsigned long)trace->records, (unsigned long)end.records);
        if (reading->at != reading->input->size)
                return trace_fail(error, reading->at, "%zu bytes follow behind the end block",
                                  reading->input->size - reading->at);
        /* Then a table of objects needs no check for overflows. */
        if (end.objects > OBJECTS_MAX)
                return trace_fail(error, reading->started, "%lu objects; expected at most %lu",
                                  (unsigned long)end.objects, (unsigned long)OBJECTS_MAX);
        trace->objects = end.objects;
        return trace_records_valid(trace, 0, end.objects, reading->started, error);
}

static bool read_blocks(struct reading *reading, struct trace *trace, struct trace_error *error)
{
        for (;;) {
                struct block_header header;
                bool sound;

                if (!next_block(reading, error))
                        return false;
                memcpy(&header, reading->block, sizeof(header));
                switch (header.kind) {
                case BLOCK_CACHES:
                        sound = read_names(reading, &trace->caches, header.count, error);
                        break;
                case BLOCK_SITES:
                        sound = read_names(reading, &trace->sites, header.count, error);
                        break;
                case BLOCK_RECORDS:
                        sound = read_records(reading, trace, header.count, error);
                        break;
                case BLOCK_END:
                        return read_end(reading, trace, error);
                default:
                        sound = trace_fail(error, reading->started,
                                           "a block of kind %u; expected 1 to %d", header.kind,
                                           BLOCK_END);
                }
                if (!sound)
                        return false;
        }
}

/* Whether the file has the older form, by its first bytes or the first bytes of its first frame. */
static bool is_slt(const struct input *input)
{
        char magic[MAGIC_BYTES];
        ZSTD_inBuffer in = {input->bytes, input->have, 0};
        ZSTD_outBuffer out = {magic, sizeof(magic), 0};
        struct trace_error error;
        struct frame frame;
        ZSTD_DStream *stream;

        if (input->have >= MAGIC_BYTES && !memcmp(input->bytes, SLT_MAGIC, MAGIC_BYTES))
                return true;
        if (!frame_look(input->bytes, input->have, 0, &frame, &error))
                return false;
        stream = ZSTD_createDStream();
        while (stream && out.pos < out.size && in.pos < in.size)
                if (ZSTD_isError(ZSTD_decompressStream(stream, &out, &in)))
                        break;
        ZSTD_freeDStream(stream);
        return out.pos == sizeof(magic) && !memcmp(magic, SLT_MAGIC, MAGIC_BYTES);
}

static bool load_blocks(struct input *input, const struct trace_demand *demand, struct trace *trace,
                        struct trace_error *error)
{
        struct reading reading = {.input = input};
        bool sound = next_block(&reading, error) && read_header(&reading, trace, error) &&
                     make_room(&reading, demand, trace, error) &&
                     read_blocks(&reading, trace, error);

        free(reading.block);
        return sound;
}

static bool load(struct input *input, const struct trace_demand *demand, struct trace *trace,
                 struct trace_error *error)
{
        if (!input->size)
                return trace_fail(error, 0, "the file is empty; expected a trace");
        /* The bytes up to the end of the first block. */
        if (!input_fetch(input, 2 * ZSTD_BLOCKSIZE_MAX, error))
                return false;
        if (is_slt(input) ? !slt_load(input, demand, trace, error)
                          : !load_blocks(input, demand, trace, error))
                return false;
        if (!trace_names_finish(&trace->caches) || !trace_names_finish(&trace->sites))
                return trace_fail(error, input->size, "no memory for names");
        return true;
}

static bool load_file(int file, const struct trace_demand *demand, struct trace *trace,
                      struct trace_error *error)
{
        struct input input = {.file = file};
        struct stat status;
        bool sound;

        if (fstat(file, &status) || !S_ISREG(status.st_mode))
                return trace_fail(error, 0, "expected a regular file");
        input.size = (size_t)status.st_size;
        trace->file_bytes = input.size;
        sound = load(&input, demand, trace, error);
        free(input.bytes);
        return sound;
}

bool trace_load(const char *path, const struct trace_demand *demand, struct trace *trace,
                struct trace_error *error)
{
        /* O_NONBLOCK: a FIFO would wait for its other end. */
        int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        bool sound;

        memset(trace, 0, sizeof(*trace));
        if (file < 0)
                return trace_fail(error, 0, "cannot open the file: %s", strerror(errno));
        sound = load_file(file, demand, trace, error);
        close(file);
        if (!sound)
                trace_free(trace);
        return sound;
}
