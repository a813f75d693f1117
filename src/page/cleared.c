/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The last blocks of each doubling of sizes, of the whole process: the block of another thread says as much
 * about the program as one's own.
 *
 * CLEARED-1  A block is looked at without its owner's knowledge: it may have been freed, given out again,
 *            or have lost its pages to the system meanwhile. A wrong answer costs memory or time, as the
 *            block that calloc gives reads as zero either way.
 * CLEARED-2  A look must not fault. The heap's pages are readable for good, unless the program protects
 *            or unmaps pages of its own block, so the system is asked before each page is read. A program
 *            that protects a page between the question and the reads behind it, a few dozen
 *            nanoseconds, is not covered.
 */
#include "page/cleared.h"

#include "machine/system.h"
#include "page/large.h"

#include <string.h>

enum {
        LEAST_SHIFT = 18,
        DOUBLINGS = 7, /* to 32 MiB, where blocks are mappings of their own */
        BLOCKS = 4,    /* of a doubling; one that is still being filled does not decide alone */
        LOOKS = 4,     /* at pages of a block */
        LOOK_EACH = 8, /* blocks of a doubling, once there were more */
};

_Static_assert(1 << LEAST_SHIFT == WRITTEN_MOST, "the doublings begin above it");
_Static_assert((size_t)1 << (LEAST_SHIFT + DOUBLINGS) == HUGE_BYTES,
               "and end where mappings begin");

static struct doubling {
        void *block[BLOCKS];
        uint32_t given;
        uint32_t filled; /* what the last look said */
} doublings[DOUBLINGS];

/* Its index, or DOUBLINGS for a size that has none. */
static unsigned int doubling_of(size_t bytes)
{
        unsigned int shift = 63 - (unsigned int)__builtin_clzll(bytes - 1);

        return shift < LEAST_SHIFT ? DOUBLINGS
                                   : min_of(shift - LEAST_SHIFT, (unsigned int)DOUBLINGS);
}

/* ThreadSanitizer leaves this function alone, as the owner of the page may write to it (CLEARED-1). */
__attribute__((no_sanitize_thread)) static bool reads_as_zero(const void *page)
{
        const uint64_t *word = page;

        for (size_t i = 0; i < PAGE_SIZE / sizeof(*word); i += 4)
                if (load_relaxed(&word[i]) | load_relaxed(&word[i + 1]) |
                    load_relaxed(&word[i + 2]) | load_relaxed(&word[i + 3]))
                        return false;
        return true;
}

/* Whether each page that is looked at has a byte that is not zero. @bytes: whole pages. */
static bool is_filled(const char *block, size_t bytes)
{
        for (size_t i = 0; i < LOOKS; i++) {
                /* Not at powers of two alone, where tables may have something special. */
                const char *page = block + i * (bytes / LOOKS + PAGE_SIZE);

                if (!system_can_read(page) || reads_as_zero(page))
                        return false;
        }
        return true;
}

/* Whether at least half of the last blocks were filled. */
static bool look(unsigned int doubling)
{
        size_t bytes = (size_t)1 << (doubling + LEAST_SHIFT);
        unsigned int known = 0;
        unsigned int filled = 0;

        for (; known < BLOCKS && 2 * filled < BLOCKS; known++) {
                const char *block = load_relaxed(&doublings[doubling].block[known]);

                if (!block)
                        break;
                filled += is_filled(block, bytes);
        }
        return filled && 2 * filled >= known;
}

bool cleared_are_filled(size_t bytes)
{
        unsigned int doubling = doubling_of(bytes);
        uint32_t given, filled;

        if (doubling == DOUBLINGS || system_sandbox_was_told())
                return false;
        /* A program's first block of a doubling is used as those of half its size are. */
        if (doubling && !load_relaxed(&doublings[doubling].given))
                doubling--;
        given = load_relaxed(&doublings[doubling].given);
        if (given > LOOK_EACH && given % LOOK_EACH)
                return load_relaxed(&doublings[doubling].filled);
        filled = look(doubling);
        if (filled != load_relaxed(&doublings[doubling].filled))
                store_relaxed(&doublings[doubling].filled, filled);
        return filled;
}

void cleared_given(void *block, size_t bytes)
{
        unsigned int doubling = doubling_of(bytes);
        uint32_t given;

        if (doubling == DOUBLINGS)
                return;
        /* Threads that come at once may share a place: one of their blocks is not looked at. */
        given = load_relaxed(&doublings[doubling].given);
        store_relaxed(&doublings[doubling].block[given % BLOCKS], block);
        store_relaxed(&doublings[doubling].given, given + 1);
}

void cleared_make_zero(void *start, size_t pages)
{
        for (char *page = start; pages; pages--, page += PAGE_SIZE) {
                if (!reads_as_zero(page))
                        memset(page, 0, PAGE_SIZE);
        }
}
