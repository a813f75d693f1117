/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Marks of a SLOB page: where handed-out blocks start, and whether they are kmalloc's (SLOB-2).
 *
 * The kernel has no marks and trusts every address that a caller gives. Here marks tell a block's
 * start from its inside, and a kmalloc block from an object, the size of which only its cache
 * knows. They take 96 bytes of metadata a page, three bits for every 16 bytes. With them is the
 * page's node in the tree of its list.
 */
#ifndef KMEM_ENGINES_SLOB_MARKS_H
#define KMEM_ENGINES_SLOB_MARKS_H

#include "engines/slob/slob.h"

enum {
        GRANULE_UNITS = SLOB_ALIGN / SLOB_UNIT,
        PAGE_GRANULES = PAGE_UNITS / GRANULE_UNITS,
};

struct slob_marks {
        uint64_t start[PAGE_GRANULES / 64];
        /*
         * Starts of blocks with a header, a bit for two granules. A block with a header has more
         * than a single granule, so if a block starts in both granules the bit is the second's.
         */
        uint64_t kmalloc[PAGE_GRANULES / 128];
        uint32_t parent; /* tree.c: page numbers, 0: none */
        uint32_t left;
        uint32_t right;
        uint32_t pages;
        uint32_t most;
};
_Static_assert(PAGE_SIZE > 4096 || sizeof(struct slob_marks) <= 128, "fills its metadata block");

/* Whether the block of kmalloc starts there. */
static inline bool mark_is_kmalloc(const struct slob_marks *marks, uint32_t granule)
{
        return bit_get(marks->kmalloc, granule / 2) && bit_get(marks->start, granule) &&
               (granule % 2 || !bit_get(marks->start, granule + 1));
}

static inline void mark_set(struct slob_marks *marks, uint32_t granule, bool is_kmalloc)
{
        bit_set(marks->start, granule);
        if (is_kmalloc)
                bit_set(marks->kmalloc, granule / 2);
}

static inline void mark_clear(struct slob_marks *marks, uint32_t granule)
{
        if (mark_is_kmalloc(marks, granule))
                bit_clear(marks->kmalloc, granule / 2);
        bit_clear(marks->start, granule);
}

/* Whether any bit of [from, to) is set. */
static inline bool mark_any(const uint64_t *bits, uint32_t from, uint32_t to)
{
        while (from < to) {
                uint64_t word = bits[from / 64] >> (from % 64);
                uint32_t left = 64 - from % 64;

                if (left > to - from) {
                        left = to - from;
                        word &= ((uint64_t)1 << left) - 1;
                }
                if (word)
                        return true;
                from += left;
        }
        return false;
}

#endif
