/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The calls of page.h: blocks and exact ranges in and out of the zones' runs.
 *
 * Memory that is being purged is off the lists for the length of a system call. A request that
 * finds nothing else waits for it, so a purge never makes an allocation fail. Freed huge mappings
 * never do either: they are given up when the system refuses more memory.
 */
#include "page/zone.h"

#include "base/options.h"
#include "machine/system.h"
#include "page/cleared.h"
#include "page/extra.h"
#include "page/huge.h"
#include "page/kept.h"
#include "page/purge.h"

#include <string.h>

enum {
        AT_ONCE_PAGES = 16, /* with purge_delay 0, frees from this size on purge at once */
};

/* Describes the pages that are wanted. */
struct request {
        size_t count;
        size_t align;        /* pages, a power of two */
        unsigned int blocks; /* most blocks to take, all of a single zone */
        int node;            /* or NODE_ANY */
        uint32_t limit;      /* the frontier does not grow beyond this page for them */
        size_t *fresh;       /* receives how many were not touched, and so read as zero, or NULL */
        bool fresh_in_state; /* each block's state receives that, too */
        bool one_object;     /* each block is for a single object (RUN-4) */
        bool large;          /* the block is counted as a large block */
        struct touched_bits *bits; /* receives the touched bits of up to BITS_PAGES pages as they
                                      were, or NULL */
};

/* Free pages of a zone, on no list any more, become a block. */
static struct page *block_make_locked(struct zone *zone, const struct request *request,
                                      uint32_t first)
{
        size_t fresh = request->count - touched_count_locked(first, request->count);
        struct page *page = page_at(first);

        if (request->fresh)
                *request->fresh = fresh;
        if (zone->wanted_again < zone->given_back)
                zone->wanted_again = min_of(zone->given_back, zone->wanted_again + fresh);
        if (request->bits)
                touched_copy_locked(first, request->count, request->bits);
        touched_set_locked(first, request->count);
        if (request->one_object)
                begun_set_locked(first);
        else
                packed_set_locked(first, request->count);
        if (request->large) {
                add_owned(&zone->large_handed_out, 1);
                add_owned(&zone->large_blocks, 1);
                add_owned(&zone->large_pages, request->count);
        }
        page->state = request->fresh_in_state ? fresh : 0;
        page->table = NULL;
        page->order = (uint8_t)get_order(request->count << PAGE_SHIFT);
        page->node = (uint8_t)zone->node;
        page->node_partial = 0;
        page->slot = 0;
        debug_check(page->next == 0 && page->prev == 0);
        debug_check(load_relaxed(&page->kind) == PAGE_UNUSED);
        return page;
}

/*
 * The blocks of a request, linked through next; NULL if the zone has none, and then *in_limbo is
 * set if it may have some after a purge.
 */
static struct page *zone_alloc_locked(struct zone *zone, const struct request *request,
                                      bool *in_limbo)
{
        unsigned int left = request->blocks;
        struct page *first = NULL;
        struct page *last = NULL;

        while (left) {
                unsigned int found = left;
                uint32_t next = range_find_locked(zone, request->count, request->align,
                                                  request->limit, request->one_object, &found);

                if (next == 0)
                        break;
                left -= found;
                add_owned(&zone->moved_since_check, found * request->count);
                for (; found; found--, next += (uint32_t)request->count) {
                        struct page *page = block_make_locked(zone, request, next);

                        if (last)
                                last->next = next;
                        else
                                first = page;
                        last = page;
                }
        }
        *in_limbo |= !first && zone->limbo_pages != 0;
        return first;
}

/* The zones of the request, nearest first, each under its own lock. */
static struct page *zones_alloc(const struct request *request, unsigned int home,
                                unsigned int count, bool *in_limbo)
{
        struct page *page = NULL;

        for (unsigned int step = 0; !page && step < count; step++) {
                struct zone *zone = &zones[system_near_node(home, step)];

                lock_take(&zone->lock);
                page = zone_alloc_locked(zone, request, in_limbo);
                zone_drop_changed(zone);
        }
        return page;
}

/*
 * The zones of the request under all their locks (ZONE-2). zones_alloc may find nothing though
 * there never was nothing: a zone gets pages back after it was looked at, and another zone loses
 * its last pages before its turn. Here no thread can free or allocate between two looks.
 */
