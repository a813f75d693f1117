/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The metadata arena: size classes above a common frontier. Blocks come fresh from the frontier,
 * zeroed by the system, or recycled from their class's list, linked through their first word and
 * cleared when they are handed out again.
 *
 * META-1  Every class size from 64 bytes on is a multiple of 64, and blocks of these classes are
 *         carved from a frontier that stays a multiple of 64. The three smaller classes are carved
 *         from runs of their own, so they do not disturb it.
 * META-2  A block above BLOCK_MAX on its class's list reads as zero but for the link.
 * META-3  A block's first two words are stored atomically from its free until it is handed out:
 *         a thread may still look at a size there (sheaf_peek), and sees an old one or 0.
 *
 * Memory is never unmapped: a reader that was preempted in the middle of a sequence may still
 * look at a block that has been freed since.
 *
 * metadata_lock is the innermost lock of the library; everything here runs under it.
 */
#include "base/metadata.h"

#include "lang/bits.h"
#include "machine/message.h"
#include "machine/system.h"

#include <string.h>

enum {
        STEPS_SHIFT = 2,   /* four classes a doubling */
        BLOCK_SHIFT = 16,  /* the largest block from the frontier is 64 KiB */
        LIMIT_SHIFT = 40,  /* larger requests are refused */
        SMALL_CLASSES = 3, /* 16, 32 and 48 bytes */
        CLASSES = SMALL_CLASSES + ((LIMIT_SHIFT - 6) << STEPS_SHIFT) + 1,
        SMALL_RUN_BYTES = 3072, /* a multiple of 16, 32, 48 and 64 */
};

static const size_t BLOCK_MAX = (size_t)1 << BLOCK_SHIFT;
static const size_t CHUNK_BYTES = (size_t)1 << 20;
static const size_t CHUNK_BYTES_MIN = (size_t)256 << 10; /* when the system refuses more */

_Static_assert(SMALL_RUN_BYTES % 48 == 0 && SMALL_RUN_BYTES % 64 == 0,
               "small runs hold whole blocks and keep the frontier aligned");

struct lock metadata_lock;

struct frontier {
        char *next;
        char *end;
};

static struct frontier chunk_frontier;
static struct frontier small_frontier;
static struct frontier reserve; /* address space for when the system maps no more */
static void *recycled[CLASSES]; /* free blocks of each class, linked through the first word */

static size_t mapped_bytes; /* changed under metadata_lock, read without it */
static size_t used_bytes;   /* changed under metadata_lock, read without it */

/*
 * Class of a size from 1 byte to 1 << LIMIT_SHIFT, and the size of that class. From 64 bytes
 * on a doubling has four steps, but none smaller than 64 bytes (META-1).
 */
static unsigned int size_class(size_t bytes, size_t *rounded)
{
        unsigned int doubling, step_shift;

        if (bytes <= 48) {
                *rounded = round_up(bytes, 16);
                return (unsigned int)(*rounded / 16) - 1;
        }
        if (bytes <= 64) {
                *rounded = 64;
                return SMALL_CLASSES;
        }
        doubling = fls(bytes - 1) - 1; /* 1 << doubling < bytes <= 2 << doubling */
        step_shift = max_of(doubling - STEPS_SHIFT, 6u);
        *rounded = round_up(bytes, (size_t)1 << step_shift);
        return SMALL_CLASSES + ((doubling - 6) << STEPS_SHIFT) +
               (unsigned int)((*rounded - ((size_t)1 << doubling)) >> step_shift);
}

size_t metadata_round(size_t bytes)
{
        size_t rounded = bytes;

        if (bytes <= (size_t)1 << LIMIT_SHIFT)
                size_class(max_of(bytes, (size_t)1), &rounded);
        return rounded;
}

static void *frontier_take(struct frontier *frontier, size_t bytes)
{
        char *block = frontier->next;

        if ((size_t)(frontier->end - block) < bytes)
                return NULL;
        frontier->next = block + bytes;
        return block;
}

static void frontier_set(struct frontier *frontier, void *start, size_t bytes)
{
        frontier->next = start;
        frontier->end = frontier->next + bytes;
}

void metadata_set_reserve(void *start, size_t bytes)
{
        lock_take(&metadata_lock);
        frontier_set(&reserve, start, bytes);
        lock_drop(&metadata_lock);
}

char *metadata_cut_reserve(char *end)
{
        lock_take(&metadata_lock);
        reserve.end = max_of(reserve.next, end);
        end = reserve.end;
        lock_drop(&metadata_lock);
        return end;
}

void metadata_unlock_reserve(void)
{
        uintptr_t start;

        lock_take(&metadata_lock);
        start = round_up((uintptr_t)reserve.next, system_page_bytes());
        if (start < (uintptr_t)reserve.end)
                system_unlock((void *)start, (uintptr_t)reserve.end - start);
        lock_drop(&metadata_lock);
}

