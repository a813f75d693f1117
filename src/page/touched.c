/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The touched bitmap (PAGE-4): a bit is set when its page is handed out and cleared when the
 * page is purged. Runs are handled a word at a time; most words are all set or all clear. Beside
 * each touched bit stand a bit for the page that a block began with, and a bit for pages of blocks
 * that have several objects; all three are cleared together.
 */
#include "page/zone.h"

struct cut {
        struct touched_word *word;
        uint64_t mask; /* bits of the word inside the run */
        size_t pages;  /* their number */
};

/* The part of the run [first, first + count) that lies in the word of its first bit. */
static struct cut first_cut(uint32_t first, size_t count)
{
        unsigned int bit = first % 64;
        size_t pages = min_of(count, (size_t)(64 - bit));

        return (struct cut){
                .word = &frontier.touched_bits[first / 64],
                .mask = (~(uint64_t)0 >> (64 - pages)) << bit,
                .pages = pages,
        };
}

size_t touched_count_locked(uint32_t first, size_t count)
{
        size_t touched = 0;

        zone_locked_check(zone_of(first));
        while (count != 0) {
                struct cut cut = first_cut(first, count);
                uint64_t bits = cut.word->touched & cut.mask;

                if (bits == cut.mask)
                        touched += cut.pages;
                else if (bits != 0)
                        touched += (size_t)__builtin_popcountll(bits);
                first += (uint32_t)cut.pages;
                count -= cut.pages;
        }
        return touched;
}

void touched_set_locked(uint32_t first, size_t count)
{
        zone_locked_check(zone_of(first));
        while (count != 0) {
                struct cut cut = first_cut(first, count);

                cut.word->touched |= cut.mask;
                first += (uint32_t)cut.pages;
                count -= cut.pages;
        }
}

void touched_clear_locked(uint32_t first, size_t count)
{
        zone_locked_check(zone_of(first));
        while (count != 0) {
                struct cut cut = first_cut(first, count);

                cut.word->touched &= ~cut.mask;
                cut.word->begun &= ~cut.mask;
                cut.word->packed &= ~cut.mask;
                first += (uint32_t)cut.pages;
                count -= cut.pages;
        }
}

/* A bit for each two, set if either is. */
static uint64_t pairs_of(uint64_t bits)
{
        bits = (bits | bits >> 1) & 0x5555555555555555;
        bits = (bits | bits >> 1) & 0x3333333333333333;
        bits = (bits | bits >> 2) & 0x0f0f0f0f0f0f0f0f;
        bits = (bits | bits >> 4) & 0x00ff00ff00ff00ff;
        bits = (bits | bits >> 8) & 0x0000ffff0000ffff;
        return (bits | bits >> 16) & 0xffffffff;
}

void touched_copy_locked(uint32_t first, size_t count, struct touched_bits *bits)
{
        const struct touched_word *word = &frontier.touched_bits[first / 64];

        zone_locked_check(zone_of(first));
        bits->shift = first % 64;
        bits->halved = count > BITS_PAGES / 2;
        for (size_t i = 0; i * 64 < bits->shift + count; i++)
                if (!bits->halved)
                        bits->word[i] = word[i].touched;
                else if (i % 2 == 0)
                        bits->word[i / 2] = pairs_of(word[i].touched);
                else
                        bits->word[i / 2] |= pairs_of(word[i].touched) << 32;
}

uint32_t touched_first_locked(uint32_t first, size_t count)
{
        zone_locked_check(zone_of(first));
        while (count != 0) {
                struct cut cut = first_cut(first, count);
                uint64_t bits = cut.word->touched & cut.mask;

                if (bits)
                        return (uint32_t)round_down(first, 64) + (uint32_t)__builtin_ctzll(bits);
                first += (uint32_t)cut.pages;
                count -= cut.pages;
        }
        check_or_die(false);
        return 0;
}

void begun_set_locked(uint32_t number)
{
        struct touched_word *word = &frontier.touched_bits[number / 64];

        zone_locked_check(zone_of(number));
        debug_check(word->touched >> number % 64 & 1);
        word->begun |= (uint64_t)1 << number % 64;
}

uint32_t begun_first_locked(uint32_t first, size_t count, size_t align)
{
        uint32_t from = first;

        zone_locked_check(zone_of(first));
        /* Most blocks begin where the block before began. */
        debug_check(first % align == 0);
        if (frontier.touched_bits[first / 64].begun >> first % 64 & 1)
                return first;
        while (count != 0) {
                struct cut cut = first_cut(from, count);

                for (uint64_t bits = cut.word->begun & cut.mask; bits; bits &= bits - 1) {
                        uint32_t number =
                                (uint32_t)round_down(from, 64) + (uint32_t)__builtin_ctzll(bits);

                        if (number % align == 0)
                                return number;
                }
                from += (uint32_t)cut.pages;
                count -= cut.pages;
        }
        return first;
}

void packed_set_locked(uint32_t first, size_t count)
{
        zone_locked_check(zone_of(first));
        while (count != 0) {
                struct cut cut = first_cut(first, count);

                debug_check((cut.word->touched & cut.mask) == cut.mask);
                cut.word->packed |= cut.mask;
                first += (uint32_t)cut.pages;
                count -= cut.pages;
        }
}

/* The first of these pages whose bit is @set; the page behind them if there is none. */
static uint32_t packed_next(uint32_t first, size_t count, bool set)
{
        while (count != 0) {
                struct cut cut = first_cut(first, count);
                uint64_t bits = (set ? cut.word->packed : ~cut.word->packed) & cut.mask;

                if (bits)
                        return (uint32_t)round_down(first, 64) + (uint32_t)__builtin_ctzll(bits);
                first += (uint32_t)cut.pages;
                count -= cut.pages;
        }
        return first;
}

uint32_t packed_first_locked(uint32_t first, size_t near, size_t count, size_t align)
{
        size_t end = first + near;
        size_t at = first;

        zone_locked_check(zone_of(first));
        while ((at = round_up((size_t)packed_next((uint32_t)at, end - at, true), align)) < end) {
                uint32_t behind = packed_next((uint32_t)at, count, false);

                if (behind == at + count)
                        return (uint32_t)at;
                at = min_of((size_t)behind, end);
        }
        return first;
}