static struct page *zones_alloc_locking_all(const struct request *request, unsigned int home,
                                            bool *in_limbo)
{
        unsigned int count = system_nodes();
        struct page *page = NULL;

        for (unsigned int node = 0; node < count; node++)
                lock_take(&zones[node].lock);
        for (unsigned int step = 0; !page && step < count; step++)
                page = zone_alloc_locked(&zones[system_near_node(home, step)], request, in_limbo);
        for (unsigned int node = count; node-- > 0;)
                zone_drop_changed(&zones[node]);
        return page;
}

/*
 * Gives back pages that have been free for longer than purge_delay before they are handed out,
 * because the next owner may write only a part of them. Requests look as seldom as frees do. Where
 * both write the counter at once, a look more or less does no harm.
 */
static void look_before(unsigned int node, const struct request *request)
{
        size_t *moved = &zones[node].moved_since_check;

        if (options.purge_delay == 0 ||
            load_relaxed(moved) + request->count * request->blocks < CHECK_PAGES)
                return;
        store_relaxed(moved, 0);
        pages_purge_due();
}

/* Tries again while that may help. */
static struct page *range_alloc(const struct request *request)
{
        bool any = request->node == NODE_ANY;
        unsigned int home = any ? system_current_node() : (unsigned int)request->node;
        unsigned int count = any ? system_nodes() : 1;
        bool again;

        look_before(home, request);
        do {
                uint32_t refusals = load_relaxed(&frontier.refusals);
                bool in_limbo = false;
                struct page *page = zones_alloc(request, home, count, &in_limbo);

                if (!page && count > 1) {
                        in_limbo = false;
                        page = zones_alloc_locking_all(request, home, &in_limbo);
                }
                if (page)
                        return page;
                if (in_limbo)
                        purge_wait();
                again = in_limbo;
                /* Not where the reservation is used up: there the kept mappings are used next. */
                if (load_relaxed(&frontier.refusals) != refusals)
                        again |= huge_kept_drop(UINT64_MAX) != 0;
        } while (again);
        return NULL;
}

/*
 * Tells, once, a caller that asked for a node. To other callers it hardly matters, since the kernel
 * takes memory of the node that touches it first.
 */
static void report_unbound(unsigned int node)
{
        static uint32_t reported;
        uint32_t expected = 0;

        if (load_relaxed(&reported) || !compare_swap_acquire(&reported, &expected, 1))
                return;
        message("memory of NUMA node %u is not bound to it (mbind: %s, error %d), but is "
                "where it is touched first; option numa=off makes all nodes one",
                system_node_number(node), message_error(zones[node].bind_error),
                zones[node].bind_error);
}

static struct page *blocks_alloc(size_t pages, size_t align, int node, unsigned int blocks,
                                 bool one_object, size_t *fresh)
{
        const struct request request = {
                .count = pages,
                .align = align,
                .blocks = blocks,
                .node = node,
                .limit = load_relaxed(&frontier.reserved),
                .fresh = fresh,
                .fresh_in_state = !fresh,
                .one_object = one_object,
        };
        struct page *page;

        check_or_die(pages != 0 && pages <= CHUNK_PAGES);
        check_or_die(node == NODE_ANY || (unsigned int)node < system_nodes());
        page = range_alloc(&request);
        if (page && node != NODE_ANY && unlikely(zones[node].bind_error))
                report_unbound((unsigned int)node);
        return page;
}

struct page *pages_alloc(unsigned int order, int node, bool *zero)
{
        size_t pages = order_pages(order);
        size_t fresh = 0;
        struct page *page = blocks_alloc(pages, pages, node, 1, false, &fresh);

        if (zero)
                *zero = fresh == pages;
        return page;
}

struct page *pages_alloc_many(size_t pages, size_t align_pages, int node, unsigned int count,
                              bool one_object)
{
        return blocks_alloc(pages, align_pages, node, count, one_object, NULL);
}

static struct page *exact_alloc(size_t count, size_t align_pages, size_t *fresh,
                                struct touched_bits *bits)
{
        const struct request request = {
                .count = count,
                .align = align_pages,
                .blocks = 1,
                .node = NODE_ANY,
                .limit = load_relaxed(&frontier.large_limit),
                .fresh = fresh,
                .one_object = true,
                .large = true,
                .bits = bits,
        };

