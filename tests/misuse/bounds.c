/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reads and writes beyond a block, on both sides. The block lies among others in use. Harm: another
 * block has changed, or its content was read. For writes that is said once the block is freed, where
 * an allocator may notice them.
 */
#include "misuse.h"

#include <malloc.h>

enum { CROWD_MOST = 4096, FAR = 64 << 10, ZERO_CROWD = 64 };

static char *crowd[CROWD_MOST];
static size_t crowd_count;

/* Blocks with an 'N' in each byte; FAR bytes of them on each side of the middle, if need be. */
static void make_crowd(size_t bytes)
{
        crowd_count = 3 * (size_t)FAR / bytes + 8;
        if (bytes > 1 << 20)
                crowd_count = 4;
        for (size_t i = 0; i < crowd_count; i++) {
                crowd[i] = take(bytes);
                fill(crowd[i], bytes, 'N');
        }
}

/* The block of the crowd whose neighbour above is nearest, among those with others on both sides. */
static char *choose_victim(size_t bytes)
{
        uintptr_t least = UINTPTR_MAX;
        char *chosen = crowd[0];

        for (size_t i = 0; i < crowd_count; i++) {
                uintptr_t nearest = UINTPTR_MAX;
                size_t below = 0;

                for (size_t j = 0; j < crowd_count; j++) {
                        uintptr_t gap = (uintptr_t)crowd[j] - (uintptr_t)crowd[i];

                        below += crowd[j] < crowd[i];
                        if (crowd[j] > crowd[i] && gap < nearest)
                                nearest = gap;
                }
                /* In the middle third, so that there are neighbours on both sides. */
                if (nearest < least && below >= crowd_count / 3 && below <= crowd_count * 2 / 3) {
                        least = nearest;
                        chosen = crowd[i];
                }
        }
        fill(chosen, bytes, 'V');
        return chosen;
}

static bool others_changed(const char *victim, size_t bytes)
{
        for (size_t i = 0; i < crowd_count; i++)
                if (crowd[i] != victim && !is_filled(crowd[i], bytes, 'N'))
                        return true;
        return false;
}

/* Frees all, the victim first; then the misuse has or has not been noticed. */
static void end_crowd(char *victim, size_t bytes, bool changed)
{
        release(victim);
        for (size_t i = 0; i < crowd_count; i++)
                if (crowd[i] != victim)
                        release(crowd[i]);
        hold_many(bytes);
        harm_if(changed, "another block was changed");
        harm_if(held_overlap(), "an address was handed out twice");
}

static void write_at(size_t bytes, ptrdiff_t distance, size_t count)
{
        char *victim;

        make_crowd(bytes);
        victim = choose_victim(bytes);
        misuse_write(victim + distance, count, 'X');
        end_crowd(victim, bytes, others_changed(victim, bytes));
}

static void write_1(size_t bytes)
{
        write_at(bytes, (ptrdiff_t)bytes, 1);
}

static void write_word(size_t bytes)
{
        write_at(bytes, (ptrdiff_t)bytes, WORD_BYTES);
}

static void write_64(size_t bytes)
{
        write_at(bytes, (ptrdiff_t)bytes, 64);
}

static void write_page(size_t bytes)
{
        write_at(bytes, (ptrdiff_t)bytes, PAGE_OF_BYTES);
}

static void write_far(size_t bytes)
{
        write_at(bytes, (ptrdiff_t)bytes + FAR, WORD_BYTES);
}

/* Beyond what malloc_usable_size allows. */
static void write_beyond_usable(size_t bytes)
{
        char *victim;

        make_crowd(bytes);
        victim = choose_victim(bytes);
        misuse_write(victim + malloc_usable_size(victim), 1, 'X');
        end_crowd(victim, bytes, others_changed(victim, bytes));
}

/* A string's end, one byte too far: the byte is zero. */
static void write_null(size_t bytes)
{
        char *victim;

        make_crowd(bytes);
        victim = choose_victim(bytes);
        misuse_write(victim + malloc_usable_size(victim), 1, 0);
        end_crowd(victim, bytes, others_changed(victim, bytes));
}

static void below_1(size_t bytes)
{
        write_at(bytes, -1, 1);
}

static void below_word(size_t bytes)
{
        write_at(bytes, -WORD_BYTES, WORD_BYTES);
}

