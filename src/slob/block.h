/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A free block, as written into the free memory itself (S7-02), and a page's own two figures.
 *
 * A block of two units or more holds its size in the first unit and the offset of the next free
 * block in the second. A block of one unit holds that offset negated. Offsets count units from
 * the start of the page; the last block's next is PAGE_UNITS, the end of the page.
 */
#ifndef KMEM_SLOB_BLOCK_H
#define KMEM_SLOB_BLOCK_H

#include "slob/slob.h"

struct free_block {
        uint32_t at;
        uint32_t units;
        uint32_t next;
};

static inline uint32_t page_free_units(const struct page *page)
{
        return (uint32_t)(page->state & 0xffff);
}

/* Offset of the first free block, PAGE_UNITS if the page is full. */
static inline uint32_t page_first_free(const struct page *page)
{
        return (uint32_t)(page->state >> 16);
}

static inline void page_set_free(struct page *page, uint32_t units, uint32_t first)
{
        page->state = units | (uint64_t)first << 16;
}

/*
 * fit.c: somebody wrote into a free block. The list cannot be trusted, so the process ends, without
 * the lock, because a handler of SIGABRT may allocate.
 */
KMEM_HIDDEN void block_damaged(const struct page *page, uint32_t at)
        __attribute__((noreturn, cold));

static inline struct free_block block_read(const struct page *page, uint32_t at)
{
        const int16_t *unit = (const int16_t *)page_address(page) + at;
        struct free_block block = {.at = at, .units = 1};

        if (unit[0] < 0) {
                block.next = (uint32_t)-unit[0];
        } else {
                block.units = (uint32_t)unit[0];
                block.next = at + 1 < PAGE_UNITS ? (uint32_t)unit[1] : 0;
        }
        /* Always ascending, so that no walk goes on for ever; sizes never overlap. */
        if (unlikely(block.units == 0 || block.next > PAGE_UNITS || at + block.units > block.next))
                block_damaged(page, at);
        return block;
}

static inline void block_write(struct page *page, uint32_t at, uint32_t units, uint32_t next)
{
        int16_t *unit = (int16_t *)page_address(page) + at;

        if (units == 1) {
                unit[0] = (int16_t)-(int32_t)next;
        } else {
                unit[0] = (int16_t)units;
                unit[1] = (int16_t)next;
        }
}

#endif
