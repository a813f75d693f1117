/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Writes to the places where allocators keep notes: in free blocks, and in front of and behind
 * blocks in use. Harm: an address of the attacker's choice is handed out, blocks overlap, or memory
 * that the attacker chose is changed.
 */
#include "misuse.h"

#include <malloc.h>

enum { TARGET_BYTES = 4096, LINKS = 8 };

static struct {
        _Alignas(TARGET_BYTES) char byte[2 * TARGET_BYTES];
} target;

static char *chosen_address(void)
{
        return target.byte + TARGET_BYTES;
}

static void look_for_target(size_t bytes)
{
        size_t most = many_of(bytes) < 1000 ? many_of(bytes) : 1000;

        for (size_t i = 0; i < most && !held_has(target.byte, sizeof(target)); i++)
                hold(take(bytes), bytes);
        harm_if(held_has(target.byte, sizeof(target)), "a chosen address was handed out");
        harm_if(!is_filled(target.byte, sizeof(target), 0), "chosen memory was changed");
        harm_if(held_overlap(), "an address was handed out twice");
}

/* Writes an address to the first words of a free block. */
static void write_links(char *block, uintptr_t link)
{
        volatile uintptr_t *word = hide(block);

        misuse_begins(block, LINKS * sizeof(*word));
        for (int i = 0; i < 2; i++)
                word[i] = link;
        misuse_ends();
}

static void link_plain(size_t bytes)
{
        char *first = take(bytes);
        char *second = take(bytes);

        release(first);
        release(second);
        write_links(second, (uintptr_t)chosen_address());
        look_for_target(bytes);
}

/* As glibc mangles a link: with the bits of the address at which it stands. */
static void link_mangled(size_t bytes)
{
        char *first = take(bytes);
        char *second = take(bytes);

        release(first);
        release(second);
        write_links(second, (uintptr_t)chosen_address() ^ (uintptr_t)second >> 12);
        look_for_target(bytes);
}

/* In blocks that have gone back all the way. */
static void link_late(size_t bytes)
{
        enum { MOST = 4096 };
        static char *block[MOST];
        size_t count = many_of(bytes) < MOST ? many_of(bytes) : MOST;

        for (size_t i = 0; i < count; i++)
                block[i] = take(bytes);
        for (size_t i = 0; i < count; i += 2)
                release(block[i]);
        malloc_trim(0);
        for (size_t i = 0; i < count; i += 2)
                write_links(block[i], (uintptr_t)chosen_address());
        look_for_target(bytes);
}

/* Partly overwrites a link: the low byte alone, which needs no knowledge of addresses. */
static void link_low_byte(size_t bytes)
{
        char *first = take(bytes);
        char *second = take(bytes);

        release(first);
        release(second);
        misuse_begins(second, 1);
        *(volatile char *)hide(second) ^= 0x40;
        misuse_ends();
        look_for_target(bytes);
}

/* Changes the word in front of a block in use, and frees the block. */
static void change_front(size_t bytes, size_t value, bool both)
{
        char *before = take(bytes);
        char *block = take(bytes);
        char *behind = take(bytes);
        volatile size_t *word = hide(block);

        hold(before, bytes);
        fill(before, bytes, 'N');
        fill(block, bytes, 'B');
        hold(behind, bytes);
        misuse_begins(block - UNIT_BYTES, UNIT_BYTES);
        word[-1] = value;
        if (both)
                word[-2] = value;
        misuse_ends();
        release(block);
        hold_many(bytes);
        look_for_target(2 * bytes);
        harm_if(!is_filled(before, bytes, 'N'), "another block was changed");
}

static void front_zero(size_t bytes)
{
        change_front(bytes, 0, true);
}

static void front_ones(size_t bytes)
{
        change_front(bytes, SIZE_MAX, true);
}

/* A size that reaches over the next block, in glibc's form. */
static void front_larger(size_t bytes)
{
        change_front(bytes, ((2 * bytes + 64) & ~(size_t)15) | 1, false);
}

static void front_smaller(size_t bytes)
{
        change_front(bytes, ((bytes / 2 + 16) & ~(size_t)15) | 1, false);
}

/* As front_larger, with another block in its place afterwards. */
static void front_pointer(size_t bytes)
{
        change_front(bytes, (size_t)chosen_address(), true);
}

/* Links and sizes of large free blocks are overwritten before the blocks beside them are freed. */
static void unlinked(size_t bytes)
{
        char *first = take(bytes);
        char *second = take(bytes);
        char *third = take(bytes);
        volatile uintptr_t *word = hide(second);

        release(second);
        misuse_begins(second - UNIT_BYTES, 8 * UNIT_BYTES);
        for (int i = 0; i < 2; i++)
                word[i] = (uintptr_t)chosen_address() - (size_t)(2 + i) * WORD_BYTES;
        misuse_ends();
        release(first);
        release(third);
        look_for_target(bytes);
}

/* The word behind the newest block, where some allocators keep the size of all that is left. */
static void behind_newest(size_t bytes)
{
        char *block = take(bytes);
        size_t usable = malloc_usable_size(block);
        char *far;

        misuse_write(block + usable, WORD_BYTES, (char)0xff);
        hold(block, bytes);
        hold_many(bytes);
        far = hide(malloc((size_t)1 << 33));
        if (far)
                hold(far, PAGE_OF_BYTES);
        look_for_target(bytes);
}

const struct way metadata_ways[] = {
        {"metadata", "link", link_plain, EACH_SIZE},
        {"metadata", "link-mangled", link_mangled, EACH_SIZE},
        {"metadata", "link-late", link_late, EACH_SIZE},
        {"metadata", "link-low-byte", link_low_byte, EACH_SIZE},
        {"metadata", "front-zero", front_zero, EACH_SIZE},
        {"metadata", "front-ones", front_ones, EACH_SIZE},
        {"metadata", "front-larger", front_larger, EACH_SIZE},
        {"metadata", "front-smaller", front_smaller, EACH_SIZE},
        {"metadata", "front-pointer", front_pointer, EACH_SIZE},
        {"metadata", "unlink", unlinked, EACH_SIZE},
        {"metadata", "behind-newest", behind_newest, EACH_SIZE},
        {0},
};
