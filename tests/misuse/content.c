/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What new blocks hold, and where they lie. These are no misuses by themselves: they tell what a
 * misuse finds. Harm: old content is handed out, or an attacker can foresee an address.
 */
#include "misuse.h"

#include <malloc.h>

enum { OLD_BLOCKS = 50, NEIGHBOURS = 64, TRIES = 1000 };

static const char old_content[] = "content of an old block is in a new one";

/* Blocks full of a secret, freed. */
static void leave_secrets(size_t bytes)
{
        size_t count = many_of(bytes) < OLD_BLOCKS ? many_of(bytes) : OLD_BLOCKS;

        for (size_t i = 0; i < count; i++) {
                void *block = take(bytes);

                fill(block, bytes, 'S');
                hold(block, bytes);
        }
        release_held();
}

static void look_for_secret(const char *from, size_t bytes)
{
        harm_if(count_of(from, bytes, 'S') >= WORD_BYTES, old_content);
}

static void look_in_new(size_t bytes)
{
        for (size_t i = 0; i < OLD_BLOCKS && i < many_of(bytes); i++) {
                char *block = take(bytes);

                hold(block, bytes);
                look_for_secret(block, bytes);
        }
}

static void same_size(size_t bytes)
{
        leave_secrets(bytes);
        look_in_new(bytes);
}

static void from_larger(size_t bytes)
{
        leave_secrets(2 * bytes);
        look_in_new(bytes);
}

static void after_trim(size_t bytes)
{
        leave_secrets(bytes);
        malloc_trim(0);
        look_in_new(bytes);
}

static void by_calloc(size_t bytes)
{
        leave_secrets(bytes);
        for (size_t i = 0; i < OLD_BLOCKS && i < many_of(bytes); i++) {
                char *block = hide(calloc(1, bytes));

                hold(block, bytes);
                harm_if(!is_filled(block, bytes, 0), "calloc's block is not zero");
        }
}

static void by_memalign(size_t bytes)
{
        leave_secrets(bytes);
        for (size_t i = 0; i < OLD_BLOCKS && i < many_of(bytes); i++) {
                char *block = hide(memalign(64, bytes));

                hold(block, bytes);
                look_for_secret(block, bytes);
        }
}

static void by_realloc(size_t bytes)
{
        leave_secrets(2 * bytes);
        for (size_t i = 0; i < OLD_BLOCKS && i < many_of(bytes); i++) {
                char *block = hide(realloc(take(bytes), 2 * bytes));

                hold(block, 2 * bytes);
                look_for_secret(block + bytes, bytes);
        }
}

static void reuse_within(size_t bytes, size_t most)
{
        void *block = take(bytes);

        hold(take(bytes), bytes);
        release(block);
        harm_if(take_again(block, bytes, most) != NULL, "the freed block was handed out again");
}

static void reuse_next(size_t bytes)
{
        reuse_within(bytes, 1);
}

static void reuse_in_8(size_t bytes)
{
        reuse_within(bytes, 8);
}

static void reuse_in_1000(size_t bytes)
{
        reuse_within(bytes, TRIES);
}

static void reuse_by_larger(size_t bytes)
{
        void *block = take(bytes);

        hold_many(bytes);
        release(block);
        release_held();
        harm_if(take_again(block, 2 * bytes, TRIES) != NULL,
                "the freed block is part of a larger one");
}

static void neighbours(size_t bytes)
{
        size_t count = many_of(bytes) < NEIGHBOURS ? many_of(bytes) : NEIGHBOURS;
        char *block[NEIGHBOURS];
        size_t alike = 0;

        for (size_t i = 0; i < count; i++) {
                block[i] = take(bytes);
                hold(block[i], bytes);
        }
        for (size_t i = 2; i < count; i++)
                alike += block[i] - block[i - 1] == block[i - 1] - block[i - 2];
        harm_if(alike >= count / 2, "the next block's distance can be foreseen");
}

/* Whether a block taken behind another lies right behind it, in a heap with holes. */
static void groomed(size_t bytes)
{
        size_t count = many_of(bytes) < NEIGHBOURS ? many_of(bytes) : NEIGHBOURS;
        char *block[NEIGHBOURS];

        for (size_t i = 0; i < count; i++)
                block[i] = take(bytes);
        release(block[count / 2]);
        harm_if(take(bytes) == block[count / 2], "a hole among chosen neighbours was filled");
}

const struct way content_ways[] = {
        {"old-content", "same-size", same_size, EACH_SIZE},
        {"old-content", "from-larger", from_larger, EACH_SIZE},
        {"old-content", "after-trim", after_trim, EACH_SIZE},
        {"old-content", "calloc", by_calloc, EACH_SIZE},
        {"old-content", "memalign", by_memalign, EACH_SIZE},
        {"old-content", "realloc", by_realloc, EACH_SIZE},
        {"reuse", "next", reuse_next, EACH_SIZE},
        {"reuse", "in-8", reuse_in_8, EACH_SIZE},
        {"reuse", "in-1000", reuse_in_1000, OBJECTS},
        {"reuse", "by-larger", reuse_by_larger, EACH_SIZE & ~HUGE},
        {"reuse", "neighbours", neighbours, EACH_SIZE},
        {"reuse", "groomed", groomed, EACH_SIZE},
        {0},
};
