/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The free pages of a zone: runs, which are as long as they can be, in bins by their length. A
 * request gets the low end of the shortest run that has room for it, or a place near that (RUN-4).
 *
 * RUN-1  A run is on the list for its length, and for whether its state is 0, and on no other. The
 *        bits of the lists that have runs are set, and no others.
 * RUN-2  No two runs of a zone lie side by side.
 * RUN-3  The first page of a run has kind PAGE_FREE, and the last page, if there are several,
 *        PAGE_FREE_END; both have its length. Pages between have kind PAGE_UNUSED (PAGE-2). So a
 *        block that comes back finds its free neighbours at once.
 * RUN-4  A program perhaps writes only the beginning of a block for a single object, and the system
 *        has no memory behind the rest. So the block begins where an earlier block began, if that
 *        is less than its length, and less than PLACE_PAGES, away from the low end of its run.
 *        Otherwise blocks that come and go would begin at ever other pages, until all of the heap
 *        has memory. The pages in front of a block so placed are mostly pages that slabs had; they
 *        are the shortest run for slabs again.
 * RUN-5  A program fills blocks for several objects, so all of their pages have memory. Such a block
 *        goes where others were, if that is less than PACKED_PAGES from the low end of its run. At
 *        that end it would often take the place of a block for a single object, of which only the
 *        beginning has memory, and in each round of such blocks the place of another.
 *
 * Owners of blocks may set the kind of their own first page at any time, to other values than
 * these and not under the zone's lock; so kinds are read and written as relaxed atomics.
 */
#include "base/options.h"
#include "page/kept.h"

enum {
        LOOKED_AT = 16, /* runs of a bin, for the shortest that fits */
        BIN_STEPS = 4,  /* bins a doubling, from EXACT_PAGES on */
        EXACT_PAGES = 32,
        PLACE_PAGES = 256,
        PACKED_PAGES = 512,
        ROW_PAGES = 8, /* longest blocks of which several are taken in a row */
};
_Static_assert((int)BINS == EXACT_PAGES + (32 - 5) * BIN_STEPS, "every length has a bin");

/* Lengths below EXACT_PAGES have bins of their own. */
static unsigned int bin_of(size_t length)
{
        unsigned int doubling;

        if (length < EXACT_PAGES)
                return (unsigned int)length;
        doubling = fls(length) - 1;
        return EXACT_PAGES + (doubling - 5) * BIN_STEPS +
               (unsigned int)((length >> (doubling - 2)) & (BIN_STEPS - 1));
}

static enum run_kind kind_of(const struct page *run)
{
        return run->state != 0 ? RUN_TOUCHED : RUN_CLEAN;
}

/* The first bin from @bin on that has runs of this kind, or BINS. */
static unsigned int next_bin(const struct zone *zone, enum run_kind kind, unsigned int bin)
{
        for (unsigned int word = bin / 64; word < BIN_WORDS; word++) {
                uint64_t bits = zone->bins_used[kind][word];

                if (word == bin / 64)
                        bits &= ~(uint64_t)0 << (bin % 64);
                if (bits)
                        return word * 64 + (unsigned int)__builtin_ctzll(bits);
        }
        return BINS;
}

/* Makes sure that a slow path looks when this run has been free long enough. */
static void purge_schedule_locked(struct zone *zone, uint64_t time_freed)
{
        if (load_relaxed(&zone->purge_at) == UINT64_MAX)
                store_relaxed(&zone->purge_at, time_freed + zone_delay_ms(zone));
}

/*
 * Puts a run on its list without merging. Rests of runs are as old as these were, so they go to
 * the tail, where purging looks for the oldest.
 */
