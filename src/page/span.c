/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Ranges that cross block borders: spans of several chunks, and the growth of a block into
 * the free pages behind it.
 *
 * Spans take the lowest run of free chunks, found in a bitmap, so that they pack at the low
 * end. A run that ends at the frontier counts as the beginning of a longer one.
 */
#include "page/zone.h"

static bool chunk_is_free(const struct zone *zone, uint32_t chunk)
{
        return (zone->free_chunks[chunk / 64] >> (chunk % 64)) & 1;
}

static size_t free_chunks_length(const struct zone *zone)
{
        return zone->touched[ORDER_MAX].length + zone->clean[ORDER_MAX].length;
}

/*
 * First chunk of the zone's lowest run of @wanted free chunks. If there is none, the first chunk
 * of the run that ends at the frontier, which may have length 0.
 */
static uint32_t run_find_locked(const struct zone *zone, size_t wanted)
{
        uint32_t limit = frontier.pages / CHUNK_PAGES;
        uint32_t start = 0; /* of the run that ends before `chunk` */

        for (uint32_t chunk = 0; chunk < limit; chunk++) {
                if (chunk % 64 == 0 && zone->free_chunks[chunk / 64] == 0) {
                        chunk += 63;
                        start = chunk + 1;
                        continue;
                }
                if (!chunk_is_free(zone, chunk))
                        start = chunk + 1;
                else if (chunk + 1 - start == wanted)
                        return start;
        }
        return min_of(start, limit);
}

/*
 * First chunk of @chunks free ones, which are made accessible as far as they are not. Returns 0,
 * which never is one, because page 0 makes chunk 0 never free.
 */
static uint32_t run_make_locked(struct zone *zone, size_t chunks)
{
        uint32_t limit = frontier.pages / CHUNK_PAGES;
        uint32_t start = limit;

        debug_check(lock_is_held(&frontier.lock));
        if (free_chunks_length(zone) != 0)
                start = run_find_locked(zone, chunks);
        /* A run starts there in an empty heap only. */
        if (start == 0) {
                if (limit != 0 || !frontier_grow_locked(zone, 1, frontier.large_limit))
                        return 0;
                start = 1;
                limit = 1;
        }
        if (limit - start < chunks &&
            !frontier_grow_locked(zone, chunks - (limit - start), frontier.large_limit))
                return 0;
        return start;
}

uint32_t span_take_locked(struct zone *zone, size_t count)
{
        size_t chunks = (count + CHUNK_PAGES - 1) / CHUNK_PAGES;
        uint32_t start;

        zone_locked_check(zone);
        if (chunks > frontier.reserved / CHUNK_PAGES)
                return 0;
        /* Until the chunks are the zone's, nobody may put others behind its last run. */
        lock_take(&frontier.lock);
        start = run_make_locked(zone, chunks);
        lock_drop(&frontier.lock);
        if (start == 0 ||
            !range_take_locked(zone, start * CHUNK_PAGES, start * CHUNK_PAGES + (uint32_t)count))
                return 0;
        return start * CHUNK_PAGES;
}

/* Makes [first, end) accessible, which begins at the frontier unless another zone was faster. */
static bool frontier_reach_locked(struct zone *zone, uint32_t first, uint32_t end)
{
        size_t chunks = (end - first + CHUNK_PAGES - 1) / CHUNK_PAGES;
        bool grown;

        lock_take(&frontier.lock);
        grown = first == frontier.pages && frontier_grow_locked(zone, chunks, frontier.large_limit);
        lock_drop(&frontier.lock);
        return grown;
}

/* Whether [first, end) is free; pages beyond the frontier are made so if they can be. */
static bool range_is_free_locked(struct zone *zone, uint32_t first, uint32_t end)
{
        while (first < end) {
                struct page *page;

                /* Acquire: what lies below has its zone in the table (frontier_grow_locked). */
                if (first == load_acquire(&frontier.pages))
                        return frontier_reach_locked(zone, first, end);
                page = page_at(first);
                if (zone_of(first) != zone || load_relaxed(&page->kind) != PAGE_FREE)
                        return false;
                first += (uint32_t)order_pages(page->order);
        }
        return true;
}

bool range_take_locked(struct zone *zone, uint32_t first, uint32_t end)
{
        zone_locked_check(zone);
        if (!range_is_free_locked(zone, first, end))
                return false;
        while (first < end) {
                struct page *page = page_at(first);
                uint32_t behind = first + (uint32_t)order_pages(page->order);

                block_remove_locked(zone, page);
                if (behind > end)
                        range_add_locked(zone, end, behind - end, block_time(page));
                first = behind;
        }
        return true;
}
