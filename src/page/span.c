/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Ranges that cross block borders: spans of several chunks, and the growth of a block into
 * the free pages behind it.
 *
 * Spans take the lowest run of free chunks, found in a bitmap, so that they pack at the low
 * end. A run that ends at the frontier counts as the beginning of a longer one.
 */
#include "page/zone.h"

static bool chunk_is_free(uint32_t chunk)
{
        return (zone.free_chunks[chunk / 64] >> (chunk % 64)) & 1;
}

static size_t free_chunks_length(void)
{
        return zone.touched[ORDER_MAX].length + zone.clean[ORDER_MAX].length;
}

/*
 * First chunk of the lowest run of @wanted free chunks. If there is none, the first chunk of
 * the run that ends at the frontier, which may have length 0.
 */
static uint32_t run_find_locked(size_t wanted)
{
        uint32_t limit = zone.frontier / CHUNK_PAGES;
        uint32_t start = 0; /* of the run that ends before `chunk` */

        for (uint32_t chunk = 0; chunk < limit; chunk++) {
                if (chunk % 64 == 0 && zone.free_chunks[chunk / 64] == 0) {
                        chunk += 63;
                        start = chunk + 1;
                        continue;
                }
                if (!chunk_is_free(chunk))
                        start = chunk + 1;
                else if (chunk + 1 - start == wanted)
                        return start;
        }
        return min_of(start, limit);
}

uint32_t span_take_locked(size_t count)
{
        size_t chunks = (count + CHUNK_PAGES - 1) / CHUNK_PAGES;
        uint32_t limit = zone.frontier / CHUNK_PAGES;
        uint32_t start = limit;

        page_locked_check();
        if (chunks > zone.reserved / CHUNK_PAGES)
                return 0;
        if (free_chunks_length() != 0)
                start = run_find_locked(chunks);
        /* Page 0 makes chunk 0 never free, so a run never starts there but in an empty heap. */
        if (start == 0) {
                if (limit != 0 || !frontier_grow_locked(1, zone.large_limit))
                        return 0;
                start = 1;
                limit = 1;
        }
        if (limit - start < chunks &&
            !frontier_grow_locked(chunks - (limit - start), zone.large_limit))
                return 0;
        if (!range_take_locked(start * CHUNK_PAGES, start * CHUNK_PAGES + (uint32_t)count))
                return 0;
        return start * CHUNK_PAGES;
}

/* Whether [first, end) is free; pages beyond the frontier are made so if they can be. */
static bool range_is_free_locked(uint32_t first, uint32_t end)
{
        while (first < end) {
                struct page *page;

                if (first == zone.frontier)
                        return frontier_grow_locked((end - first + CHUNK_PAGES - 1) / CHUNK_PAGES,
                                                    zone.large_limit);
                page = page_at(first);
                if (load_relaxed(&page->kind) != PAGE_FREE)
                        return false;
                first += (uint32_t)order_pages(page->order);
        }
        return true;
}

bool range_take_locked(uint32_t first, uint32_t end)
{
        page_locked_check();
        if (!range_is_free_locked(first, end))
                return false;
        while (first < end) {
                struct page *page = page_at(first);
                uint32_t behind = first + (uint32_t)order_pages(page->order);

                block_remove_locked(page);
                if (behind > end)
                        range_add_locked(end, behind - end, block_time(page));
                first = behind;
        }
        return true;
}
