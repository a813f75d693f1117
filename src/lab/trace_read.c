/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reads trace files (docs/trace-format.md). Each block is a zstd frame with a checksum, so a frame
 * is known to be sound before its content is looked at, and an error has the frame's offset.
 */
#include "lab/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the header of a zstd frame (RFC 8878, 3.1.1.1). */
enum { FRAME_DESCRIPTOR = 4, FRAME_HAS_CHECKSUM = 4 };

/* The file, and the block that is being read. */
struct reading {
        const uint8_t *bytes;
        size_t size;
        size_t at;      /* of the next frame */
        size_t started; /* of the frame of this block */
        uint8_t *block;
        size_t block_bytes;
        uint64_t room; /* entries in the columns */
        uint64_t last_time;
};

static bool no_memory(const struct reading *reading, struct trace_error *error)
{
        return trace_fail(error, reading->started, "no memory for what comes here");
}

/* Decompresses the next frame into reading->block. */
static bool next_block(struct reading *reading, struct trace_error *error)
{
        static const uint8_t magic[] = {0x28, 0xb5, 0x2f, 0xfd};
        const uint8_t *frame = reading->bytes + reading->at;
        size_t left = reading->size - reading->at;
        unsigned long long plain;
        size_t packed;
        size_t got;

        reading->started = reading->at;
        if (!left)
                return trace_fail(error, reading->at, "the file ends without its end block");
        if (!reading->at && (left < sizeof(magic) || memcmp(frame, magic, sizeof(magic)) != 0))
                return trace_fail(error, 0, "expected a trace: zstd frames, or " SLT_MAGIC);
        packed = ZSTD_findFrameCompressedSize(frame, left);
        if (ZSTD_isError(packed))
                return trace_fail(error, reading->at, "expected a whole zstd frame: %s",
                                  ZSTD_getErrorName(packed));
        plain = ZSTD_getFrameContentSize(frame, left);
        if (plain < sizeof(struct block_header) || plain > BLOCK_BYTES_MAX)
                return trace_fail(error, reading->at,
                                  "expected a block of %zu to %d bytes with its size stated",
                                  sizeof(struct block_header), BLOCK_BYTES_MAX);
        if (!(frame[FRAME_DESCRIPTOR] & FRAME_HAS_CHECKSUM))
                return trace_fail(error, reading->at, "expected a block with a checksum");
        got = ZSTD_decompress(reading->block, BLOCK_BYTES_MAX, frame, packed);
        if (ZSTD_isError(got))
                return trace_fail(error, reading->at, "damaged block: %s", ZSTD_getErrorName(got));
        reading->block_bytes = got;
        reading->at += packed;
        return true;
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

        if (trace_names_add(names, text, reading->block_bytes - sizeof(struct block_header), count))
                return true;
        if (errno == ENOMEM)
                return no_memory(reading, error);
        return trace_fail(error, reading->started, "expected %u names, each with a zero byte",
                          count);
}

/* Steps become times. */
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

/* A column from its planes. */
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
        if (!trace_reserve(trace, &reading->room, count))
                return no_memory(reading, error);
        for (unsigned int i = 0; i < COLUMNS; i++) {
                uint8_t *column = *column_of(trace, &columns[i]);

                column_join(column + first * columns[i].bytes, from, count, columns[i].bytes);
                from += count * columns[i].bytes;
        }
        if (!add_up_times(reading, trace, count, error))
                return false;
        trace->records += count;
        return trace_records_valid(trace, first, (uint64_t)UINT32_MAX + 1, reading->started, error);
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
        if (reading->at != reading->size)
                return trace_fail(error, reading->at, "%zu bytes follow behind the end block",
                                  reading->size - reading->at);
        /* Ids have 32 bits; whoever makes a table of objects needs no look for overflows. */
        if (end.objects > (uint64_t)UINT32_MAX + 1)
                return trace_fail(error, reading->started, "%lu objects; expected at most %lu",
                                  (unsigned long)end.objects, (unsigned long)UINT32_MAX + 1);
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

/* Which form it is stands in the first bytes of the first frame, or of the file. */
static bool is_slt(const uint8_t *bytes, size_t size)
{
        char magic[MAGIC_BYTES];
        ZSTD_inBuffer in = {bytes, size, 0};
        ZSTD_outBuffer out = {magic, sizeof(magic), 0};
        ZSTD_DStream *stream;

        if (size >= MAGIC_BYTES && !memcmp(bytes, SLT_MAGIC, MAGIC_BYTES))
                return true;
        stream = ZSTD_createDStream();
        while (stream && out.pos < out.size && in.pos < in.size)
                if (ZSTD_isError(ZSTD_decompressStream(stream, &out, &in)))
                        break;
        ZSTD_freeDStream(stream);
        return out.pos == sizeof(magic) && !memcmp(magic, SLT_MAGIC, MAGIC_BYTES);
}

static bool load_blocks(const uint8_t *bytes, size_t size, struct trace *trace,
                        struct trace_error *error)
{
        struct reading reading = {.bytes = bytes, .size = size, .block = malloc(BLOCK_BYTES_MAX)};
        bool sound = reading.block || no_memory(&reading, error);

        sound = sound && next_block(&reading, error) && read_header(&reading, trace, error) &&
                read_blocks(&reading, trace, error);
        free(reading.block);
        if (sound && !trace_reserve(trace, &reading.room, 0))
                sound = no_memory(&reading, error);
        return sound;
}

static bool load(const uint8_t *bytes, size_t size, struct trace *trace, struct trace_error *error)
{
        if (!size)
                return trace_fail(error, 0, "the file is empty; expected a trace");
        if (is_slt(bytes, size) ? !slt_load(bytes, size, trace, error)
                                : !load_blocks(bytes, size, trace, error))
                return false;
        if (!trace_names_finish(&trace->caches) || !trace_names_finish(&trace->sites))
                return trace_fail(error, size, "no memory for names");
        return true;
}

static bool load_file(int file, struct trace *trace, struct trace_error *error)
{
        struct stat status;
        void *bytes = NULL;
        size_t size;
        bool sound;

        if (fstat(file, &status) || !S_ISREG(status.st_mode))
                return trace_fail(error, 0, "expected a regular file");
        size = (size_t)status.st_size;
        if (size)
                bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
        if (bytes == MAP_FAILED)
                return trace_fail(error, 0, "cannot map the file: %s", strerror(errno));
        sound = load(bytes, size, trace, error);
        if (bytes)
                munmap(bytes, size);
        return sound;
}

bool trace_load(const char *path, struct trace *trace, struct trace_error *error)
{
        int file = open(path, O_RDONLY | O_CLOEXEC);
        bool sound;

        memset(trace, 0, sizeof(*trace));
        if (file < 0)
                return trace_fail(error, 0, "cannot open the file: %s", strerror(errno));
        sound = load_file(file, trace, error);
        close(file);
        if (!sound)
                trace_free(trace);
        return sound;
}
