/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Marks of a SLOB page: where handed-out blocks start and which of them are kmalloc's (SLOB-2).
 *
 * The kernel has nothing of the kind and takes the caller's word for all it is given. Here 128
 * bytes of metadata a page, two bits for every 8 bytes, tell a block from the inside of one, and
 * a kmalloc block from an object whose size only its cache knows.
 */
#ifndef KMEM_SLOB_MARKS_H
#define KMEM_SLOB_MARKS_H

#include "slob/slob.h"

enum {
        GRANULE_UNITS = SLOB_ALIGN / SLOB_UNIT,
        PAGE_GRANULES = PAGE_UNITS / GRANULE_UNITS,
};

struct slob_marks {
        uint64_t start[PAGE_GRANULES / 64];
        uint64_t kmalloc[PAGE_GRANULES / 64]; /* of the starts, those with a header */
};

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
