/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Giving free pages back to the system, late and in runs.
 *
 * A block is taken off its list, purged without its zone's lock, and added again as clean, so other
 * threads allocate meanwhile. One thread purges at a time, whatever zone (purge_lock); for the
 * others pages_purge_due then has nothing to do.
 *
 * Time comes from freed blocks (zone.h). Lists are nearly sorted by it, the oldest at the
 * tail; where they are not, a block waits one delay longer.
 */
#include "page/purge.h"

#include "base/options.h"
#include "base/probe.h"
#include "base/system.h"
#include "page/huge.h"
#include "page/reclaim.h"
#include "page/zone.h"

enum {
        PASS_PAGES = 8192, /* 32 MiB: one pass stays a matter of a few milliseconds */
};

struct lock purge_lock;
uint32_t reclaim_wanted;
void (*reclaim_start)(void);

void purge_wait(void)
{
        lock_take(&purge_lock);
        lock_drop(&purge_lock);
}

/* Blocks below a system page hold no whole one. */
static unsigned int least_order(void)
{
        return get_order(system_page_bytes());
}

/* The largest block that was free at @cutoff, with no more than @most touched pages. */
static struct page *due_find_locked(const struct zone *zone, unsigned int order_min,
                                    uint64_t cutoff, size_t most)
{
        for (unsigned int order = ORDER_MAX + 1; order-- > order_min;) {
                uint32_t last = zone->touched[order].last;

                if (last && block_time(page_at(last)) <= cutoff && page_at(last)->state <= most)
                        return page_at(last);
        }
        return NULL;
}

/*
 * Purges one free block; drops the zone's lock meanwhile. Returns how many touched pages it had. If
 * the system refuses (locked memory), the block is as if freed at @retry_time.
 */
static size_t block_purge_locked(struct zone *zone, struct page *page, uint64_t retry_time)
{
        uint32_t number = page_number(page);
        size_t pages = order_pages(page->order);
        size_t touched = page->state;
        bool purged;

        zone_locked_check(zone);
        block_remove_locked(zone, page);
        zone->limbo_pages += pages;
        zone->limbo_touched_pages += touched;
        zone_drop_changed(zone);

        purged = system_purge(page_address(page), pages << PAGE_SHIFT);
        PROBE3(pages_purge, page_address(page), pages << PAGE_SHIFT, purged);

        lock_take(&zone->lock);
        zone->limbo_pages -= pages;
        zone->limbo_touched_pages -= touched;
        if (purged) {
                touched_clear_locked(number, pages);
                zone->purged_pages += touched;
        }
        range_add_locked(zone, number, pages, retry_time);
        return purged ? touched : 0;
}

/* When the next block that is purged unasked will be due, UINT64_MAX if there is none. */
static uint64_t next_due_locked(const struct zone *zone, uint64_t delay)
{
        uint64_t next = UINT64_MAX;

        for (unsigned int order = PURGE_ORDER; order <= ORDER_MAX; order++) {
                uint32_t last = zone->touched[order].last;

                if (last)
                        next = min_of(next, block_time(page_at(last)) + delay);
        }
        return next;
}

/* One pass over the blocks of 2^@order_min pages and more; returns how many pages it gave back. */
static size_t zone_purge_due(struct zone *zone, uint64_t now, unsigned int order_min)
{
        uint64_t delay = min_of(options.purge_delay, (uint64_t)UINT32_MAX);
        struct page *page = NULL;
        size_t purged = 0;

        if (now < delay || !lock_try(&purge_lock))
                return 0;
        lock_take(&zone->lock);
        while (purged < PASS_PAGES &&
               (page = due_find_locked(zone, order_min, now - delay, SIZE_MAX)))
                purged += block_purge_locked(zone, page, now + 1);
        store_relaxed(&zone->purge_at, page ? now + 1 : next_due_locked(zone, delay));
        zone_drop_changed(zone);
        lock_drop(&purge_lock);
        return purged;
}

void pages_purge_due(void)
{
        uint64_t due = huge_kept_due();
        uint64_t now;

        /* A stale time only makes this look a little later or find nothing. */
        for (unsigned int node = 0; node < system_nodes(); node++)
                due = min_of(due, load_relaxed(&zones[node].purge_at));
        if (due == UINT64_MAX)
                return;
        now = system_time_ms();
        for (unsigned int node = 0; node < system_nodes(); node++)
                if (now >= load_relaxed(&zones[node].purge_at))
                        zone_purge_due(&zones[node], now,
                                       max_of(least_order(), (unsigned int)PURGE_ORDER));
        if (now >= huge_kept_due())
                huge_kept_drop(now);
}

size_t pages_purge_idle(void)
{
        uint64_t now = system_time_ms();
        size_t bytes = now >= huge_kept_due() ? huge_kept_drop(now) : 0;

        for (unsigned int node = 0; node < system_nodes(); node++) {
                size_t pass;

                do {
                        pass = zone_purge_due(&zones[node], now, least_order());
                        bytes += pass << PAGE_SHIFT;
                } while (pass >= PASS_PAGES);
        }
        return bytes;
}

/* Pages that may be purged, in all zones; what changes meanwhile may be in it or not. */
static size_t free_touched_pages(void)
{
        size_t pages = 0;

        for (unsigned int node = 0; node < system_nodes(); node++)
                pages += load_relaxed(&zones[node].free_touched_pages);
        return pages;
}

/* Purges what the zone has free, as long as more than @keep pages remain in all zones. */
static size_t zone_purge_all_locked(struct zone *zone, size_t keep, uint64_t now)
{
        size_t purged = 0;
        size_t touched;

        while ((touched = free_touched_pages()) > keep) {
                struct page *page = due_find_locked(zone, least_order(), now, touched - keep);

                if (!page)
                        break;
                purged += block_purge_locked(zone, page, now + 1);
        }
        return purged;
}

size_t pages_purge_all(size_t keep_bytes)
{
        size_t keep = keep_bytes >> PAGE_SHIFT;
        uint64_t now = system_time_ms();
        size_t huge_bytes = huge_kept_drop(UINT64_MAX);
        size_t purged = 0;

        lock_take(&purge_lock);
        for (unsigned int node = 0; node < system_nodes(); node++) {
                lock_take(&zones[node].lock);
                purged += zone_purge_all_locked(&zones[node], keep, now);
                zone_drop_changed(&zones[node]);
        }
        lock_drop(&purge_lock);
        return (purged << PAGE_SHIFT) + huge_bytes;
}
