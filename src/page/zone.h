/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The parts that the files of page/ share: the zones with their free runs, the frontier, and the
 * steps between reservation, runs and purging.
 *
 * A run's first descriptor: kind PAGE_FREE, length, state = pages of it that were touched, table =
 * when it was freed (ms). A run that was cut carries its time on to the parts; a run that grows has
 * the time of the part with the most touched pages.
 *
 * ZONE-1  A chunk belongs to a single zone from the growth of the frontier that made it accessible,
 *         for good; a free page is in a run of its chunk's zone, and a run or block has pages of a
 *         single zone. So a page's zone follows from its number.
 * ZONE-2  A request that may have pages of any zone fails only at a moment at which no zone could
 *         serve it (pages.c).
 *
 * Locks: the zones' locks in ascending order, then frontier.lock. Only the holder of a zone's lock
 * writes a field that says "under the zone's lock"; each zone's touched bits are in words of their
 * own.
 */
#ifndef KMEM_PAGE_ZONE_H
#define KMEM_PAGE_ZONE_H

#include "machine/message.h"
#include "registry/registry.h"
#include "machine/system.h"
#include "page/page.h"

enum {
        CHECK_PAGES = 256, /* freed or handed out between two looks for runs that are due */
        PURGE_PAGES = 16,  /* smaller runs are left to requests and the reclaim thread */
        BINS = 140,        /* lists of runs by length (runs.c) */
        BIN_WORDS = (BINS + 63) / 64,
};

enum run_kind { RUN_TOUCHED, RUN_CLEAN, RUN_KINDS };

/*
 * The pages of a NUMA node. Runs with touched pages and runs known to be zero are on lists of their
 * own. Requests use the newest touched runs first, because these are probably in a cache; purging
 * takes the oldest from the tail.
 */
struct zone {
        _Alignas(64) struct lock lock;
        uint32_t node;             /* its position in zones */
        uint32_t chunks;           /* chunks that belong to it; written under both locks, read
                                      without */
        uint32_t chunks_most;      /* chunks that may belong to it */
        int bind_error;            /* why its pages are not bound to the node, 0: they are */
        size_t free_pages;         /* pages on the lists */
        size_t free_touched_pages; /* touched pages on the lists */
        size_t limbo_pages;        /* free, but off the lists while being purged */
        size_t limbo_touched_pages;
        size_t purged_pages;      /* cumulative */
        size_t large_handed_out;  /* blocks of pages_alloc_exact and _zeroed, cumulative */
        size_t large_blocks;      /* large blocks that are not freed */
        size_t large_pages;       /* pages of large_blocks */
        size_t moved_since_check; /* pages freed and handed out since the last look for due runs;
                                     also read without the lock */
        uint64_t purge_at;        /* ms; no run is due before; read without the lock */
        uint64_t delay_ms;   /* how long pages are free before they go back (purge.c); 0: as the
                                     option says */
        uint64_t judge_from; /* ms; when the first of these were purged: */
        size_t given_back;   /* pages purged since delay_ms was judged */
        size_t wanted_again; /* pages that were not touched and handed out since, of at most
                                     that number */
        uint64_t bins_used[RUN_KINDS][BIN_WORDS]; /* a bit is set if its bin has runs */
        struct page_list bins[BINS][RUN_KINDS];   /* last: the lists of long runs are seldom used */
};
/* The first system_nodes() zones are in use. */
extern KMEM_HIDDEN struct zone zones[NODES_MAX];

/* Three facts about 64 pages, a bit each. */
struct touched_word {
        uint64_t touched; /* handed out since it was last purged */
        uint64_t begun;   /* touched, and a block for a single object began with it since */
        uint64_t packed;  /* touched, and a block for several objects had it since */
};

