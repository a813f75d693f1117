/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A free block, as written into the free memory itself (S7-02), and a page's own figures.
 *
 * A block of two units or more holds its size in the first unit and the offset of the next free
 * block in the second. A block of a single unit holds that offset negated. Offsets count units from
 * the start of the page; the last block's next is PAGE_UNITS, the end of the page.
 */
#ifndef KMEM_ENGINES_SLOB_BLOCK_H
#define KMEM_ENGINES_SLOB_BLOCK_H

#include "engines/slob/slob.h"

struct free_block {
        uint32_t at;
        uint32_t units;
        uint32_t next;
};

/*
 * The fields that `state` in the descriptor of a SLOB page holds, in 16 bits each, and
 * `malloc_room`, which the descriptor holds by itself. The rooms are bounds: the units from the
 * first start in a free block that some request could use to the block's end. No free block has
 * more; they are exact after a search in vain.
 */
struct page_state {
        uint32_t free_units;
        uint32_t first;       /* offset of the first free block, PAGE_UNITS if the page is full */
        uint32_t fragments;   /* free blocks */
        uint32_t room;        /* behind multiples of 8 bytes, where every block starts */
        uint32_t malloc_room; /* for blocks of kmalloc aligned to 16 bytes or more */
};

static inline struct page_state page_state(const struct page *page)
{
        return (struct page_state){
                .free_units = (uint32_t)(page->state & 0xffff),
                .first = (uint32_t)(page->state >> 16 & 0xffff),
                .fragments = (uint32_t)(page->state >> 32 & 0xffff),
                .room = (uint32_t)(page->state >> 48),
                .malloc_room = page->malloc_room,
        };
}

static inline void page_set_state(struct page *page, struct page_state state)
{
        page->state = state.free_units | (uint64_t)state.first << 16 |
                      (uint64_t)state.fragments << 32 | (uint64_t)state.room << 48;
        page->malloc_room = (uint16_t)state.malloc_room;
}

/*
 * fit.c: the program wrote into a free block. The list cannot be trusted, so the process ends,
 * without the lock, because a handler of SIGABRT may allocate.
 */
KMEM_HIDDEN void block_damaged(const struct page *page, uint32_t at)
        __attribute__((noreturn, cold));

static inline struct free_block block_read(const struct page *page, uint32_t at)
{
        const slob_unit *unit = (const slob_unit *)page_address(page) + at;
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
        slob_unit *unit = (slob_unit *)page_address(page) + at;

        if (units == 1) {
                unit[0] = (slob_unit)(-(int32_t)next);
        } else {
                unit[0] = (slob_unit)units;
                unit[1] = (slob_unit)next;
        }
}

#endif