static void run_insert_locked(struct zone *zone, uint32_t first, size_t length, size_t touched,
                              uint64_t time_freed, bool is_rest)
{
        struct page *run = page_at(first);
        struct page *last = run + length - 1;
        unsigned int bin = bin_of(length);
        enum run_kind kind;

        zone_locked_check(zone);
        debug_check(zone_of(first) == zone && zone_of(page_number(last)) == zone);
        run->state = touched;
        run->table = (void *)(uintptr_t)time_freed;
        run->order = 0;
        run->node_partial = 0;
        store_relaxed(&last->kind, (uint8_t)PAGE_FREE_END);
        last->length = (uint32_t)length;
        store_relaxed(&run->kind, (uint8_t)PAGE_FREE);
        run->length = (uint32_t)length;

        kind = kind_of(run);
        if (is_rest)
                page_list_add_tail(&zone->bins[bin][kind], run);
        else
                page_list_add_head(&zone->bins[bin][kind], run);
        bit_set(zone->bins_used[kind], bin);
        add_owned(&zone->free_pages, length);
        add_owned(&zone->free_touched_pages, touched);
        if (touched != 0 && length >= PURGE_PAGES)
                purge_schedule_locked(zone, time_freed);
}

static void run_remove_locked(struct zone *zone, struct page *run)
{
        size_t length = run->length;
        unsigned int bin = bin_of(length);
        enum run_kind kind = kind_of(run);
        struct page_list *list = &zone->bins[bin][kind];

        zone_locked_check(zone);
        debug_check(load_relaxed(&run->kind) == PAGE_FREE);
        page_list_remove(list, run);
        if (!list->first)
                bit_clear(zone->bins_used[kind], bin);
        store_relaxed(&run[length - 1].kind, (uint8_t)PAGE_UNUSED);
        store_relaxed(&run->kind, (uint8_t)PAGE_UNUSED);
        add_owned(&zone->free_pages, -length);
        add_owned(&zone->free_touched_pages, -(size_t)run->state);
}

/* The zone's run that ends right in front of a page, or NULL. */
static struct page *run_before(const struct zone *zone, uint32_t first)
{
        struct page *last = page_at(first - 1);

        if (!is_run_edge(last) || zone_of(first - 1) != zone)
                return NULL;
        return last - (last->length - 1);
}

/* The zone's run that begins with a page, or NULL. */
static struct page *run_from(const struct zone *zone, uint32_t first)
{
        struct page *run = page_at(first);

        /* Acquire: pages below have their zone in the table (frontier_grow_locked). */
        if (first >= load_acquire(&frontier.pages) || load_relaxed(&run->kind) != PAGE_FREE ||
            zone_of(first) != zone)
                return NULL;
        return run;
}

struct page *range_add_locked(struct zone *zone, uint32_t first, size_t count, uint64_t time_freed)
{
        struct page *neighbours[] = {run_before(zone, first),
                                     run_from(zone, first + (uint32_t)count)};
        size_t touched = touched_count_locked(first, count);
        size_t most = touched;

        /*
         * A merged run gets the time of the part with the most pages to purge: a large run that
         * loses and gets back a few pages all the time keeps its own time.
         */
        for (unsigned int side = 0; side < array_size(neighbours); side++) {
                struct page *run = neighbours[side];

                if (!run)
                        continue;
                if (run->state > most) {
                        most = run->state;
                        time_freed = run_time(run);
                }
                touched += run->state;
                count += run->length;
                first = min_of(first, page_number(run));
                run_remove_locked(zone, run);
        }
        run_insert_locked(zone, first, count, touched, touched ? time_freed : 0, false);
        return page_at(first);
}

/* Touched pages in a part of the run, counted only where they are some of it. */
static size_t touched_part_locked(const struct page *run, uint32_t first, size_t count)
{
        if (run->state == 0 || run->state == run->length)
                return run->state ? count : 0;
        return touched_count_locked(first, count);
}

/* Takes [first, first + count) out of a run that has it; the rest stays free. */
static void run_cut_locked(struct zone *zone, struct page *run, uint32_t first, size_t count)
{
        uint32_t start = page_number(run);
        uint32_t end = start + run->length;
        uint32_t behind = first + (uint32_t)count;
        size_t before = touched_part_locked(run, start, first - start);
        size_t taken = touched_part_locked(run, first, count);
        size_t touched = run->state;

        debug_check(first >= start && behind <= end);
        run_remove_locked(zone, run);
        if (first > start)
                run_insert_locked(zone, start, first - start, before, run_time(run), true);
        if (end > behind)
                run_insert_locked(zone, behind, end - behind, touched - before - taken,
                                  run_time(run), true);
}

