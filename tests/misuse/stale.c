/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Uses of freed blocks. Harm: what was written by a stale pointer is in another block, or what
 * another block holds, or what the freed one held, can be read by it.
 */
#include "misuse.h"

#include <malloc.h>

enum { TRIES = 1000 };

/* Whether a block that is handed out now begins with a value, in a word beyond the first two. */
static void look_for_value(size_t bytes, char with)
{
        size_t most = many_of(bytes) < TRIES ? many_of(bytes) : TRIES;

        for (size_t i = 0; i < most; i++) {
                char *block = take(bytes);

                hold(block, bytes);
                if (count_of(block + UNIT_BYTES, WORD_BYTES, with) == WORD_BYTES)
                        harm("a stale write is in a new block");
        }
        harm_if(held_overlap(), "an address was handed out twice");
}

static void write_at_once(size_t bytes)
{
        char *block = take(bytes);

        release(block);
        misuse_write(block, bytes < PAGE_OF_BYTES ? bytes : PAGE_OF_BYTES, 'W');
        look_for_value(bytes, 'W');
}

static void write_late(size_t bytes)
{
        char *block = take(bytes);

        hold_many(bytes);
        release(block);
        release_held();
        malloc_trim(0);
        misuse_write(block, bytes < PAGE_OF_BYTES ? bytes : PAGE_OF_BYTES, 'W');
        look_for_value(bytes, 'W');
}

/* Memory that went back to the system reads as zero, which calloc relies on. */
static void write_then_calloc(size_t bytes)
{
        size_t most = many_of(bytes) < TRIES ? many_of(bytes) : TRIES;
        char *block = take(bytes);

        release(block);
        malloc_trim(0);
        misuse_write(block, bytes, 'W');
        for (size_t i = 0; i < most; i++) {
                char *zero = hide(calloc(1, bytes));

                if (!zero)
                        absent("no memory");
                hold(zero, bytes);
                harm_if(!is_filled(zero, bytes, 0), "a block of calloc is not zero");
        }
}

static void write_reused(size_t bytes)
{
        char *block = take(bytes);
        char *owners;

        release(block);
        owners = take_again(block, bytes, TRIES);
        if (owners)
                fill(owners, bytes, 'O');
        misuse_write(block, bytes < PAGE_OF_BYTES ? bytes : PAGE_OF_BYTES, 'W');
        if (owners && !is_filled(owners, bytes, 'O')) {
                release_held();
                harm("a block in use was changed");
        }
}

/* By another thread, after its owner freed it. */
static void write_by_thread(void *block)
{
        misuse_write(block, 64, 'W');
}

static void write_in_thread(size_t bytes)
{
        char *block = take(bytes);

        release(block);
        in_thread(write_by_thread, block);
        look_for_value(bytes, 'W');
}

static void read_freed(const char *block, size_t bytes)
{
        size_t part = bytes < PAGE_OF_BYTES ? bytes : PAGE_OF_BYTES;

        harm_if(misuse_count(block, part, 'S') >= part / 2, "what the freed block held was read");
}

static void read_at_once(size_t bytes)
{
        char *block = take(bytes);

        fill(block, bytes, 'S');
        release(block);
        read_freed(block, bytes);
}

static void read_late(size_t bytes)
{
        char *block = take(bytes);

        fill(block, bytes, 'S');
        hold_many(bytes);
        release(block);
        release_held();
        malloc_trim(0);
        read_freed(block, bytes);
}

static void read_reused(size_t bytes)
{
        char *block = take(bytes);
        char *owners;

        release(block);
        owners = take_again(block, bytes, TRIES);
        if (owners)
                fill(owners, bytes, 'S');
        read_freed(block, bytes);
}

const struct way stale_ways[] = {
        {"use-after-free", "write", write_at_once, EACH_SIZE & ~TINY},
        {"use-after-free", "write-late", write_late, EACH_SIZE & ~TINY},
        {"use-after-free", "write-calloc", write_then_calloc, EACH_SIZE},
        {"use-after-free", "write-reused", write_reused, EACH_SIZE},
        {"use-after-free", "write-thread", write_in_thread, EACH_SIZE & ~TINY},
        {"use-after-free", "read", read_at_once, EACH_SIZE},
        {"use-after-free", "read-late", read_late, EACH_SIZE},
        {"use-after-free", "read-reused", read_reused, EACH_SIZE},
        {0},
};