/* Where the heap ends so far, and the tables that all zones have in common. */
struct frontier {
        struct lock lock;     /* protects all fields that change */
        uint32_t pages;       /* made accessible, a multiple of CHUNK_PAGES; release */
        uint32_t reserved;    /* pages that there is address space for, in whole chunks; may become
                                 less; relaxed: a bound */
        uint32_t large_limit; /* exact ranges leave the frontier below it, in whole chunks; relaxed:
                                 a bound */
        uint32_t table_pages; /* pages the tables are accessible for */
        uint32_t refusals;    /* times that the system refused to make more accessible */
        /* Under the lock of the pages' zone. */
        struct touched_word *touched_bits;
        uint8_t *chunk_nodes; /* zone of each chunk, constant once its chunk is accessible; NULL if
                                 there is a single zone */
        char *metadata;       /* address space for metadata (base/metadata.h), constant */
        char *tables_end;     /* end of the tables; from there to the heap's base is nothing */
        char *heap_end;       /* end of the heap as laid out first */
        char *end;            /* end of the reservation; from heap_end to there is nothing */
};
extern KMEM_HIDDEN struct frontier frontier;

/* zone_locked_check - for functions named *_locked. */
#define zone_locked_check(zone) debug_check(lock_is_held(&(zone)->lock))

/* Shows the zone's figures to other processes (registry/registry.h). */
static inline void zone_show_locked(const struct zone *zone)
{
        struct registry_head *head = registry_head_shown();
        size_t free_pages = zone->free_pages + zone->limbo_pages;
        struct registry_zone *figures;

        zone_locked_check(zone);
        if (!head)
                return;
        figures = &head->zone[zone->node];
        store_relaxed(&figures->used_pages, (size_t)zone->chunks * CHUNK_PAGES - free_pages);
        store_relaxed(&figures->free_pages, free_pages);
        store_relaxed(&figures->free_touched_pages,
                      zone->free_touched_pages + zone->limbo_touched_pages);
        store_relaxed(&figures->purged_pages, zone->purged_pages);
        store_relaxed(&figures->large_blocks, zone->large_blocks);
        store_relaxed(&figures->large_pages, zone->large_pages);
}

/* Drops the zone's lock, under which its figures have changed, and shows these. */
static inline void zone_drop_changed(struct zone *zone)
{
        zone_show_locked(zone);
        lock_drop(&zone->lock);
}

/* The zone of a page below the frontier (ZONE-1). */
static inline struct zone *zone_of(uint32_t number)
{
        return &zones[frontier.chunk_nodes ? frontier.chunk_nodes[number / CHUNK_PAGES] : 0];
}

/*
 * reserve.c: makes @chunks more chunks accessible, as free pages of @zone, but none beyond page
 * @limit; false and no change if that, the zone's chunks_most or the system refuses.
 * frontier.lock is held too.
 */
KMEM_HIDDEN bool frontier_grow_locked(struct zone *zone, size_t chunks, uint32_t limit);
/*
 * As frontier_grow_locked, but by a part of the zone's size if that is more and may be had: several
 * zones do not alternate all over the heap then, and a single zone makes fewer system calls.
 */
KMEM_HIDDEN bool zone_grow_locked(struct zone *zone, size_t chunks, uint32_t limit);

/* touched.c: ranges within a zone. */
KMEM_HIDDEN size_t touched_count_locked(uint32_t first, size_t count);
KMEM_HIDDEN void touched_set_locked(uint32_t first, size_t count);
KMEM_HIDDEN void touched_clear_locked(uint32_t first, size_t count);
/* The first touched page; there must be one. */
KMEM_HIDDEN uint32_t touched_first_locked(uint32_t first, size_t count);
/* A block for a single object begins with this page, which is touched (RUN-4). */
KMEM_HIDDEN void begun_set_locked(uint32_t number);
/*
 * The first page that a block began with, in steps of @align pages from @first; @first if there is
 * none.
 */
KMEM_HIDDEN uint32_t begun_first_locked(uint32_t first, size_t count, size_t align);

