/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Giving free pages back to the system, late and in runs.
 *
 * Pages are cut out of a run, purged without their zone's lock, and added again as clean, so other
 * threads allocate meanwhile. A single thread purges at a time, in whichever zone (purge_lock); for
 * the others pages_purge_due then has nothing to do.
 *
 * PURGE-1  A large block takes pages that were never touched if no run of touched ones is long enough. Those would stay
 *          resident beside it for purge_delay, and the program's peak is mostly then. So as many of them go back at
 *          once, beyond a thirty-second of the pages in use, and objects above a page that rest in the slot are made
 *          free pages before, if they are so many. A program that replaces such blocks all the time will
 *          want them again, so no more than 16 MiB go back this way in the time of ten delays. With several
 *          threads none do: others may want the pages, and wait while the system takes them from every CPU's table.
 *
 * Time comes from freed pages (zone.h). Lists are nearly sorted by it, the oldest at the
 * tail; where they are not, a run waits a delay longer.
 */
#include "page/purge.h"

#include "base/options.h"
#include "machine/probe.h"
#include "machine/system.h"
#include "page/huge.h"
#include "page/kept.h"
#include "page/reclaim.h"
#include "page/zone.h"

enum {
        PASS_PAGES = 8192,  /* 32 MiB: a pass stays a matter of a few milliseconds */
        CALL_PAGES = 512,   /* 2 MiB, some tens of microseconds, in a call of the program's */
        PENDING_PAGES = 16, /* freed and handed out until the next look if more is due */
        JUDGED_PAGES = 512, /* given back before the delay is judged */
        LONGEST = 16,       /* times the option's delay */

        /* PURGE-1 */
        RETURN_LEAST = 256,  /* untouched pages of a block, for which others go back */
        RETURN_PAGES = 4096, /* 16 MiB, */
        RETURN_DELAYS = 10,  /* in so many delays */
        KEPT_SHARE = 32,     /* of the pages in use, not given back in return */
};

struct lock purge_lock;
uint32_t reclaim_wanted;
void (*reclaim_start)(void);
void (*pages_end_rest)(void);

uint64_t zone_delay_ms(const struct zone *zone)
{
        uint64_t delay_ms = min_of(options.purge_delay, (uint64_t)UINT32_MAX);

        return max_of(load_relaxed(&zone->delay_ms), delay_ms);
}

void purge_wait(void)
{
        lock_take(&purge_lock);
        lock_drop(&purge_lock);
}

/* Smaller runs hold no whole system page. */
static size_t least_pages(void)
{
        return system_page_bytes() >> PAGE_SHIFT;
}

/*
 * Purges pages that are off the lists, as far as the system lets go of them; drops the zone's lock
 * meanwhile. A page that the program has locked, and freed without unlocking it, makes the system
 * call fail for the whole piece. So a piece is halved until a half is purged or is a single page,
 * and after each refused page twice as many pages are passed over. A locked part costs a few dozen
 * calls that way, and keeps no more pages behind it than it has itself.
 */
static void range_purge_locked(struct zone *zone, uint32_t first, size_t pages)
{
        size_t least = least_pages();
        size_t piece = pages;
        size_t passed_over = least;

        for (size_t done = 0; done < pages; piece = min_of(piece, pages - done)) {
                void *start = page_address(page_at(first + (uint32_t)done));
                bool purged;

                zone_drop_changed(zone);
                purged = system_purge(start, piece << PAGE_SHIFT);
                PROBE3(pages_purge, start, piece << PAGE_SHIFT, purged);
                lock_take(&zone->lock);
                if (purged) {
                        touched_clear_locked(first + (uint32_t)done, piece);
                        done += piece;
                        piece *= 2;
                        passed_over = least;
                } else if (piece > least) {
                        piece = round_up(piece / 2, least);
                } else {
                        done = min_of(done + passed_over, pages);
                        passed_over *= 2;
                }
        }
}

/* Touched pages that a pass gave back, and those that the system refused to take (locked memory). */
struct purged {
        size_t pages, refused;
};

static size_t tried(const struct purged *purged)
{
        return purged->pages + purged->refused;
}

/*
 * Purges pages of a free run until @most were tried in all; drops the zone's lock meanwhile. If the system refuses
 * some, the pages behind them follow, and the run counts as freed at @retry_time; so does a run that contains no
 * whole touched page of the system.
 */
