/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A bit for every 8 bytes of the heap, which is 1/64 of it. The bits lie in blocks, each for a
 * chunk of the heap and made when the first object of the chunk is handed out. Blocks stay: the
 * chunk is used again. Their table and each block are put in place by compare-and-swap, since other
 * threads may make them at the same time.
 */
#include "percpu/handed.h"

#include "base/metadata.h"

enum {
        START_SHIFT = 3, /* objects start at multiples of 8 bytes */
        CHUNK_SHIFT = 22,
};

struct marks_of_chunk {
        uint64_t word[1 << (CHUNK_SHIFT - START_SHIFT - 6)];
};

static struct marks_of_chunk **chunks; /* by distance from the heap's base */

static uint64_t bit_of(const void *object)
{
        return (uint64_t)1 << (((uintptr_t)object - heap.base) >> START_SHIFT & 63);
}

/* The word with the object's mark; NULL if there is none yet. */
static uint64_t *word_of(const void *object)
{
        size_t distance = (uintptr_t)object - heap.base;
        struct marks_of_chunk **table = load_acquire(&chunks);
        struct marks_of_chunk *marks = table ? load_acquire(&table[distance >> CHUNK_SHIFT]) : NULL;

        distance &= ((size_t)1 << CHUNK_SHIFT) - 1;
        return marks ? &marks->word[distance >> (START_SHIFT + 6)] : NULL;
}

static bool make_table(void)
{
        size_t bytes = ((load_relaxed(&heap.reserved_bytes) >> CHUNK_SHIFT) + 1) * sizeof(*chunks);
        struct marks_of_chunk **table = metadata_alloc(bytes);
        struct marks_of_chunk **none = NULL;

        /* Release: the zeroes are there before the table is found (acquire in word_of). */
        if (table && !compare_swap_release(&chunks, &none, table))
                metadata_free(table, bytes);
        return table || load_acquire(&chunks);
}

/* The word with the object's mark, made if need be; NULL without memory. */
static uint64_t *word_make(const void *object)
{
        uint64_t *word = word_of(object);
        struct marks_of_chunk **place;
        struct marks_of_chunk *marks;
        struct marks_of_chunk *none = NULL;

        if (likely(word))
                return word;
        if (!load_acquire(&chunks) && !make_table())
                return NULL;
        place = &load_acquire(&chunks)[((uintptr_t)object - heap.base) >> CHUNK_SHIFT];
        marks = metadata_alloc(sizeof(*marks));
        /* Release: the zeroes are there before the block is found (acquire in word_of). */
        if (marks && !compare_swap_release(place, &none, marks))
                metadata_free(marks, sizeof(*marks));
        return word_of(object);
}

/*
 * Relaxed: the program orders the passing of an object between threads itself. A double free has no
 * order, and needs only an atomic step (HANDED-3).
 */
bool handed_mark(const void *object)
{
        uint64_t *word = word_make(object);

        if (unlikely(!word))
                return false;
        or_relaxed(word, bit_of(object));
        return true;
}

bool handed_clear(const void *object)
{
        uint64_t *word = word_of(object);
        uint64_t bit = bit_of(object);

        return word && (uintptr_t)object % (1 << START_SHIFT) == 0 && and_relaxed(word, ~bit) & bit;
}

bool handed_is_marked(const void *object)
{
        const uint64_t *word = word_of(object);

        return word && (uintptr_t)object % (1 << START_SHIFT) == 0 &&
               load_relaxed(word) & bit_of(object);
}