/* Whether the run has room for @count aligned pages. */
static bool run_has_room(const struct page *run, size_t count, size_t align)
{
        uint32_t first = page_number(run);

        return round_up(first, align) - first + count <= run->length;
}

/*
 * The shortest run that has room, of the first @looked_at runs of each bin; NULL if there is none.
 */
static struct page *run_find(const struct zone *zone, enum run_kind kind, size_t count,
                             size_t align, size_t looked_at)
{
        for (unsigned int bin = bin_of(count); (bin = next_bin(zone, kind, bin)) < BINS; bin++) {
                struct page *run = page_list_first(&zone->bins[bin][kind]);
                struct page *best = NULL;

                for (size_t i = 0; run && i < looked_at; i++, run = page_list_next(run)) {
                        if ((best && run->length >= best->length) ||
                            !run_has_room(run, count, align))
                                continue;
                        best = run;
                        if (bin < EXACT_PAGES)
                                break;
                }
                if (best)
                        return best;
        }
        return NULL;
}

/*
 * Touched pages are there already, and probably in a cache. A clean run serves if it is shorter and
 * pages of the touched run would have to be touched anew as well.
 */
static struct page *run_choose(const struct zone *zone, size_t count, size_t align,
                               size_t looked_at)
{
        struct page *touched = run_find(zone, RUN_TOUCHED, count, align, looked_at);
        struct page *clean;

        if (touched && touched->state >= count)
                return touched;
        clean = run_find(zone, RUN_CLEAN, count, align, looked_at);
        if (!touched || !clean)
                return touched ? touched : clean;
        return touched->length <= clean->length ? touched : clean;
}

/*
 * Moves the frontier so far that the run at it has room for the pages, except page 0, which is
 * never handed out. False and no change if the system refuses, or the run has the room already.
 */
static bool grow_for_locked(struct zone *zone, size_t count, size_t align, uint32_t limit)
{
        struct page *run = NULL;
        bool grown = false;
        size_t end, start;

        lock_take(&frontier.lock);
        end = frontier.pages;
        if (end != 0)
                run = run_before(zone, (uint32_t)end);
        start = round_up(run ? page_number(run) : end, align);
        if (start + count > end)
                grown = zone_grow_locked(zone, pages_to_chunks(start + count - end), limit);
        lock_drop(&frontier.lock);
        return grown;
}

/* The page where a block for a single object begins, in a run that has room for it (RUN-4). */
static uint32_t place_locked(const struct page *run, uint32_t first, size_t count, size_t align)
{
        size_t others = page_number(run) + (size_t)run->length - first - count;
        size_t near = min_of(count, (size_t)PLACE_PAGES);

        return begun_first_locked(first, min_of(others + 1, near), align);
}

/* The page where a block for several objects begins, in a run that has room for it (RUN-5). */
static uint32_t place_packed_locked(const struct page *run, uint32_t first, size_t count,
                                    size_t align)
{
        size_t others = page_number(run) + (size_t)run->length - first - count;

        return packed_first_locked(first, min_of(others + 1, (size_t)PACKED_PAGES), count, align);
}

