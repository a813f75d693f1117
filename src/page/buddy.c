/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Buddy lists of a zone: free blocks of 2^order pages, aligned to their size, merged with their
 * buddy whenever both are free. The smallest block that suffices is split, its low half used.
 *
 * BUDDY-1  A free block is on exactly one list: touched[order] if its state is not 0, else
 *          clean[order]; free_chunks has its bit exactly if it is of ORDER_MAX.
 * BUDDY-2  No two free buddies of one order below ORDER_MAX exist side by side.
 * BUDDY-3  Only heads of free blocks have kind PAGE_FREE. Merging clears the upper head, so
 *          descriptors inside a block are always PAGE_UNUSED (PAGE-2).
 *
 * Owners of other blocks may set the kind of their own head at any time, to other values
 * than PAGE_FREE and not under the zone's lock; so kinds are read and written as relaxed atomics.
 */
#include "page/zone.h"

#include "base/options.h"

static struct page_list *list_of(struct zone *zone, const struct page *page)
{
        return page->state != 0 ? &zone->touched[page->order] : &zone->clean[page->order];
}

static void chunk_bit_flip(struct zone *zone, uint32_t number)
{
        uint32_t chunk = number / CHUNK_PAGES;

        zone->free_chunks[chunk / 64] ^= (uint64_t)1 << (chunk % 64);
}

static bool is_free_block(uint32_t number, unsigned int order)
{
        struct page *page = page_at(number);

        return load_relaxed(&page->kind) == PAGE_FREE && page->order == order;
}

/* Makes sure that somebody looks when this block has been free long enough. */
static void purge_schedule_locked(struct zone *zone, uint64_t time_freed)
{
        if (load_relaxed(&zone->purge_at) == UINT64_MAX)
                store_relaxed(&zone->purge_at,
                              time_freed + min_of(options.purge_delay, (uint64_t)UINT32_MAX));
}

/*
 * Puts a block on its list without merging. Rests of split blocks are as old as the block was,
 * so they go to the tail, where purging looks for the oldest.
 */
static void block_insert_locked(struct zone *zone, uint32_t number, unsigned int order,
                                size_t touched, uint64_t time_freed, bool is_rest)
{
        struct page *page = page_at(number);

        zone_locked_check(zone);
        debug_check(zone_of(number) == zone);
        page->state = touched;
        page->table = (void *)(uintptr_t)time_freed;
        page->order = (uint8_t)order;
        page->slot = 0;
        page->node_partial = 0;
        store_relaxed(&page->kind, PAGE_FREE);
        if (is_rest)
                page_list_add_tail(list_of(zone, page), page);
        else
                page_list_add_head(list_of(zone, page), page);
        if (order == ORDER_MAX)
                chunk_bit_flip(zone, number);
        add_owned(&zone->free_pages, order_pages(order));
        add_owned(&zone->free_touched_pages, touched);
        if (touched != 0 && order >= PURGE_ORDER)
                purge_schedule_locked(zone, time_freed);
}

void block_remove_locked(struct zone *zone, struct page *page)
{
        unsigned int order = page->order;

        zone_locked_check(zone);
        debug_check(load_relaxed(&page->kind) == PAGE_FREE);
        page_list_remove(list_of(zone, page), page);
        if (order == ORDER_MAX)
                chunk_bit_flip(zone, page_number(page));
        store_relaxed(&page->kind, PAGE_UNUSED);
        add_owned(&zone->free_pages, -order_pages(order));
        add_owned(&zone->free_touched_pages, -(size_t)page->state);
}

/* Adds one aligned block, merged upwards as far as its buddies are free. */
static void block_add_locked(struct zone *zone, uint32_t number, unsigned int order,
                             uint64_t time_freed)
{
        size_t touched = touched_count_locked(number, order_pages(order));

        /* A clean block has nothing to purge, so its age does not count when it merges. */
        if (touched == 0)
                time_freed = 0;
        while (order < ORDER_MAX) {
                uint32_t other = number ^ (uint32_t)order_pages(order);
                struct page *buddy = page_at(other);

                if (!is_free_block(other, order))
                        break;
                touched += buddy->state;
                time_freed = max_of(time_freed, block_time(buddy));
                block_remove_locked(zone, buddy);
                number = min_of(number, other);
                order++;
        }
        block_insert_locked(zone, number, order, touched, time_freed, false);
}

void range_add_locked(struct zone *zone, uint32_t first, size_t count, uint64_t time_freed)
{
        zone_locked_check(zone);
        while (count != 0) {
                unsigned int aligned = first ? (unsigned int)__builtin_ctz(first) : ORDER_MAX;
                unsigned int order = min_of(aligned, fls(count) - 1);

                order = min_of(order, (unsigned int)ORDER_MAX);
                block_add_locked(zone, first, order, time_freed);
                first += (uint32_t)order_pages(order);
                count -= order_pages(order);
        }
}

/* The head of the list to use for this order, touched blocks before clean ones. */
static struct page *block_find_locked(struct zone *zone, unsigned int order)
{
        while (order <= ORDER_MAX) {
                struct page *page = page_list_first(&zone->touched[order]);

                if (!page)
                        page = page_list_first(&zone->clean[order]);
                if (page)
                        return page;
                order++;
        }
        return NULL;
}

uint32_t block_take_locked(struct zone *zone, unsigned int order, uint64_t *time_freed)
{
        struct page *page = block_find_locked(zone, order);
        uint32_t number;
        size_t touched;
        unsigned int size;

        zone_locked_check(zone);
        if (!page)
                return 0;
        block_remove_locked(zone, page);
        number = page_number(page);
        touched = page->state;
        size = page->order;
        *time_freed = block_time(page);
        while (size > order) {
                uint32_t half = (uint32_t)order_pages(--size);
                size_t upper = 0;

                if (touched == 2 * (size_t)half)
                        upper = half;
                else if (touched != 0)
                        upper = touched_count_locked(number + half, half);
                block_insert_locked(zone, number + half, size, upper, *time_freed, true);
                touched -= upper;
        }
        return number;
}
