/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The bytes of a file of frames, and the check of its frames.
 *
 * The file is read, not mapped: a file that becomes shorter meanwhile ends too early, while a
 * mapping would end the process. libzstd gets standard frames only, after their headers were
 * checked here: its decoders of older forms trust their input.
 */
#include "tools/trace/format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The header of a zstd frame (RFC 8878, 3.1.1.1) by offset, and its descriptor by bit. */
enum {
        FRAME_DESCRIPTOR = 4,
        FRAME_WINDOW = 5,
        FRAME_HEAD_BYTES = 6,
        HAS_DICTIONARY = 3,
        HAS_CHECKSUM = 4,
        SINGLE_SEGMENT = 32,
        WINDOW_SHIFT_LEAST = 10,
};

#define MAGIC_STANDARD UINT32_C(0xfd2fb528)
#define MAGIC_LEGACY UINT32_C(0xfd2fb520) /* 0xfd2fb522 to 0xfd2fb527; the first form has its own */
#define MAGIC_FIRST UINT32_C(0x1eb52ffd)
#define MAGIC_SKIPPABLE UINT32_C(0x184d2a50) /* and the 15 numbers behind it */

bool input_fetch(struct input *input, uint64_t until, struct trace_error *error)
{
        size_t wanted = until < input->size ? (size_t)until : input->size;
        uint8_t *moved;

        if (wanted <= input->have)
                return true;
        moved = realloc(input->bytes, wanted);
        if (!moved)
                return trace_fail(error, input->have, "no memory for %zu bytes of the file",
                                  wanted);
        input->bytes = moved;
        while (input->have < wanted) {
                ssize_t got = read(input->file, input->bytes + input->have, wanted - input->have);

                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return trace_fail(error, input->have, "cannot read the file: %s",
                                          strerror(errno));
                if (!got)
                        input->size = wanted = input->have; /* it has become shorter */
                input->have += (size_t)got;
        }
        return true;
}

static const char *kind_of_magic(uint32_t magic)
{
        if (magic - MAGIC_SKIPPABLE < 16)
                return "a skippable frame";
        if (magic == MAGIC_FIRST || (magic - MAGIC_LEGACY) < MAGIC_STANDARD - MAGIC_LEGACY)
                return "a frame of zstd before 0.8";
        return "something else";
}

static uint64_t window_of(const uint8_t *head, uint64_t content)
{
        unsigned int shift = WINDOW_SHIFT_LEAST + (head[FRAME_WINDOW] >> 3);
        uint64_t base = (uint64_t)1 << shift;

        if (head[FRAME_DESCRIPTOR] & SINGLE_SEGMENT)
                return content;
        return base + base / 8 * (head[FRAME_WINDOW] & 7);
}

bool frame_look(const uint8_t *bytes, size_t left, uint64_t offset, struct frame *frame,
                struct trace_error *error)
{
        uint32_t magic = 0;

        memcpy(&magic, bytes, left < sizeof(magic) ? left : sizeof(magic));
        if (left >= sizeof(magic) && magic != MAGIC_STANDARD)
                return trace_fail(error, offset, "expected %sa zstd frame, not %s",
                                  offset ? "" : "a trace, which begins with " SLT_MAGIC " or ",
                                  kind_of_magic(magic));
        if (left < FRAME_HEAD_BYTES)
                return trace_fail(error, offset, "expected a whole zstd frame");
        if (bytes[FRAME_DESCRIPTOR] & HAS_DICTIONARY)
                return trace_fail(error, offset,
                                  "the frame wants a dictionary; expected a zstd frame without");
        /* libzstd has no answer if the window is larger than it allows. */
        frame->content = ZSTD_getFrameContentSize(bytes, left);
        frame->window = window_of(bytes, frame->content);
        frame->has_checksum = bytes[FRAME_DESCRIPTOR] & HAS_CHECKSUM;
        if (frame->content == ZSTD_CONTENTSIZE_ERROR && frame->window == frame->content)
                return trace_fail(error, offset, "expected a whole zstd frame");
        if (frame->window > WINDOW_BYTES_MAX)
                return trace_fail(error, offset,
                                  "the frame wants a window of %lu bytes; expected at most %d",
                                  (unsigned long)frame->window, WINDOW_BYTES_MAX);
        if (frame->content == ZSTD_CONTENTSIZE_ERROR)
                return trace_fail(error, offset, "expected a whole zstd frame");
        return true;
}
