/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Blocks in and out of a page: first fit in address order, split, merge (S7-10, S7-22).
 */
#include "engines/slob/block.h"

void block_damaged(const struct page *page, uint32_t at)
{
        const void *block = (const int16_t *)page_address(page) + at;

        lock_drop(&slob_lock);
        message_fatal("slob: the free block at %p was written to after it was freed", block);
}

/*
 * The start of a block in a free block at @at: the address behind the block's header is aligned.
 */
static uint32_t aligned_start(uint32_t at, uint32_t align, uint32_t header)
{
        size_t behind_header = (size_t)at * SLOB_UNIT + header;

        return (uint32_t)(round_up(behind_header, align) - header) / SLOB_UNIT;
}

/* Raises the page's rooms to the rooms that this free block offers. */
static void raise_rooms(struct page_state *state, const struct free_block *block)
{
        uint32_t end = block->at + block->units;
        uint32_t start = aligned_start(block->at, SLOB_ALIGN, 0);

        if (end > start)
                state->room = max_of(state->room, end - start);
        start = aligned_start(block->at, 16, KMALLOC_HEADER);
        if (end > start)
                state->malloc_room = max_of(state->malloc_room, end - start);
}

/* The figures of the page's list (lists.c) go with it. */
static void set_state(struct page *page, struct page_state state)
{
        if (page->node_partial)
                slob_list_count_locked(page, -1);
        page_set_state(page, state);
        if (page->node_partial)
                slob_list_count_locked(page, 1);
}

/* Makes @next follow the free block at @before, or be the first if that is PAGE_UNITS. */
static void link_behind(struct page *page, struct page_state *state, uint32_t before, uint32_t next)
{
        if (before == PAGE_UNITS)
                state->first = next;
        else
                block_write(page, before, block_read(page, before).units, next);
}

/* Takes units out of a free block; the rest on both sides stays free. */
static void block_cut(struct page *page, uint32_t before, struct free_block block, uint32_t start,
                      uint32_t units)
{
        struct page_state state = page_state(page);
        uint32_t behind = start + units;
        uint32_t end = block.at + block.units;
        uint32_t next = block.next;

        if (behind < end) {
                block_write(page, behind, end - behind, next);
                next = behind;
                state.fragments++;
        }
        if (start > block.at) {
                block_write(page, block.at, start - block.at, next);
        } else {
                link_behind(page, &state, before, next);
                state.fragments--;
        }
        state.free_units -= units;
        set_state(page, state);
}

/*
 * A page with only too small free blocks is passed over without a look at them. That saves nearly
 * all of the time of a search. It changes nothing: the search still finds the first block that
 * fits, and the blocks count as looked at.
 */
static bool is_hopeless(const struct page_state *state, const struct slob_request *request)
{
        uint32_t room = slob_is_of_malloc(request) ? state->malloc_room : state->room;

        return room < slob_units(request->bytes);
}

uint32_t slob_take_locked(struct page *page, const struct slob_request *request)
{
        struct page_state state = page_state(page);
        uint32_t units = slob_units(request->bytes);
        uint32_t before = PAGE_UNITS;
        uint32_t at = state.first;

        if (is_hopeless(&state, request)) {
                slob_counts.block_scans += state.fragments;
                return PAGE_UNITS;
        }
        state.room = 0;
        state.malloc_room = 0;
        while (at != PAGE_UNITS) {
                struct free_block block = block_read(page, at);
                uint32_t start = aligned_start(at, request->align, request->header);

                slob_counts.block_scans++;
                if (block.units >= start - at + units) {
                        block_cut(page, before, block, start, units);
                        return start;
                }
                raise_rooms(&state, &block);
                before = at;
                at = block.next;
        }
        set_state(page, state);
        return PAGE_UNITS;
}

struct slob_gap slob_gap_locked(const struct page *page, uint32_t at)
{
        struct slob_gap gap = {.before = PAGE_UNITS, .next = page_state(page).first};

        while (gap.next <= at && gap.next != PAGE_UNITS) {
                gap.before = gap.next;
                gap.next = block_read(page, gap.next).next;
        }
        return gap;
}

void slob_put_locked(struct page *page, struct slob_gap gap, uint32_t at, uint32_t units)
{
        struct page_state state = page_state(page);
        bool first = gap.before == PAGE_UNITS;
        struct free_block block = {.at = at, .units = units, .next = gap.next};

        state.free_units += units;
        state.fragments++;
        if (at + units == gap.next && gap.next != PAGE_UNITS &&
            !(first && options.slob_compat == SLOB_COMPAT_2_6_24)) {
                struct free_block following = block_read(page, gap.next);

                block.units += following.units;
                block.next = following.next;
                state.fragments--;
        }
        if (!first) {
                struct free_block before = block_read(page, gap.before);

                if (before.at + before.units == at) {
                        block.at = before.at;
                        block.units += before.units;
                        state.fragments--;
                }
        }
        block_write(page, block.at, block.units, block.next);
        if (block.at == at)
                link_behind(page, &state, gap.before, at);
        raise_rooms(&state, &block);
        set_state(page, state);
}
