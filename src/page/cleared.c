/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The last blocks of each doubling of sizes, of the whole process: the block of another thread says as much
 * about the program as one's own.
 *
 * CLEARED-1  A block is looked at when it is freed or resized into another doubling, as its pages go to others
 *            or to the system then. Before, it is looked at without its owner's knowledge, who may be about to
 *            write to it, or to free it. A block whose free was not seen (kfree_bulk) may be another's by then.
 *            A wrong answer costs memory or time, as the block that calloc gives reads as zero either way.
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

        /* First blocks are used as those of smaller doublings, so many below at most, for so many bytes at most. */
        BORROWED_FROM = 2,
        BORROWED_BYTES = 16 << 20,

        WASTED_MOST =
                16
                << 20, /* bytes of a doubling that were written for nothing, until no more are, */
        MENDED_SHIFT = 5, /* and the part of a filled block by which they become less */
};

_Static_assert(1 << LEAST_SHIFT == WRITTEN_MOST, "the doublings begin above it");
_Static_assert((size_t)1 << (LEAST_SHIFT + DOUBLINGS) == HUGE_BYTES,
               "and end where mappings begin");

enum use {
        USE_UNKNOWN, /* no free of it was seen */
        USE_FILLED,
        USE_BEGUN, /* lives, and was filled up to somewhere: the program may be about to go on */
        USE_SPARSE,
};

enum verdict { VERDICT_NONE, VERDICT_FILLED, VERDICT_SPARSE };

static struct doubling {
        void *block[BLOCKS];
        uint32_t use[BLOCKS];     /* enum use, when the block was freed */
        uint32_t written[BLOCKS]; /* calloc wrote the whole block */
        uint32_t given;
        uint32_t verdict; /* of the last look */
        uint64_t wasted;  /* WASTED_MOST */
} doublings[DOUBLINGS];

/* Its index, or DOUBLINGS for a size that has none. */
static unsigned int doubling_of(size_t bytes)
{
        unsigned int shift = 63 - (unsigned int)__builtin_clzll(bytes - 1);

        return shift < LEAST_SHIFT ? DOUBLINGS
                                   : min_of(shift - LEAST_SHIFT, (unsigned int)DOUBLINGS);
}