/* A process may have lowered its address space limit below the size it has mapped already. */
static void *reserve_commit_locked(size_t bytes)
{
        char *start = frontier_take(&reserve, bytes);

        if (start && !system_commit(start, bytes)) {
                reserve.next = start;
                return NULL;
        }
        return start;
}

static void *map_counted_locked(size_t bytes)
{
        void *start = system_map(bytes);

        bytes = round_up(bytes, system_page_bytes());
        if (!start)
                start = reserve_commit_locked(bytes);
        if (start)
                add_owned(&mapped_bytes, bytes);
        return start;
}

/* The unused rest of the old chunk is given up: at most 64 KiB of memory never touched. */
static void *chunk_take_locked(size_t bytes)
{
        void *block = frontier_take(&chunk_frontier, bytes);

        for (size_t chunk = CHUNK_BYTES; !block && chunk >= CHUNK_BYTES_MIN; chunk /= 4) {
                void *start = map_counted_locked(chunk);

                if (start) {
                        frontier_set(&chunk_frontier, start, chunk);
                        block = frontier_take(&chunk_frontier, bytes);
                }
        }
        return block;
}

static void *fresh_block_locked(size_t rounded)
{
        void *block;

        debug_check(lock_is_held(&metadata_lock));
        if (rounded > BLOCK_MAX)
                return map_counted_locked(rounded);
        if (rounded >= 64)
                return chunk_take_locked(rounded);

        block = frontier_take(&small_frontier, rounded);
        if (!block) {
                void *run = chunk_take_locked(SMALL_RUN_BYTES);

                if (!run)
                        return NULL;
                frontier_set(&small_frontier, run, SMALL_RUN_BYTES);
                block = frontier_take(&small_frontier, rounded);
        }
        return block;
}

/* Relaxed: META-3. */
static void block_clear(void *block, size_t bytes)
{
        uint64_t *word = block;

        store_relaxed(&word[0], (uint64_t)0);
        store_relaxed(&word[1], (uint64_t)0);
        memset(word + 2, 0, bytes - 2 * sizeof(*word));
}

unsigned int metadata_alloc_many(void **blocks, unsigned int count, size_t bytes)
{
        unsigned int dirty = 0;
        unsigned int got;
        size_t rounded;
        unsigned int class;

        if (bytes > (size_t)1 << LIMIT_SHIFT)
                return 0;
        class = size_class(max_of(bytes, (size_t)1), &rounded);

        lock_take(&metadata_lock);
        while (dirty < count && recycled[class]) {
                blocks[dirty] = recycled[class];
                recycled[class] = *(void **)blocks[dirty++];
        }
        for (got = dirty; got < count; got++) {
                blocks[got] = fresh_block_locked(rounded);
                if (!blocks[got])
                        break;
        }
        add_owned(&used_bytes, got * rounded);
        lock_drop(&metadata_lock);

        /* Clearing a fresh block would only touch its pages early. */
        for (unsigned int i = 0; i < dirty; i++)
                block_clear(blocks[i], rounded > BLOCK_MAX ? 2 * sizeof(uint64_t) : rounded);
        return got;
}

void *metadata_alloc(size_t bytes)
{
        void *block;

        return metadata_alloc_many(&block, 1, bytes) ? block : NULL;
}

static void recycle_locked(void **block, unsigned int class, size_t rounded)
{
        debug_check(lock_is_held(&metadata_lock));
        store_relaxed(block, recycled[class]); /* relaxed: META-3 */
        recycled[class] = block;
        add_owned(&used_bytes, -rounded);
}

void metadata_free_chain(void *first, size_t bytes)
{
        size_t rounded;
        unsigned int class = size_class(max_of(bytes, (size_t)1), &rounded);

        check_or_die(rounded <= BLOCK_MAX);
        lock_take(&metadata_lock);
        while (first) {
                void **block = first;

                first = *block;
                recycle_locked(block, class, rounded);
        }
        lock_drop(&metadata_lock);
}

void metadata_free(void *block, size_t bytes)
{
        size_t rounded;
        unsigned int class;

        if (!block)
                return;
        class = size_class(max_of(bytes, (size_t)1), &rounded);
        /* Mapped alone, so the rest of the last system page is ours too (META-2). */
        if (rounded > BLOCK_MAX && !system_purge(block, round_up(rounded, system_page_bytes())))
                memset(block, 0, rounded);

        lock_take(&metadata_lock);
        recycle_locked(block, class, rounded);
        lock_drop(&metadata_lock);
}

size_t metadata_mapped_bytes(void)
{
        return load_relaxed(&mapped_bytes);
}

size_t metadata_used_bytes(void)
{
        return load_relaxed(&used_bytes);
}