static void run_purge_locked(struct zone *zone, struct page *run, size_t most, uint64_t retry_time,
                             struct purged *purged)
{
        uint64_t time_freed = run_time(run);
        uint32_t from = page_number(run);

        while (tried(purged) < most) {
                size_t pages, touched, refused;
                uint32_t first =
                        run_cut_touched_locked(zone, run, from, most - tried(purged), &pages);

                if (first == 0)
                        break;
                touched = touched_count_locked(first, pages);
                add_owned(&zone->limbo_pages, pages);
                add_owned(&zone->limbo_touched_pages, touched);
                range_purge_locked(zone, first, pages);
                add_owned(&zone->limbo_pages, -pages);
                add_owned(&zone->limbo_touched_pages, -touched);
                refused = touched_count_locked(first, pages);
                zone->purged_pages += touched - refused;
                purged->pages += touched - refused;
                purged->refused += refused;
                run = range_add_locked(zone, first, pages, time_freed);
                if (refused == 0)
                        return;
                from = first + (uint32_t)pages;
        }
        run_postpone_locked(zone, run, retry_time);
}

/* When the next run that is purged unasked will be due, UINT64_MAX if there is none. */
static uint64_t next_due_locked(const struct zone *zone, uint64_t delay)
{
        uint64_t oldest = run_oldest_locked(zone);

        return oldest == UINT64_MAX ? oldest : oldest + delay;
}

/*
 * Pages that come back soon after they went cost two system calls' work and a fault each, and a
 * program that gets little of its CPUs meets this more often, as the clock goes on without it. So
 * the delay doubles, up to LONGEST times the option's, while at least half of the pages that went
 * back are wanted again, and halves while no more than an eighth is. A page counts as wanted again
 * if it was handed out and then touched: blocks that are written at their beginning only are handed
 * out again and take no faults.
 */
static void delay_judge_locked(struct zone *zone, uint64_t now)
{
        static uint64_t faults_before; /* under purge_lock */
        uint64_t delay_ms = zone_delay_ms(zone);
        uint64_t faults;
        size_t again;

        if (zone->given_back < JUDGED_PAGES || now < zone->judge_from + delay_ms)
                return;
        faults = system_faults();
        again = min_of(zone->wanted_again, (size_t)(faults - faults_before));
        if (again * 2 >= zone->given_back)
                delay_ms = min_of(delay_ms * 2, options.purge_delay * LONGEST);
        else if (again * 8 <= zone->given_back)
                delay_ms = delay_ms / 2;
        store_relaxed(&zone->delay_ms, delay_ms);
        faults_before = faults;
        zone->given_back = zone->wanted_again = 0;
}

/*
 * Purges runs of @pages_min and more that were free at @cutoff until @most pages were tried, and counts them for the next
 * judgement of the delay. Returns the last run, NULL if no other is due.
 */
static struct page *runs_purge_locked(struct zone *zone, size_t pages_min, uint64_t cutoff,
                                      size_t most, uint64_t now, struct purged *purged)
{
        struct page *run = NULL;

        while (tried(purged) < most && (run = run_due_locked(zone, pages_min, cutoff)))
                run_purge_locked(zone, run, most, now + 1, purged);
        if (!zone->given_back)
                zone->judge_from = now;
        zone->given_back += purged->pages;
        return run;
}

/*
 * A pass over the runs of @pages_min and more, for at most @most pages; returns how many pages it
 * gave back.
 */
static size_t zone_purge_due(struct zone *zone, uint64_t now, size_t pages_min, size_t most)
{
        struct purged purged = {0};
        struct page *run;
        uint64_t delay;

        if (!lock_try(&purge_lock))
                return 0;
        lock_take(&zone->lock);
        kept_free_locked(zone);
        delay_judge_locked(zone, now);
        delay = min_of(zone_delay_ms(zone), now);
        run = runs_purge_locked(zone, pages_min, now - delay, most, now, &purged);
        if (purged.refused > purged.pages)
                store_relaxed(&zone->delay_ms,
                              min_of(2 * zone_delay_ms(zone), options.purge_delay * LONGEST));
        if (run)
                store_relaxed(&zone->moved_since_check, (size_t)CHECK_PAGES - PENDING_PAGES);
        store_relaxed(&zone->purge_at, run ? now + 1 : next_due_locked(zone, zone_delay_ms(zone)));
        zone_drop_changed(zone);
        lock_drop(&purge_lock);
        return purged.pages;
}