        check_or_die(is_power_of_two(align_pages) && align_pages <= CHUNK_PAGES);
        return count == 0 || count > load_relaxed(&frontier.reserved) ? NULL
                                                                      : range_alloc(&request);
}

struct page *pages_alloc_exact(size_t count, size_t align_pages, size_t *fresh)
{
        return exact_alloc(count, align_pages, fresh, NULL);
}

/* Clears the pages of a block that were touched. */
static void clear_touched(struct page *page, size_t count, const struct touched_bits *bits)
{
        for (size_t i = 0; i < count; i++) {
                if (touched_bit(bits, i))
                        cleared_make_zero(page_address(page + i), 1);
        }
}

struct page *pages_alloc_zeroed(size_t count, size_t align_pages)
{
        struct touched_bits bits;
        bool few = count <= BITS_PAGES;
        bool write_all = cleared_are_filled(count << PAGE_SHIFT);
        size_t fresh;
        struct page *page = exact_alloc(count, align_pages, &fresh, few ? &bits : NULL);

        if (!page)
                return NULL;
        /*
         * Writing is faster than giving the pages back to come in zeroed: up to 16 MiB even if the
         * program uses none of them afterwards, and ten times so if it uses all. Pages that were
         * never touched stay untouched, unless the program will write to all.
         */
        if (write_all)
                memset(page_address(page), 0, count << PAGE_SHIFT);
        else if (fresh < count && few)
                clear_touched(page, count, &bits);
        else if (fresh < count)
                cleared_make_zero(page_address(page), count);
        cleared_given(page_address(page), count << PAGE_SHIFT, write_all);
        return page;
}

static void check_unmapped(uint32_t first, size_t count)
{
        for (size_t page = first; page < first + count; page++)
                debug_check(load_relaxed(&heap.map[page]) == 0);
}

/* Whether so many pages were freed and handed out since the last look that another look pays. */
static bool purge_check_wanted_locked(struct zone *zone, size_t count)
{
        add_owned(&zone->moved_since_check, count);
        /* Relaxed: look_before writes the counter without the lock. */
        if (load_relaxed(&zone->moved_since_check) < CHECK_PAGES &&
            (options.purge_delay != 0 || count < AT_ONCE_PAGES))
                return false;
        store_relaxed(&zone->moved_since_check, 0);
        return true;
}

/* The pages stop being a block. */
static void block_end(struct page *page, size_t count)
{
        check_unmapped(page_number(page), count);
        check_or_die(!is_run_edge(page));
        store_relaxed(&page->kind, PAGE_UNUSED);
}

/*
 * Pages that were handed out go back to their zone. Returns whether to look for blocks that are
 * due.
 */
static bool range_free_locked(struct zone *zone, uint32_t first, size_t count, uint64_t now)
{
        range_add_locked(zone, first, count, now);
        return purge_check_wanted_locked(zone, count);
}

/* The zone of pages that come back: at least one page, and all below the frontier. */
static struct zone *zone_checked(uint32_t first, size_t count)
{
        check_or_die(first != 0 && count != 0);
        check_or_die(first + count <= load_relaxed(&heap.accessible_bytes) >> PAGE_SHIFT);
        return zone_of(first);
}

/*
 * Counts @large_blocks that ended, and @large_pages that they had or that a shrinking block lost.
 */
static void block_give_back(struct page *page, size_t count, size_t large_blocks,
                            size_t large_pages)
{
        uint64_t now = system_time_ms();
        struct zone *zone = zone_checked(page_number(page), count);
        bool look;

        block_end(page, count);
        lock_take(&zone->lock);
        look = range_free_locked(zone, page_number(page), count, now);
        add_owned(&zone->large_blocks, -large_blocks);
        add_owned(&zone->large_pages, -large_pages);
        zone_drop_changed(zone);
        if (look)
                pages_purge_due();
}

void pages_free(struct page *page, size_t count)
{
        block_give_back(page, count, 0, 0);
}

void pages_free_exact(struct page *page, size_t count)
{
        block_give_back(page, count, 1, count);
}

/* Takes the first blocks off a chain, as long as they lie side by side in either direction. */
static uint32_t chain_take_range(uint32_t *chain, size_t count, const struct zone *zone,
                                 size_t *pages)
{
        uint32_t first = *chain;

        *pages = 0;
        do {
                struct page *page = page_at(*chain);

                first = min_of(first, *chain);
                *pages += count;
                *chain = page->next;
                page->next = 0;
                block_end(page, count);
        } while (*chain && (*chain == first + *pages || *chain + count == first) &&
                 zone_checked(*chain, count) == zone);
        return first;
}

