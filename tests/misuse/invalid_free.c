/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Frees of addresses at which no block starts. Harm: memory in use, or that never was the heap's,
 * is handed out.
 */
#define _GNU_SOURCE
#include "misuse.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>

enum { MAPPING_BYTES = 1 << 16, FORGED_BYTES = 256, FORGED_AT = 32 };

/* The address is in a block that stays in use, or in front of it or behind it. */
static void at_distance(size_t bytes, ptrdiff_t distance)
{
        char *before = take(bytes);
        char *block = take(bytes);
        char *behind = take(bytes);

        fill(block, bytes, 'B');
        hold(before, bytes);
        hold(block, bytes);
        hold(behind, bytes);
        release(block + distance);
        hold_many(bytes);
        harm_if(held_overlap(), "memory of a block in use was handed out");
}

static void inside_1(size_t bytes)
{
        at_distance(bytes, 1);
}

static void inside_word(size_t bytes)
{
        at_distance(bytes, WORD_BYTES);
}

static void inside_unit(size_t bytes)
{
        at_distance(bytes, UNIT_BYTES);
}

static void inside_half(size_t bytes)
{
        at_distance(bytes, (ptrdiff_t)(bytes / 2 / UNIT_BYTES * UNIT_BYTES));
}

static void inside_page(size_t bytes)
{
        at_distance(bytes, PAGE_OF_BYTES);
}

static void inside_last(size_t bytes)
{
        at_distance(bytes, (ptrdiff_t)((bytes - 1) / UNIT_BYTES * UNIT_BYTES));
}

static void in_front(size_t bytes)
{
        at_distance(bytes, -UNIT_BYTES);
}

/* If a block that is in use begins there, its owner loses it. */
static void one_behind(size_t bytes)
{
        char *block = take(bytes);

        hold(block, bytes);
        release(block + malloc_usable_size(block));
        hold_many(bytes);
        harm_if(held_overlap(), "memory of a block in use was handed out");
        /* It was free. Now it may be in two places. */
        hold_many(bytes);
        harm_if(held_overlap(), "an address was handed out twice");
}

static void inside_aligned(size_t bytes)
{
        char *block = hide(memalign(PAGE_OF_BYTES, bytes));

        hold(block, bytes);
        release(block + (bytes / 2 / UNIT_BYTES * UNIT_BYTES));
        hold_many(bytes);
        harm_if(held_overlap(), "memory of a block in use was handed out");
}

/* The block is free by then. */
static void inside_freed(size_t bytes)
{
        char *block = take(bytes);

        release(block);
        release(block + UNIT_BYTES);
        hold_many(bytes);
        harm_if(held_overlap(), "memory of a block in use was handed out");
}

/* The upper bits hold something of the program's. */
static void with_tag(size_t bytes)
{
        char *block = take(bytes);

        hold(block, bytes);
        misuse_begins(NULL, PAGE_OF_BYTES); /* as of_non_canonical */
        release((void *)((uintptr_t)block | (uintptr_t)0x5a << 56));
        misuse_ends();
        hold_many(bytes);
        harm_if(held_overlap(), "memory of a block in use was handed out");
}

/* After the free of a strange address: no block may lie in the memory around it. */
static void look_in(const void *from, size_t bytes)
{
        for (size_t size = UNIT_BYTES; size <= FORGED_BYTES; size += UNIT_BYTES) {
                for (int i = 0; i < 40; i++)
                        hold(take(size), size);
                if (held_has(from, bytes))
                        break;
        }
        harm_if(held_has(from, bytes), "memory that is not the heap's was handed out");
}

static void free_within(char *from, size_t bytes, bool forged)
{
        size_t *word = hide(from + FORGED_AT);

        /* Sizes as they stand in front of glibc's blocks of 48 bytes. */
        for (size_t at = 0; forged && at < FORGED_BYTES / sizeof(*word) - 4; at += 8)
                word[at - 1] = 0x41;
        release(from + FORGED_AT);
        look_in(from, bytes);
}

static void of_stack(size_t bytes)
{
        char buffer[2 * FORGED_BYTES] __attribute__((aligned(64))) = {0};

        (void)bytes;
        free_within(hide(buffer), sizeof(buffer), false);
}

static void of_stack_forged(size_t bytes)
{
        char buffer[2 * FORGED_BYTES] __attribute__((aligned(64))) = {0};

        (void)bytes;
        free_within(hide(buffer), sizeof(buffer), true);
}