uint32_t range_find_locked(struct zone *zone, size_t count, size_t align, uint32_t limit,
                           bool one_object, unsigned int *blocks)
{
        struct page *run;
        uint32_t first;
        size_t room;

        zone_locked_check(zone);
        run = run_choose(zone, count, align, LOOKED_AT);
        /* The zone's kept blocks go back to its runs first (KEPT-2). */
        if ((!run || run->state < count) && kept_free_locked(zone))
                run = run_choose(zone, count, align, LOOKED_AT);
        /* Twice at most: page 0 is missing in the first chunk of all. */
        while (!run && grow_for_locked(zone, count, align, limit))
                run = run_choose(zone, count, align, LOOKED_AT);
        /* ZONE-2: now also the runs of its own bin that were not looked at. */
        if (!run)
                run = run_choose(zone, count, align, SIZE_MAX);
        if (!run)
                return 0;
        first = (uint32_t)round_up((size_t)page_number(run), align);
        if (run->state != 0)
                first = one_object ? place_locked(run, first, count, align)
                                   : place_packed_locked(run, first, count, align);
        room = page_number(run) + (size_t)run->length - first;
        /* The rest of the run would be the shortest for the next block, too. */
        *blocks = count % align ? 1 : (unsigned int)min_of((size_t)*blocks, room / count);
        /* Each begins where another began: behind the first is what that did not write (RUN-4). */
        if (one_object && count > ROW_PAGES)
                *blocks = 1;
        run_cut_locked(zone, run, first, *blocks * count);
        return first;
}

/* Makes [first, end) accessible, which begins at the frontier unless another zone was faster. */
static bool frontier_reach_locked(struct zone *zone, uint32_t first, uint32_t end)
{
        bool grown;

        lock_take(&frontier.lock);
        grown = first == frontier.pages &&
                frontier_grow_locked(zone, pages_to_chunks(end - first),
                                     load_relaxed(&frontier.large_limit));
        lock_drop(&frontier.lock);
        return grown;
}

bool range_take_locked(struct zone *zone, uint32_t first, uint32_t end)
{
        struct page *run;
        uint32_t free_end;

        kept_free_locked(zone); /* KEPT-2 */
        run = run_from(zone, first);
        free_end = run ? first + run->length : first;
        if (free_end < end) {
                /* Pages of other owners follow, or the frontier. */
                if (free_end != load_acquire(&frontier.pages) ||
                    !frontier_reach_locked(zone, free_end, end))
                        return false;
                run = run_from(zone, first);
        }
        run_cut_locked(zone, run, first, end - first);
        return true;
}

struct page *run_due_locked(const struct zone *zone, size_t pages_min, uint64_t cutoff)
{
        debug_check(pages_min < EXACT_PAGES);
        for (unsigned int bin = BINS; bin-- > bin_of(pages_min);) {
                uint32_t last = zone->bins[bin][RUN_TOUCHED].last;

                if (last && run_time(page_at(last)) <= cutoff)
                        return page_at(last);
        }
        return NULL;
}

uint64_t run_oldest_locked(const struct zone *zone)
{
        uint64_t oldest = UINT64_MAX;

        for (unsigned int bin = bin_of(PURGE_PAGES);
             (bin = next_bin(zone, RUN_TOUCHED, bin)) < BINS; bin++)
                oldest = min_of(oldest, run_time(page_at(zone->bins[bin][RUN_TOUCHED].last)));
        return oldest;
}

void run_postpone_locked(struct zone *zone, struct page *run, uint64_t time)
{
        uint32_t first = page_number(run);
        size_t length = run->length;
        size_t touched = run->state;

        run_remove_locked(zone, run);
        run_insert_locked(zone, first, length, touched, time, false);
}

uint32_t run_cut_touched_locked(struct zone *zone, struct page *run, uint32_t from, size_t most,
                                size_t *count)
{
        size_t system_pages = system_page_bytes() >> PAGE_SHIFT;
        size_t end = round_down(page_number(run) + (size_t)run->length, system_pages);
        size_t first = round_up((size_t)max_of(page_number(run), from), system_pages);

        if (first >= end || most < system_pages)
                return 0;
        if (run->state != run->length) {
                /*
                 * The touched pages may be at its ends, in system pages that other blocks have a
                 * part of.
                 */
                if (!touched_count_locked((uint32_t)first, end - first))
                        return 0;
                first = round_down(touched_first_locked((uint32_t)first, end - first),
                                   system_pages);
        }
        *count = min_of(end - first, round_down(most, system_pages));
        run_cut_locked(zone, run, (uint32_t)first, *count);
        return (uint32_t)first;
}