void pages_free_chain(uint32_t chain, size_t count)
{
        uint64_t now = system_time_ms();
        struct zone *zone = NULL;
        bool look = false;

        while (chain) {
                struct zone *home = zone_checked(chain, count);
                uint32_t first;
                size_t pages;

                if (home != zone) {
                        if (zone)
                                zone_drop_changed(zone);
                        zone = home;
                        lock_take(&zone->lock);
                }
                first = chain_take_range(&chain, count, zone, &pages);
                look |= range_free_locked(zone, first, pages, now);
        }
        if (zone)
                zone_drop_changed(zone);
        if (look)
                pages_purge_due();
}

bool pages_resize(struct page *page, size_t count, size_t new_count)
{
        uint32_t first = page_number(page);
        struct zone *zone = zone_of(first);
        bool taken;

        check_or_die(first != 0 && count != 0);
        if (new_count == 0)
                return false;
        if (new_count < count)
                block_give_back(page + new_count, count - new_count, 0, count - new_count);
        if (new_count <= count)
                return true;
        if (new_count > load_relaxed(&frontier.reserved) - first)
                return false;

        lock_take(&zone->lock);
        taken = range_take_locked(zone, first + (uint32_t)count, first + (uint32_t)new_count);
        if (taken) {
                touched_set_locked(first + (uint32_t)count, new_count - count);
                add_owned(&zone->large_pages, new_count - count);
        }
        zone_drop_changed(zone);
        return taken;
}

void page_map_set(const struct page *page, size_t count, uint16_t pair_offset)
{
        uint16_t *entry = &heap.map[page_number(page)];

        /* Atomic because a bad pointer may be looked up at the same time; no order is needed. */
        for (size_t i = 0; i < count; i++)
                store_relaxed(&entry[i], pair_offset);
        if (!pair_offset && unlikely(load_relaxed(&extra_pages)))
                page_extras_drop(page_number(page), count);
}

void pages_count_node(unsigned int node, struct page_counts *counts)
{
        struct zone *zone = &zones[node];

        lock_take(&zone->lock);
        kept_free_locked(zone);
        counts->accessible_pages = (size_t)zone->chunks * CHUNK_PAGES;
        counts->free_pages = zone->free_pages + zone->limbo_pages;
        counts->free_touched_pages = zone->free_touched_pages + zone->limbo_touched_pages;
        counts->purged_pages = zone->purged_pages;
        counts->large_handed_out = zone->large_handed_out;
        counts->large_blocks = zone->large_blocks;
        counts->large_pages = zone->large_pages;
        zone_drop_changed(zone);
        counts->used_pages = counts->accessible_pages - counts->free_pages;
}

void pages_count(struct page_counts *counts)
{
        struct page_counts one;

        *counts = (struct page_counts){0};
        for (unsigned int node = 0; node < system_nodes(); node++) {
                pages_count_node(node, &one);
                counts->accessible_pages += one.accessible_pages;
                counts->free_pages += one.free_pages;
                counts->free_touched_pages += one.free_touched_pages;
                counts->purged_pages += one.purged_pages;
                counts->large_handed_out += one.large_handed_out;
                counts->large_blocks += one.large_blocks;
                counts->large_pages += one.large_pages;
                counts->used_pages += one.used_pages;
        }
}

void pages_show(void)
{
        struct registry_head *head = registry_head_shown();

        if (!head)
                return;
        _Static_assert((int)NODES_MAX <= (int)REGISTRY_ZONES, "each node's zone has its figures");
        store_relaxed(&head->heap_base, heap.base);
        store_relaxed(&head->heap_reserved_bytes, load_relaxed(&heap.reserved_bytes));
        store_relaxed(&head->zones, (uint64_t)system_nodes());
        for (unsigned int node = 0; node < system_nodes(); node++) {
                lock_take(&zones[node].lock);
                kept_free_locked(&zones[node]);
                zone_drop_changed(&zones[node]);
        }
        huge_show();
}

void pages_each_lock(void (*act)(struct lock *lock))
{
        for (unsigned int node = 0; node < system_nodes(); node++)
                act(&zones[node].lock);
        act(&frontier.lock);
}
