/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * realloc and malloc_usable_size of addresses at which no block in use starts. Harm: the call
 * succeeds, or memory is handed out twice afterwards.
 */
#include "misuse.h"

#include <malloc.h>

static char a_static[512] __attribute__((aligned(64)));

/* realloc of a wrong address; what it returns is a block like others. */
static void resize(void *address, size_t bytes, size_t look_at)
{
        char *resized = hide(realloc(hide(address), bytes));

        if (resized)
                hold(resized, bytes);
        hold_many(look_at);
        harm_if(resized != NULL, "realloc succeeded");
        harm_if(held_overlap(), "an address was handed out twice");
}

static void freed_grows(size_t bytes)
{
        void *block = take(bytes);

        release(block);
        resize(block, 3 * bytes, bytes);
}

static void freed_stays(size_t bytes)
{
        void *block = take(bytes);

        release(block);
        resize(block, bytes, bytes);
}

static void freed_shrinks(size_t bytes)
{
        void *block = take(bytes);

        release(block);
        resize(block, bytes / 4, bytes);
}

static void freed_late(size_t bytes)
{
        void *block = take(bytes);

        hold_many(bytes);
        release(block);
        release_held();
        malloc_trim(0);
        resize(block, 3 * bytes, bytes);
}

static void freed_reused(size_t bytes)
{
        void *block = take(bytes);
        void *owners;

        release(block);
        owners = take_again(block, bytes, 1000);
        if (!owners)
                return;
        if (!hide(realloc(hide(block), 3 * bytes)))
                return;
        harm_if(take_again(owners, bytes, 1000) != NULL, "a block in use was handed out again");
}

static void inside(size_t bytes)
{
        char *block = take(bytes);

        hold(block, bytes);
        resize(block + UNIT_BYTES, bytes, bytes);
}

static void inside_grows(size_t bytes)
{
        char *block = take(bytes);

        hold(block, bytes);
        resize(block + bytes / 2 / UNIT_BYTES * UNIT_BYTES, 3 * bytes, bytes);
}

static void of_stack(size_t bytes)
{
        char buffer[512] __attribute__((aligned(64))) = {0};

        (void)bytes;
        resize(buffer + 64, 1000, 1000);
}

static void of_static(size_t bytes)
{
        (void)bytes;
        resize(a_static + 64, 1000, 1000);
}

static void usable_of(void *address)
{
        size_t bytes;

        misuse_begins((char *)hide(address) - PAGE_OF_BYTES, 2 * (size_t)PAGE_OF_BYTES);
        bytes = malloc_usable_size(hide(address));
        misuse_ends();
        harm_if(bytes != 0, "malloc_usable_size allows bytes");
}

static void usable_freed(size_t bytes)
{
        void *block = take(bytes);

        release(block);
        usable_of(block);
}

static void usable_inside(size_t bytes)
{
        char *block = take(bytes);

        fill(block, bytes, 'B');
        usable_of(block + UNIT_BYTES);
}

static void usable_static(size_t bytes)
{
        (void)bytes;
        usable_of(a_static + 64);
}

static void usable_stack(size_t bytes)
{
        char buffer[256] __attribute__((aligned(64))) = {0};

        (void)bytes;
        usable_of(buffer + 64);
}

const struct way resize_ways[] = {
        {"realloc", "freed-grows", freed_grows, EACH_SIZE},
        {"realloc", "freed-stays", freed_stays, EACH_SIZE},
        {"realloc", "freed-shrinks", freed_shrinks, EACH_SIZE},
        {"realloc", "freed-late", freed_late, EACH_SIZE},
        {"realloc", "freed-reused", freed_reused, EACH_SIZE},
        {"realloc", "inside-16", inside, EACH_SIZE},
        {"realloc", "inside-half", inside_grows, EACH_SIZE & ~TINY},
        {"realloc", "stack", of_stack, NO_SIZE},
        {"realloc", "static", of_static, NO_SIZE},
        {"usable-size", "freed", usable_freed, EACH_SIZE},
        {"usable-size", "inside-16", usable_inside, EACH_SIZE},
        {"usable-size", "stack", usable_stack, NO_SIZE},
        {"usable-size", "static", usable_static, NO_SIZE},
        {0},
};