static void below_64(size_t bytes)
{
        write_at(bytes, -64, 64);
}

static void below_page(size_t bytes)
{
        write_at(bytes, -PAGE_OF_BYTES, PAGE_OF_BYTES);
}

static void read_at(size_t bytes, ptrdiff_t distance, size_t count)
{
        const char *victim;
        size_t seen;

        make_crowd(bytes);
        victim = choose_victim(bytes);
        seen = misuse_count(victim + distance, count, 'N');
        harm_if(seen >= WORD_BYTES || seen == count, "another block was read");
}

static void read_64(size_t bytes)
{
        read_at(bytes, (ptrdiff_t)bytes, 64);
}

static void read_page(size_t bytes)
{
        read_at(bytes, (ptrdiff_t)bytes, PAGE_OF_BYTES);
}

static void read_far(size_t bytes)
{
        read_at(bytes, (ptrdiff_t)bytes + FAR, 64);
}

static void read_below(size_t bytes)
{
        read_at(bytes, -64, 64);
}

/* Blocks without bytes among blocks of 16. */
static char *make_zero_crowd(void)
{
        char *zero[ZERO_CROWD];

        crowd_count = ZERO_CROWD;
        for (size_t i = 0; i < ZERO_CROWD; i++) {
                zero[i] = take(0);
                crowd[i] = take(UNIT_BYTES);
                fill(crowd[i], UNIT_BYTES, 'N');
        }
        return zero[ZERO_CROWD / 2];
}

static void zero_write(size_t count)
{
        char *victim = make_zero_crowd();
        bool changed;

        misuse_write(victim, count, 'X');
        changed = others_changed(victim, UNIT_BYTES);
        release(victim);
        for (size_t i = 0; i < crowd_count; i++)
                release(crowd[i]);
        hold_many(UNIT_BYTES);
        harm_if(changed, "another block was changed");
        harm_if(held_overlap(), "an address was handed out twice");
}

static void zero_write_1(size_t bytes)
{
        (void)bytes;
        zero_write(1);
}

static void zero_write_16(size_t bytes)
{
        (void)bytes;
        zero_write(UNIT_BYTES);
}

static void zero_write_64(size_t bytes)
{
        (void)bytes;
        zero_write(64);
}

static void zero_read_1(size_t bytes)
{
        (void)bytes;
        harm_if(misuse_count(make_zero_crowd(), 1, 'N') == 1, "another block was read");
}

static void zero_read_64(size_t bytes)
{
        (void)bytes;
        harm_if(misuse_count(make_zero_crowd(), 64, 'N') >= WORD_BYTES, "another block was read");
}

static void zero_same(size_t bytes)
{
        char *first = take(bytes);

        harm_if(first == take(bytes), "two blocks of no bytes have one address");
}

const struct way bounds_ways[] = {
        {"overflow-write", "1", write_1, EACH_SIZE},
        {"overflow-write", "8", write_word, EACH_SIZE},
        {"overflow-write", "64", write_64, EACH_SIZE},
        {"overflow-write", "page", write_page, EACH_SIZE},
        {"overflow-write", "far", write_far, EACH_SIZE},
        {"overflow-write", "usable-1", write_beyond_usable, EACH_SIZE},
        {"overflow-write", "usable-null", write_null, EACH_SIZE},
        {"overflow-read", "64", read_64, EACH_SIZE},
        {"overflow-read", "page", read_page, EACH_SIZE},
        {"overflow-read", "far", read_far, EACH_SIZE},
        {"underflow", "write-1", below_1, EACH_SIZE},
        {"underflow", "write-8", below_word, EACH_SIZE},
        {"underflow", "write-64", below_64, EACH_SIZE},
        {"underflow", "write-page", below_page, EACH_SIZE},
        {"underflow", "read-64", read_below, EACH_SIZE},
        {"zero-size", "write-1", zero_write_1, NO_SIZE},
        {"zero-size", "write-16", zero_write_16, NO_SIZE},
        {"zero-size", "write-64", zero_write_64, NO_SIZE},
        {"zero-size", "read-1", zero_read_1, NO_SIZE},
        {"zero-size", "read-64", zero_read_64, NO_SIZE},
        {"zero-size", "same", zero_same, NO_SIZE},
        {0},
};