/* The length of each block of the doubling, or less. */
static size_t least_bytes(const struct doubling *doubling)
{
        return (size_t)1 << (LEAST_SHIFT + (doubling - doublings));
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

/* Looks at some pages of the block, whether each has a byte that is not zero. */
static enum use use_of(const char *block, const struct doubling *doubling)
{
        size_t bytes = least_bytes(doubling);
        unsigned int written = 0;
        enum use use = USE_FILLED;

        for (size_t i = 0; i < LOOKS; i++) {
                /* Not at powers of two alone, where tables may have something special. */
                const char *page = block + i * (bytes / LOOKS + PAGE_SIZE);

                if (!system_can_read(page))
                        return USE_SPARSE;
                if (reads_as_zero(page)) {
                        /* A live block's page of zeros costs its owner a fault, so no more are read. */
                        if (!i)
                                return USE_SPARSE;
                        use = USE_BEGUN;
                } else if (written++ < i) {
                        return USE_SPARSE;
                }
        }
        return use;
}

/* Whether a block that lives and was begun may be about to be filled: of a single thread's only the newest. */
static bool may_be_filled(bool is_newest)
{
        return is_newest || system_threads() != THREADS_ONE;
}

/*
 * Whether at least half of the last blocks were filled. Those that live and may be about to be filled do not count, and
 * VERDICT_NONE means that there are no others, as when many threads fill their first blocks at once.
 */
static enum verdict look(const struct doubling *doubling)
{
        unsigned int newest = (load_relaxed(&doubling->given) - 1) % BLOCKS;
        unsigned int filled = 0;
        unsigned int others = 0;

        for (unsigned int i = 0; i < BLOCKS; i++) {
                const char *block = load_relaxed(&doubling->block[i]);
                uint32_t use = load_relaxed(&doubling->use[i]);

                if (!block)
                        break;
                if (use == USE_UNKNOWN)
                        use = use_of(block, doubling);
                filled += use == USE_FILLED;
                others += use == USE_SPARSE || (use == USE_BEGUN && !may_be_filled(i == newest));
        }
        if (!filled && !others)
                return VERDICT_NONE;
        return filled >= others ? VERDICT_FILLED : VERDICT_SPARSE;
}

/* A look for each of the first blocks, and then for every eighth. */
static enum verdict verdict_of(struct doubling *doubling)
{
        uint32_t given = load_relaxed(&doubling->given);
        uint32_t kept = load_relaxed(&doubling->verdict);
        uint32_t verdict;

        if (given > LOOK_EACH && given % LOOK_EACH)
                return kept;
        verdict = look(doubling);
        if (verdict != kept)
                store_relaxed(&doubling->verdict, verdict);
        return verdict;
}

/* While a doubling has few blocks and none says anything, those of half the size do, or of a quarter. */
bool cleared_are_filled(size_t bytes)
{
        unsigned int own = doubling_of(bytes);
        unsigned int number = own;
        enum verdict verdict;
        uint32_t given;

        if (own == DOUBLINGS || system_sandbox_was_told())
                return false;
        verdict = verdict_of(&doublings[own]);
        given = load_relaxed(&doublings[own].given);
        if (given < LOOK_EACH && (given + 1) * bytes <= BORROWED_BYTES)
                for (int i = 0; verdict == VERDICT_NONE && i < BORROWED_FROM && number; i++)
                        verdict = verdict_of(&doublings[--number]);
        return verdict == VERDICT_FILLED && load_relaxed(&doublings[own].wasted) < WASTED_MOST;
}

/* A block that was written as a whole has been used so. Relaxed: of two threads that count at once one is forgotten. */
static void judge(struct doubling *doubling, enum use use)
{
        size_t bytes = least_bytes(doubling);
        uint64_t wasted = load_relaxed(&doubling->wasted);

        if (use == USE_SPARSE)
                wasted += bytes;
        else
                wasted -= min_of(wasted, (uint64_t)bytes >> MENDED_SHIFT);
        store_relaxed(&doubling->wasted, wasted);
}

/* A block that still lives gives its place to a newer one. */
static void judge_live(struct doubling *doubling, unsigned int place)
{
        const void *block = load_relaxed(&doubling->block[place]);
        enum use use;

        if (!block || load_relaxed(&doubling->use[place]) != USE_UNKNOWN ||
            !load_relaxed(&doubling->written[place]))
                return;
        use = use_of(block, doubling);
        if (use != USE_BEGUN)
                judge(doubling, use);
        else if (!may_be_filled(false))
                judge(doubling, USE_SPARSE);
}

void cleared_given(void *block, size_t bytes, bool written)
{
        unsigned int number = doubling_of(bytes);
        struct doubling *doubling = &doublings[number];
        unsigned int place;
        uint32_t given;

        if (number == DOUBLINGS)
                return;
        /* Threads that come at once may share a place: one of their blocks is not looked at. */
        given = load_relaxed(&doubling->given);
        store_relaxed(&doubling->given, given + 1);
        /* Its place would be another block's at the next look. */
        if (given > LOOK_EACH && given % LOOK_EACH < LOOK_EACH - BLOCKS)
                return;
        place = given % BLOCKS;
        if (!system_sandbox_was_told())
                judge_live(doubling, place);
        store_relaxed(&doubling->use[place], (uint32_t)USE_UNKNOWN);
        store_relaxed(&doubling->written[place], (uint32_t)written);
        store_relaxed(&doubling->block[place], block);
}

void cleared_freed(const void *block, size_t bytes)
{
        unsigned int number = doubling_of(bytes);
        struct doubling *doubling = &doublings[number];

        if (number == DOUBLINGS || system_sandbox_was_told())
                return;
        for (unsigned int i = 0; i < BLOCKS; i++)
                if (load_relaxed(&doubling->block[i]) == block &&
                    load_relaxed(&doubling->use[i]) == USE_UNKNOWN) {
                        enum use use = use_of(block, doubling);

                        use = use == USE_FILLED ? USE_FILLED : USE_SPARSE;
                        if (load_relaxed(&doubling->written[i]))
                                judge(doubling, use);
                        store_relaxed(&doubling->use[i], (uint32_t)use);
                }
}

void cleared_resized(const void *block, size_t old_bytes, size_t bytes)
{
        if (doubling_of(old_bytes) != doubling_of(bytes))
                cleared_freed(block, old_bytes);
}

void cleared_make_zero(void *start, size_t pages)
{
        for (char *page = start; pages; pages--, page += PAGE_SIZE) {
                if (!reads_as_zero(page))
                        memset(page, 0, PAGE_SIZE);
        }
}
