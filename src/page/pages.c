/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The calls of page.h: blocks, exact ranges and spans in and out of the buddy lists.
 *
 * Memory that is being purged is off the lists for the length of a system call. A request
 * that finds nothing else waits for it, so a purge never makes an allocation fail; nor do
 * freed huge mappings, which are given up when the system refuses more memory.
 */
#include "page/zone.h"

#include "base/options.h"
#include "base/system.h"
#include "page/extra.h"
#include "page/huge.h"
#include "page/purge.h"

#include <string.h>

enum {
        CHECK_PAGES = 256,  /* freed between two looks for blocks that are due */
        AT_ONCE_PAGES = 16, /* with purge_delay 0, frees from this size on purge at once */
};

static uint32_t block_take_growing_locked(unsigned int order, uint32_t limit, uint64_t *time_freed)
{
        uint32_t number = block_take_locked(order, time_freed);

        /* Twice at most: the first chunk of all holds no block of ORDER_MAX. */
        while (number == 0 && frontier_grow_locked(1, limit))
                number = block_take_locked(order, time_freed);
        return number;
}

/* @count pages out of a block of 2^@order, or out of whole chunks. 0 if there are none. */
static uint32_t range_find_locked(size_t count, unsigned int order, uint32_t limit)
{
        uint64_t time_freed;
        uint32_t first;

        if (count > CHUNK_PAGES)
                return span_take_locked(count);
        first = block_take_growing_locked(order, limit, &time_freed);
        if (first != 0 && count < order_pages(order))
                range_add_locked(first + (uint32_t)count, order_pages(order) - count, time_freed);
        return first;
}

/* As range_find_locked, but drops the lock and tries again while that may help. */
static uint32_t range_find_waiting_locked(size_t count, unsigned int order, uint32_t limit)
{
        uint32_t first;

        while (!(first = range_find_locked(count, order, limit))) {
                bool in_limbo = zone.limbo_pages != 0;
                bool given_back;

                lock_drop(&page_lock);
                if (in_limbo)
                        purge_wait();
                given_back = huge_kept_drop(UINT64_MAX) != 0;
                lock_take(&page_lock);
                if (!in_limbo && !given_back)
                        return 0;
        }
        return first;
}

/* @bits: receives the touched bits of up to BITS_PAGES pages as they were, or NULL. */
static struct page *range_alloc(size_t count, unsigned int order, uint32_t limit, bool *zero,
                                struct touched_bits *bits)
{
        struct page *page = NULL;
        uint32_t first;

        lock_take(&page_lock);
        first = range_find_waiting_locked(count, order, limit);
        if (first != 0) {
                if (zero)
                        *zero = touched_count_locked(first, count) == 0;
                if (bits)
                        touched_copy_locked(first, count, bits);
                touched_set_locked(first, count);
                page = page_at(first);
                page->state = 0;
                page->table = NULL;
                page->order = (uint8_t)order;
                page->node = (uint8_t)system_current_node();
                page->node_partial = 0;
                page->slot = 0;
                debug_check(page->next == 0 && page->prev == 0);
                debug_check(load_relaxed(&page->kind) == PAGE_UNUSED);
        }
        lock_drop(&page_lock);
        return page;
}

struct page *pages_alloc(unsigned int order, bool *zero)
{
        check_or_die(order <= ORDER_MAX);
        return range_alloc(order_pages(order), order, zone.reserved, zero, NULL);
}

/* Blocks are aligned to their size, so a larger block serves a larger alignment. */
static unsigned int exact_order(size_t count, size_t align_pages)
{
        unsigned int order = count > 1 ? fls(count - 1) : 0;

        check_or_die(is_power_of_two(align_pages) && align_pages <= CHUNK_PAGES);
        order = max_of(order, fls(align_pages) - 1);
        return min_of(order, (unsigned int)ORDER_MAX);
}

struct page *pages_alloc_exact(size_t count, size_t align_pages, bool *zero)
{
        if (count == 0 || count > zone.reserved)
                return NULL;
        return range_alloc(count, exact_order(count, align_pages), zone.large_limit, zero, NULL);
}

struct page *pages_alloc_zeroed(size_t count, size_t align_pages)
{
        struct touched_bits bits;
        bool few = count <= BITS_PAGES;
        bool zero;
        struct page *page;

        if (count == 0 || count > zone.reserved)
                return NULL;
        page = range_alloc(count, exact_order(count, align_pages), zone.large_limit, &zero,
                           few ? &bits : NULL);
        if (!page || zero)
                return page;
        /*
         * Writing is faster than giving the pages back to come in zeroed: up to 16 MiB even if
         * none is used afterwards, and ten times so if all are. Those never touched stay so.
         */
        if (!few)
                memset(page_address(page), 0, count << PAGE_SHIFT);
        for (size_t i = 0; few && i < count; i++)
                if (touched_bit(&bits, i))
                        memset(page_address(page + i), 0, PAGE_SIZE);
        return page;
}

static void check_unmapped(uint32_t first, size_t count)
{
        for (size_t page = first; page < first + count; page++)
                debug_check(load_relaxed(&heap.map[page]) == 0);
}

/* Whether the pages freed since the last look are worth another one. */
static bool purge_check_wanted_locked(size_t count)
{
        zone.freed_since_check += count;
        if (zone.freed_since_check < CHECK_PAGES &&
            (options.purge_delay != 0 || count < AT_ONCE_PAGES))
                return false;
        zone.freed_since_check = 0;
        return true;
}

void pages_free(struct page *page, size_t count)
{
        uint32_t first = page_number(page);
        uint64_t now = system_time_ms();
        bool look;

        check_or_die(first != 0 && count != 0);
        check_or_die(first + count <= load_relaxed(&heap.accessible_bytes) >> PAGE_SHIFT);
        check_unmapped(first, count);

        lock_take(&page_lock);
        check_or_die(load_relaxed(&page->kind) != PAGE_FREE);
        store_relaxed(&page->kind, PAGE_UNUSED);
        range_add_locked(first, count, now);
        look = purge_check_wanted_locked(count);
        lock_drop(&page_lock);
        if (look)
                pages_purge_due();
}

bool pages_resize(struct page *page, size_t count, size_t new_count)
{
        uint32_t first = page_number(page);
        bool taken;

        check_or_die(first != 0 && count != 0);
        if (new_count == 0)
                return false;
        if (new_count < count)
                pages_free(page + new_count, count - new_count);
        if (new_count <= count)
                return true;
        if (new_count > zone.reserved - first)
                return false;

        lock_take(&page_lock);
        taken = range_take_locked(first + (uint32_t)count, first + (uint32_t)new_count);
        if (taken)
                touched_set_locked(first + (uint32_t)count, new_count - count);
        lock_drop(&page_lock);
        return taken;
}

void page_map_set(const struct page *page, size_t count, uint16_t pair_offset)
{
        uint16_t *entry = &heap.map[page_number(page)];

        /* Atomic because a bad pointer may be looked up at the same time; never ordered. */
        for (size_t i = 0; i < count; i++)
                store_relaxed(&entry[i], pair_offset);
        if (!pair_offset && unlikely(load_relaxed(&extra_pages)))
                page_extras_drop(page_number(page), count);
}

void pages_count(struct page_counts *counts)
{
        lock_take(&page_lock);
        counts->accessible_pages = zone.frontier;
        counts->free_pages = zone.free_pages + zone.limbo_pages;
        counts->free_touched_pages = zone.free_touched_pages + zone.limbo_touched_pages;
        counts->purged_pages = zone.purged_pages;
        lock_drop(&page_lock);
        counts->used_pages = counts->accessible_pages - counts->free_pages;
}