/* How many pages may go back in return for @fresh ones, after @returned others (PURGE-1). */
static size_t return_most_locked(const struct zone *zone, size_t fresh, size_t returned)
{
        size_t used = zone->chunks * (size_t)CHUNK_PAGES - zone->free_pages - zone->limbo_pages;
        size_t kept = used / KEPT_SHARE;

        if (zone->free_touched_pages <= kept || returned >= RETURN_PAGES)
                return 0;
        fresh = min_of(fresh, zone->free_touched_pages - kept);
        return min_of(fresh, RETURN_PAGES - returned);
}

void pages_purge_in_return(const struct page *block, size_t fresh)
{
        static uint64_t since_ms; /* both of the only thread */
        static size_t returned;
        struct zone *zone = &zones[block->node];
        size_t pages_min = max_of(least_pages(), (size_t)PURGE_PAGES);
        void (*end_rest)(void) = load_relaxed(&pages_end_rest);
        struct purged purged = {0};
        uint64_t now;
        size_t most;

        if (fresh < RETURN_LEAST || system_threads() != THREADS_ONE)
                return;
        now = system_time_ms();
        if (now - since_ms >= RETURN_DELAYS * zone_delay_ms(zone)) {
                since_ms = now;
                returned = 0;
        }
        if (end_rest && returned < RETURN_PAGES)
                end_rest();
        if (!lock_try(&purge_lock))
                return;
        lock_take(&zone->lock);
        most = return_most_locked(zone, fresh, returned);
        runs_purge_locked(zone, pages_min, now, most, now, &purged);
        returned += tried(&purged);
        zone_drop_changed(zone);
        lock_drop(&purge_lock);
}

uint64_t pages_delay_ms(void)
{
        uint64_t delay_ms = 0;

        for (unsigned int node = 0; node < system_nodes(); node++)
                delay_ms = max_of(delay_ms, zone_delay_ms(&zones[node]));
        return delay_ms;
}

void pages_purge_due(void)
{
        size_t most = options.purge_delay ? max_of(least_pages(), (size_t)CALL_PAGES) : PASS_PAGES;
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
                                       max_of(least_pages(), (size_t)PURGE_PAGES), most);
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
                        pass = zone_purge_due(&zones[node], now, least_pages(), PASS_PAGES);
                        bytes += pass << PAGE_SHIFT;
                } while (pass >= PASS_PAGES);
        }
        return bytes;
}

size_t pages_free_touched(void)
{
        size_t pages = 0;

        for (unsigned int node = 0; node < system_nodes(); node++)
                pages += load_relaxed(&zones[node].free_touched_pages);
        return pages;
}

size_t pages_free_count(void)
{
        size_t pages = 0;

        for (unsigned int node = 0; node < system_nodes(); node++)
                pages += load_relaxed(&zones[node].free_pages);
        return pages;
}

size_t pages_held(void)
{
        size_t pages = 0;

        for (unsigned int node = 0; node < system_nodes(); node++) {
                const struct zone *zone = &zones[node];

                pages += (size_t)load_relaxed(&zone->chunks) * CHUNK_PAGES;
                pages -= load_relaxed(&zone->free_pages) + load_relaxed(&zone->limbo_pages);
                pages += load_relaxed(&zone->free_touched_pages) +
                         load_relaxed(&zone->limbo_touched_pages);
        }
        return (size_t)max_of((intptr_t)pages, (intptr_t)0);
}

/* Purges the zone's free pages, as long as more than @keep pages remain in all zones. */
static size_t zone_purge_all_locked(struct zone *zone, size_t keep, uint64_t now)
{
        struct purged purged = {0};
        size_t touched;

        while ((touched = pages_free_touched()) > keep) {
                struct page *run = run_due_locked(zone, least_pages(), now);
                /* A system page is purged whole, however few of its pages were touched. */
                size_t most = keep ? touched - keep : round_up(touched, least_pages());

                if (!run)
                        break;
                run_purge_locked(zone, run, tried(&purged) + most, now + 1, &purged);
        }
        return purged.pages;
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
                kept_free_locked(&zones[node]);
                purged += zone_purge_all_locked(&zones[node], keep, now);
                zone_drop_changed(&zones[node]);
        }
        lock_drop(&purge_lock);
        return (purged << PAGE_SHIFT) + huge_bytes;
}