/* A block for several objects has these pages, which are touched (RUN-5). */
KMEM_HIDDEN void packed_set_locked(uint32_t first, size_t count);
/*
 * The first page, in steps of @align pages and less than @near pages behind @first, from which on
 * such blocks had @count pages; @first if there is none.
 */
KMEM_HIDDEN uint32_t packed_first_locked(uint32_t first, size_t near, size_t count, size_t align);

/*
 * A copy of the bits of a block below 32 MiB, for the stack. Above 16 MiB a bit stands for two pages:
 * it is set if either was touched.
 */
enum { BITS_PAGES = 8192 };
struct touched_bits {
        uint64_t word[BITS_PAGES / 2 / 64 + 1]; /* from the word of the first page on */
        unsigned int shift;                     /* place of the first page among the bits' pages */
        unsigned int halved;                    /* 1 if a bit stands for two pages, else 0 */
};
KMEM_HIDDEN void touched_copy_locked(uint32_t first, size_t count, struct touched_bits *bits);

/* Whether the page @index behind the first was touched. */
static inline bool touched_bit(const struct touched_bits *bits, size_t index)
{
        return bit_get(bits->word, (index + bits->shift) >> bits->halved);
}

/*
 * runs.c: takes @count pages side by side, aligned to @align (a power of two), for which the
 * frontier is moved if it must, up to page @limit; and as many blocks of @count as the run has room
 * for side by side, at most *@blocks, which becomes their number. Returns the first page; 0 and no
 * change if there are none. @one_object: each block is for a single object (RUN-4).
 */
KMEM_HIDDEN uint32_t range_find_locked(struct zone *zone, size_t count, size_t align,
                                       uint32_t limit, bool one_object, unsigned int *blocks);
/*
 * Takes the free pages [first, end) right behind a block of the zone; false and no change if a page
 * is used or belongs to another zone.
 */
KMEM_HIDDEN bool range_take_locked(struct zone *zone, uint32_t first, uint32_t end);
/* Adds any range of free pages of the zone to the runs; returns the run that has them now. */
KMEM_HIDDEN struct page *range_add_locked(struct zone *zone, uint32_t first, size_t count,
                                          uint64_t time_freed);
/*
 * For purging: a run of at least @pages_min with touched pages that was free at @cutoff, or NULL.
 */
KMEM_HIDDEN struct page *run_due_locked(const struct zone *zone, size_t pages_min, uint64_t cutoff);
/*
 * The time at which the oldest run was freed, of the runs purged unasked; UINT64_MAX if there is
 * none.
 */
KMEM_HIDDEN uint64_t run_oldest_locked(const struct zone *zone);
/* Treats the run as if it had been freed at that time. */
KMEM_HIDDEN void run_postpone_locked(struct zone *zone, struct page *run, uint64_t time);
/*
 * Cuts up to @most pages out of a run, in whole system pages. The first has touched pages and does
 * not lie before page @from. Returns the first page, and the number, which is 0 if no system page
 * qualifies.
 */
KMEM_HIDDEN uint32_t run_cut_touched_locked(struct zone *zone, struct page *run, uint32_t from,
                                            size_t most, size_t *count);

/* purge.c: how long pages of the zone are free, in ms, before they go back to the system unasked. */
KMEM_HIDDEN uint64_t zone_delay_ms(const struct zone *zone);

static inline size_t pages_to_chunks(size_t pages)
{
        return (pages + CHUNK_PAGES - 1) / CHUNK_PAGES;
}

/* Whether it is the first or the last page of a run. */
static inline bool is_run_edge(const struct page *page)
{
        uint8_t kind = load_relaxed(&page->kind);

        return kind == PAGE_FREE || kind == PAGE_FREE_END;
}

static inline uint64_t run_time(const struct page *run)
{
        return (uint64_t)(uintptr_t)run->table;
}

#endif
