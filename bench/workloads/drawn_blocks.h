/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The blocks of `drawn`: made by the call that the words ask for, written, checked and freed. A
 * block begins with its token; the head of workload.h says how tokens tell two owners. Blocks of 8
 * to 15 bytes have a single token, larger ones one at each end, as far as `touch` asks for it.
 */
#ifndef KMEM_BENCH_DRAWN_BLOCKS_H
#define KMEM_BENCH_DRAWN_BLOCKS_H

#include "drawn_words.h"

#include <stdbool.h>

static uint32_t drawn_sizes[DRAWN_SIZES]; /* set before the first thread starts */

/* Whether a word at this distance, besides the first, is written and checked. */
static inline size_t touch_step(void)
{
        return chosen(TOUCH) == TOUCH_ALL ? sizeof(uint64_t) : BLOCK_TOUCH_BYTES;
}

static inline void drawn_write(struct worker *worker, void *block, size_t bytes)
{
        uint64_t token = (random_next(&worker->random) << 32) | bytes;
        size_t step = touch_step();
        char *start = block;

        memcpy(start, &token, sizeof(token));
        if (chosen(TOUCH) != TOUCH_FIRST && bytes >= 2 * sizeof(token)) {
                for (size_t at = step; at + 2 * sizeof(token) <= bytes; at += step)
                        memcpy(start + at, &token, sizeof(token));
                memcpy(start + bytes - sizeof(token), &token, sizeof(token));
        }
        worker->written += token;
        worker->made++;
}

/* Checks the words that drawn_write() wrote in the first `whole` bytes of a block of `bytes`. */
static inline uint64_t drawn_check(const struct worker *worker, const void *block, size_t whole)
{
        const char *start = block;
        size_t step = touch_step();
        uint64_t token;
        uint64_t wrong = 0;
        size_t bytes;

        memcpy(&token, start, sizeof(token));
        bytes = token & 0xffffffffu;
        if (bytes < DRAWN_BYTES_MIN || bytes > DRAWN_BYTES_MAX)
                workload_fail(worker->workload, "contents changed", bytes);
        if (chosen(TOUCH) == TOUCH_FIRST || bytes < 2 * sizeof(token))
                return token;
        if (whole > bytes)
                whole = bytes;
        for (size_t at = step; at + 2 * sizeof(token) <= whole; at += step) {
                uint64_t other;

                memcpy(&other, start + at, sizeof(other));
                wrong |= other ^ token;
        }
        if (whole == bytes) {
                uint64_t other;

                memcpy(&other, start + bytes - sizeof(other), sizeof(other));
                wrong |= other ^ token;
        }
        if (wrong)
                workload_fail(worker->workload, "contents changed", bytes);
        return token;
}

static inline void drawn_found(struct worker *worker, uint64_t token)
{
        worker->found += token;
        worker->gone++;
}

static inline void drawn_free(struct worker *worker, void *block)
{
        drawn_found(worker, drawn_check(worker, block, SIZE_MAX));
        free(block);
}

static inline size_t drawn_bytes(struct worker *worker)
{
        return drawn_sizes[random_below(&worker->random, DRAWN_SIZES)];
}

static inline bool percent(struct worker *worker, enum number which)
{
        return number(which) && random_below(&worker->random, 100) < number(which);
}

static inline void *drawn_zeroed(const struct worker *worker, size_t bytes)
{
        char *block = calloc(1, bytes);
        size_t step = touch_step();

        for (size_t at = 0; block && at < bytes; at += step) {
                if (block[at])
                        workload_fail(worker->workload, "calloc did not clear", bytes);
        }
        return block;
}

static inline void *drawn_aligned(struct worker *worker, size_t bytes)
{
        size_t alignment = (size_t)32 << random_below(&worker->random, 4);
        void *block = NULL;

        if (posix_memalign(&block, alignment, bytes))
                return NULL;
        if ((uintptr_t)block % alignment)
                workload_fail(worker->workload, "not aligned", bytes);
        return block;
}

static inline void *drawn_new(struct worker *worker)
{
        size_t bytes = drawn_bytes(worker);
        void *block;

        if (percent(worker, CALLOC))
                block = drawn_zeroed(worker, bytes);
        else if (percent(worker, ALIGNED))
                block = drawn_aligned(worker, bytes);
        else
                block = malloc(bytes);
        if (!block)
                workload_fail(worker->workload, "out of memory", bytes);
        drawn_write(worker, block, bytes);
        return block;
}

/* Both sizes are checked: the old content before the call, the part that was kept after it. */
static inline void *drawn_resized(struct worker *worker, void *block)
{
        size_t bytes = drawn_bytes(worker);

        drawn_found(worker, drawn_check(worker, block, SIZE_MAX));
        block = realloc(block, bytes);
        if (!block)
                workload_fail(worker->workload, "out of memory", bytes);
        drawn_check(worker, block, bytes);
        drawn_write(worker, block, bytes);
        return block;
}

#endif
