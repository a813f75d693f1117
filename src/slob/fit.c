/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Blocks in and out of one page: first fit in address order, split, merge (S7-10, S7-22).
 */
#include "slob/block.h"

void block_damaged(const struct page *page, uint32_t at)
{
        const void *block = (const int16_t *)page_address(page) + at;

        lock_drop(&slob_lock);
        message_fatal("slob: the free block at %p was written to after it was freed", block);
}

/* Where in a free block at @at the wanted block would start: the address behind its header counts. */
static uint32_t aligned_start(uint32_t at, const struct slob_request *request)
{
        size_t behind_header = (size_t)at * SLOB_UNIT + request->header;

        return (uint32_t)(round_up(behind_header, request->align) - request->header) / SLOB_UNIT;
}

/* Makes @next follow the free block at @before, or be the first if that is PAGE_UNITS. */
static void link_behind(struct page *page, uint32_t before, uint32_t next)
{
        if (before == PAGE_UNITS)
                page_set_free(page, page_free_units(page), next);
        else
                block_write(page, before, block_read(page, before).units, next);
}

/* Takes units out of a free block; what is left on both sides stays free. */
static void block_cut(struct page *page, uint32_t before, struct free_block block, uint32_t start,
                      uint32_t units)
{
        uint32_t behind = start + units;
        uint32_t end = block.at + block.units;
        uint32_t next = block.next;

        if (behind < end) {
                block_write(page, behind, end - behind, next);
                next = behind;
        }
        if (start > block.at)
                block_write(page, block.at, start - block.at, next);
        else
                link_behind(page, before, next);
        page_set_free(page, page_free_units(page) - units, page_first_free(page));
}

uint32_t slob_take_locked(struct page *page, const struct slob_request *request)
{
        uint32_t units = slob_units(request->bytes);
        uint32_t before = PAGE_UNITS;
        uint32_t at = page_first_free(page);

        while (at != PAGE_UNITS) {
                struct free_block block = block_read(page, at);
                uint32_t start = aligned_start(at, request);

                slob_counts.block_scans++;
                if (block.units >= start - at + units) {
                        block_cut(page, before, block, start, units);
                        return start;
                }
                before = at;
                at = block.next;
        }
        return PAGE_UNITS;
}

struct slob_gap slob_gap_locked(const struct page *page, uint32_t at)
{
        struct slob_gap gap = {.before = PAGE_UNITS, .next = page_first_free(page)};

        while (gap.next <= at && gap.next != PAGE_UNITS) {
                gap.before = gap.next;
                gap.next = block_read(page, gap.next).next;
        }
        return gap;
}

void slob_put_locked(struct page *page, struct slob_gap gap, uint32_t at, uint32_t units)
{
        bool first = gap.before == PAGE_UNITS;
        uint32_t free_units = page_free_units(page) + units;
        uint32_t next = gap.next;
        struct free_block before;

        if (at + units == next && next != PAGE_UNITS &&
            !(first && options.slob_compat == SLOB_COMPAT_2_6_24)) {
                struct free_block following = block_read(page, next);

                units += following.units;
                next = following.next;
        }
        page_set_free(page, free_units, page_first_free(page));
        if (!first) {
                before = block_read(page, gap.before);
                if (before.at + before.units == at) {
                        block_write(page, before.at, before.units + units, next);
                        return;
                }
        }
        block_write(page, at, units, next);
        link_behind(page, gap.before, at);
}
