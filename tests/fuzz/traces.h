/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reads bytes as a trace file, and looks at all that a reader may look at.
 */
#ifndef KMEM_TESTS_FUZZ_TRACES_H
#define KMEM_TESTS_FUZZ_TRACES_H

#include "target.h"

#include "tools/trace/trace_read.c"

/* Enough for any trace that a small input makes, and soon refused. */
#define FUZZ_MEMORY "16777216"

static inline void look_at_names(const struct trace_names *names)
{
        size_t bytes = 0;

        for (uint32_t i = 0; i < names->count; i++)
                bytes += strlen(names->name[i]) + 1;
        expect(bytes == names->text_bytes);
}

static inline void look_at_trace(const struct trace *trace)
{
        struct trace_error error;
        uint64_t last = 0;

        look_at_names(&trace->caches);
        look_at_names(&trace->sites);
        for (uint64_t i = 0; i < trace->records; i++) {
                expect(trace->time[i] >= last);
                last = trace->time[i];
                expect(trace->cache[i] < trace->caches.count);
                expect(trace->site[i] < trace->sites.count);
                expect(trace->object[i] < trace->objects);
                expect(trace->cpu[i] < trace->cpus);
        }
        expect(strlen(trace->source) <= SOURCE_BYTES_MAX);
        trace_check(trace, &error);
}

static inline void read_as_trace(const uint8_t *bytes, size_t size)
{
        struct input input = {
                .file = -1, .bytes = malloc(size ? size : 1), .have = size, .size = size};
        struct trace trace = {0};
        struct trace_error error = {.text = ""};

        setenv(TRACE_MEMORY_VARIABLE, FUZZ_MEMORY, 1);
        expect(input.bytes != NULL);
        if (size)
                memcpy(input.bytes, bytes, size);
        if (load(&input, NULL, &trace, &error))
                look_at_trace(&trace);
        else
                expect(*error.text && error.offset <= size);
        trace_free(&trace);
        free(input.bytes);
}

/* Appends a frame with this content; false without room. */
static inline bool append_frame(uint8_t *to, size_t room, size_t *at, const void *content,
                                size_t bytes)
{
        static ZSTD_CCtx *compressor;
        size_t packed;

        if (!compressor) {
                compressor = ZSTD_createCCtx();
                ZSTD_CCtx_setParameter(compressor, ZSTD_c_checksumFlag, 1);
                ZSTD_CCtx_setParameter(compressor, ZSTD_c_compressionLevel, -5);
        }
        packed = ZSTD_compress2(compressor, to + *at, room - *at, content, bytes);
        if (ZSTD_isError(packed))
                return false;
        *at += packed;
        return true;
}

#endif