static char a_static[2 * FORGED_BYTES] __attribute__((aligned(PAGE_OF_BYTES)));

static void of_static(size_t bytes)
{
        (void)bytes;
        free_within(a_static, sizeof(a_static), false);
}

static void of_static_forged(size_t bytes)
{
        (void)bytes;
        free_within(a_static, sizeof(a_static), true);
}

static void of_mapping(size_t bytes)
{
        char *mapping = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        (void)bytes;
        free_within(mapping, MAPPING_BYTES, false);
}

static void of_mapping_start(size_t bytes)
{
        char *mapping = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        (void)bytes;
        release(mapping + PAGE_OF_BYTES);
        look_in(mapping, MAPPING_BYTES);
}

static void of_code(size_t bytes)
{
        (void)bytes;
        release((void *)((uintptr_t)of_code & -(uintptr_t)UNIT_BYTES));
}

/* An address without memory: a fault there is the allocator's look at it. */
static void of_number(uintptr_t number)
{
        misuse_begins((void *)(number & -(uintptr_t)PAGE_OF_BYTES), 2 * (size_t)PAGE_OF_BYTES);
        release((void *)number);
        misuse_ends();
}

static void of_8(size_t bytes)
{
        (void)bytes;
        of_number(8);
}

static void of_16(size_t bytes)
{
        (void)bytes;
        of_number(16);
}

static void of_4096(size_t bytes)
{
        (void)bytes;
        of_number(4096);
}

static void of_wild(size_t bytes)
{
        (void)bytes;
        of_number(0x414141414140);
}

static void of_non_canonical(size_t bytes)
{
        (void)bytes;
        /* The processor names no address of such a fault. */
        misuse_begins(NULL, PAGE_OF_BYTES);
        release((void *)0x4141414141414140);
        misuse_ends();
}

/* A block of glibc's own malloc, where another malloc is in front of it. */
static void of_other_malloc(size_t bytes)
{
        void *(*other)(size_t) = (void *(*)(size_t))function_named("__libc_malloc");
        Dl_info of_malloc;
        Dl_info of_other;
        char *block;

        if (dladdr(function_named("malloc"), &of_malloc) && dladdr((void *)other, &of_other) &&
            of_malloc.dli_fbase == of_other.dli_fbase)
                absent("it is the malloc in use");
        block = other(bytes);
        release(block);
        hold_many(bytes);
        harm_if(held_has(block, bytes), "memory that is not the heap's was handed out");
}

const struct way invalid_free_ways[] = {
        {"invalid-free", "inside-1", inside_1, EACH_SIZE},
        {"invalid-free", "inside-8", inside_word, EACH_SIZE},
        {"invalid-free", "inside-16", inside_unit, EACH_SIZE},
        {"invalid-free", "inside-half", inside_half, EACH_SIZE & ~TINY},
        {"invalid-free", "inside-last-16", inside_last, EACH_SIZE & ~TINY},
        {"invalid-free", "inside-page", inside_page, EACH_SIZE & ~(TINY | SMALL)},
        {"invalid-free", "inside-freed", inside_freed, EACH_SIZE},
        {"invalid-free", "tagged", with_tag, EACH_SIZE},
        {"invalid-free", "inside-aligned", inside_aligned, EACH_SIZE & ~TINY},
        {"invalid-free", "in-front-16", in_front, EACH_SIZE},
        {"invalid-free", "one-behind", one_behind, EACH_SIZE},
        {"invalid-free", "other-malloc", of_other_malloc, EACH_SIZE},
        {"invalid-free", "stack", of_stack, NO_SIZE},
        {"invalid-free", "stack-forged", of_stack_forged, NO_SIZE},
        {"invalid-free", "static", of_static, NO_SIZE},
        {"invalid-free", "static-forged", of_static_forged, NO_SIZE},
        {"invalid-free", "mapping", of_mapping, NO_SIZE},
        {"invalid-free", "mapping-page", of_mapping_start, NO_SIZE},
        {"invalid-free", "code", of_code, NO_SIZE},
        {"invalid-free", "number-8", of_8, NO_SIZE},
        {"invalid-free", "number-16", of_16, NO_SIZE},
        {"invalid-free", "number-4096", of_4096, NO_SIZE},
        {"invalid-free", "wild", of_wild, NO_SIZE},
        {"invalid-free", "non-canonical", of_non_canonical, NO_SIZE},
        {0},
};
