/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The reservation and its frontier. A single mapping without access holds
 *
 *   front | page map | descriptors | touched bits | chunk nodes | metadata | up to 4 MiB | heap
 *
 * (chunk nodes: each chunk's zone, where there are several; metadata: used only when the system
 * maps no more) and becomes accessible from the low end of each part: the heap a chunk at a time,
 * the tables in larger steps ahead of it. Neighbouring ranges of equal access merge into a single
 * mapping, so their number stays constant however far the heap grows.
 *
 * RESERVE-1  Tables are accessible for every page below the frontier, rounded up.
 * RESERVE-2  A refused commit changes nothing that another thread can see.
 *
 * All zones grow at a common frontier, so that everything below it is accessible and a free needs a
 * single comparison. Memory is bound to nodes, so zones that grow in turn by a chunk would leave a
 * mapping for each chunk. Therefore a zone grows by an eighth of its size, and ends up with some
 * dozens of mappings (ZONE_STEP).
 */
#include "base/metadata.h"
#include "base/options.h"
#include "machine/message.h"
#include "machine/probe.h"
#include "page/extra.h"
#include "page/zone.h"

#include <string.h>

struct heap heap;
/*
 * Common symbols come last in memory. Elsewhere, the zones that a machine with a single node never
 * touches would move its touched variables a page further apart.
 */
struct zone zones[NODES_MAX] __attribute__((common));
struct frontier frontier;

enum {
        TABLE_STEP_PAGES = 32 * CHUNK_PAGES, /* tables grow for 128 MiB of heap at a time */
        TABLE_ALIGN_SHIFT = 16,              /* the largest system page, so tables never share */
        ZONE_STEP = 8,                       /* with several zones a zone grows by an eighth of its
                                                size */
        HEAP_STEP = 2,                       /* a single zone by half */
        AHEAD_CHUNKS_MAX = 7,                /* and by 32 MiB at most */
};

static const size_t CHUNK_BYTES = (size_t)CHUNK_PAGES << PAGE_SHIFT;
static const size_t SMALL_PAGES_BYTES = (size_t)32 << 20; /* of the heap, in small pages */
static const size_t HEAP_BYTES_DEFAULT = (size_t)1 << 40;
static const size_t HEAP_BYTES_MAX = (size_t)1 << 43; /* page numbers are 32 bits, with room */
static const size_t HEAP_BYTES_FLOOR = (size_t)16 * CHUNK_PAGES << PAGE_SHIFT;
static const size_t HEAP_BYTES_LEAST = (size_t)2 * CHUNK_PAGES
                                       << PAGE_SHIFT; /* under an address space limit */

/* Bytes of each table for a number of pages. */
static size_t map_bytes(size_t pages)
{
        return pages * sizeof(uint16_t);
}

static size_t descriptor_bytes(size_t pages)
{
        return pages * sizeof(struct page);
}

static size_t touched_bytes(size_t pages)
{
        return (pages + 63) / 64 * sizeof(struct touched_word);
}

/* The zone of each chunk is written down only if there is a choice. */
static size_t chunk_node_bytes(size_t pages)
{
        return system_nodes() > 1 ? pages / CHUNK_PAGES : 0;
}

/* As much as slabs of 32 byte objects need, a byte for each. */
static size_t metadata_reserve_bytes(size_t pages)
{
        return pages << PAGE_SHIFT >> 5;
}

static size_t table_round(size_t bytes)
{
        return round_up(bytes, (size_t)1 << TABLE_ALIGN_SHIFT);
}

static size_t all_tables_bytes(size_t pages)
{
        return table_round(map_bytes(pages)) + table_round(descriptor_bytes(pages)) +
               table_round(touched_bytes(pages)) + table_round(chunk_node_bytes(pages)) +
               table_round(metadata_reserve_bytes(pages));
}

/* Also the room for aligning the start of the tables and of the heap. */
static size_t reservation_bytes(size_t heap_bytes)
{
        return HEAP_FRONT_BYTES + all_tables_bytes(heap_bytes >> PAGE_SHIFT) + heap_bytes +
               CHUNK_BYTES + ((size_t)1 << TABLE_ALIGN_SHIFT);
}

static size_t whole_chunks(size_t heap_bytes)
{
        return max_of(round_down(heap_bytes, CHUNK_BYTES), HEAP_BYTES_LEAST);
}

/* The program counts on most of a limit of its address space for mappings of its own. */
static size_t fit_limit(size_t heap_bytes, size_t limit)
{
        while (heap_bytes > HEAP_BYTES_LEAST && reservation_bytes(heap_bytes) > limit / 2)
                heap_bytes = heap_bytes / 8 * 7;
        return whole_chunks(heap_bytes);
}

static size_t wanted_heap_bytes(void)
{
        size_t memory = system_memory_bytes();
        size_t bytes = HEAP_BYTES_DEFAULT;

        if (options.reserve != 0)
                return whole_chunks((size_t)min_of(options.reserve, (uint64_t)HEAP_BYTES_MAX));
        while (bytes < HEAP_BYTES_MAX && bytes / 4 < memory)
                bytes *= 2;
        /* Hardened blocks have a reservation of their own. */
        return fit_limit(bytes, options.protect == PROTECT_NONE ? system_address_space_limit()
                                                                : system_address_space_limit() / 2);
}

/*
 * Chunks that each zone may have (option node_limit); page 0 of the first chunk is never handed
 * out.
 */
static uint32_t chunks_most(void)
{
        uint64_t chunks = (options.node_limit + CHUNK_BYTES - 1) / CHUNK_BYTES;

        return options.node_limit ? (uint32_t)min_of(chunks, (uint64_t)UINT32_MAX) : UINT32_MAX;
}

/* The zones' tables; returns where they end. */
static uintptr_t lay_out_zones(uintptr_t start, size_t pages)
{
        for (unsigned int node = 0; node < system_nodes(); node++) {
                zones[node].node = node;
                zones[node].chunks_most = chunks_most();
                zones[node].purge_at = UINT64_MAX;
        }
        frontier.chunk_nodes = system_nodes() > 1 ? (uint8_t *)start : NULL;
        return start + table_round(chunk_node_bytes(pages));
}

static void set_reserved(size_t pages)
{
        size_t bytes = pages << PAGE_SHIFT;

        store_relaxed(&heap.reserved_bytes, bytes);
        store_relaxed(&heap.outside, ~(((uintptr_t)1 << fls(bytes - 1)) - 1));
        store_relaxed(&frontier.reserved, (uint32_t)pages);
        /*
         * The last quarter of the reservation is kept for slabs: large blocks have another place to
         * go when it runs out, slabs have none.
         */
        store_relaxed(&frontier.large_limit, (uint32_t)round_down(pages - pages / 4, CHUNK_PAGES));
}

static void lay_out(uintptr_t start, size_t heap_bytes)
{
        size_t pages = heap_bytes >> PAGE_SHIFT;

        frontier.end = (char *)start + reservation_bytes(heap_bytes);
        start = table_round(start) + HEAP_FRONT_BYTES;
        heap.map = (uint16_t *)start;
        start += table_round(map_bytes(pages));
        heap.pages = (struct page *)start;
        start += table_round(descriptor_bytes(pages));
        frontier.touched_bits = (struct touched_word *)start;
        start += table_round(touched_bytes(pages));
        start = lay_out_zones(start, pages);
        frontier.metadata = (char *)start;
        metadata_set_reserve(frontier.metadata, metadata_reserve_bytes(pages));
        start += table_round(metadata_reserve_bytes(pages));
        frontier.tables_end = (char *)start;
        heap.base = round_up(start, CHUNK_BYTES);
        frontier.heap_end = (char *)heap.base + heap_bytes;
        set_reserved(pages);
}

/*
 * The system does not hold the reservation to a limit that was lowered since. The limit is asked
 * for only once a mapping was refused, and never in a sandbox, which may kill the process for the
 * question.
 */
static size_t later_limit(void)
{
        return system_map_was_refused() && !system_entered_sandbox() ? system_address_space_limit()
                                                                     : SIZE_MAX;
}

bool pages_limit_was_lowered(void)
{
        return later_limit() < load_relaxed(&heap.reserved_bytes);
}

/* Unmaps the end of a part of the reservation. */
static void cut(void *part, size_t old_bytes, size_t new_bytes)
{
        size_t from = round_up(new_bytes, system_page_bytes());
        size_t to = round_up(old_bytes, system_page_bytes());

        if (from < to)
                system_unmap((char *)part + from, to - from);
}

static void cut_metadata(size_t old_bytes, size_t new_bytes)
{
        char *end =
                metadata_cut_reserve(frontier.metadata + round_up(new_bytes, system_page_bytes()));

        cut(frontier.metadata, old_bytes, (size_t)(end - frontier.metadata));
}

static void shrink_locked(size_t old, size_t pages)
{
        set_reserved(pages);
        frontier.table_pages = min_of(frontier.table_pages, (uint32_t)pages);
        cut(heap.map, map_bytes(old), map_bytes(pages));
        cut(heap.pages, descriptor_bytes(old), descriptor_bytes(pages));
        cut(frontier.touched_bits, touched_bytes(old), touched_bytes(pages));
        if (frontier.chunk_nodes)
                cut(frontier.chunk_nodes, chunk_node_bytes(old), chunk_node_bytes(pages));
        cut_metadata(metadata_reserve_bytes(old), metadata_reserve_bytes(pages));
        cut((void *)heap.base, old << PAGE_SHIFT, pages << PAGE_SHIFT);
}

void pages_fit_limit(size_t limit)
{
        size_t old, pages;

        lock_take(&frontier.lock);
        old = frontier.reserved;
        pages = max_of(fit_limit(old << PAGE_SHIFT, limit) >> PAGE_SHIFT, (size_t)frontier.pages);
        if (pages < old)
                shrink_locked(old, pages);
        lock_drop(&frontier.lock);
        if (pages < old) {
                page_extras_fit(pages);
                pages_show();
        }
}

/* Bytes that stay mapped for a heap of @heap_bytes when the unused parts are given back. */
static size_t needed_bytes(size_t heap_bytes)
{
        return HEAP_FRONT_BYTES + all_tables_bytes(heap_bytes >> PAGE_SHIFT) + heap_bytes;
}

static void unmap_between(char *from, char *to)
{
        from = (char *)round_up((uintptr_t)from, system_page_bytes());
        if (from < to)
                system_unmap(from, (size_t)(to - from));
}

/* Parts of the reservation that only serve to align others. */
static void unused_give_back_locked(void)
{
        unmap_between(frontier.tables_end, (char *)heap.base);
        unmap_between(frontier.heap_end, frontier.end);
        frontier.tables_end = (char *)heap.base;
        frontier.end = frontier.heap_end;
}

bool pages_fit_room(size_t room)
{
        size_t old, bytes, least;
        bool fits;

        lock_take(&frontier.lock);
        old = frontier.reserved;
        bytes = old << PAGE_SHIFT;
        least = max_of((size_t)frontier.pages << PAGE_SHIFT, CHUNK_BYTES);
        fits = needed_bytes(least) <= room;
        while (fits && bytes > least && needed_bytes(bytes) > room)
                bytes = max_of(round_down(bytes / 8 * 7, CHUNK_BYTES), least);
        if (fits)
                unused_give_back_locked();
        if (bytes >> PAGE_SHIFT < old)
                shrink_locked(old, bytes >> PAGE_SHIFT);
        lock_drop(&frontier.lock);
        if (bytes >> PAGE_SHIFT < old) {
                page_extras_fit(bytes >> PAGE_SHIFT);
                pages_show();
        }
        return fits;
}

size_t pages_reserved_bytes(void)
{
        return reservation_bytes(load_relaxed(&heap.reserved_bytes)) + page_extras_reserved_bytes();
}

/* From the end of a part's accessible bytes to the beginning of the next part. */
static void unlock_between(const void *part, size_t accessible_bytes, const void *next)
{
        uintptr_t from = round_up((uintptr_t)part + accessible_bytes, system_page_bytes());

        if (from < (uintptr_t)next)
                system_unlock((void *)from, (uintptr_t)next - from);
}

void pages_unlock(void)
{
        const char *zones_table = (const char *)frontier.chunk_nodes;
        size_t pages;

        lock_take(&frontier.lock);
        pages = frontier.table_pages;
        unlock_between(heap.map, map_bytes(pages), heap.pages);
        unlock_between(heap.pages, descriptor_bytes(pages), frontier.touched_bits);
        unlock_between(frontier.touched_bits, touched_bytes(pages),
                       zones_table ? zones_table : frontier.metadata);
        if (zones_table)
                unlock_between(zones_table, chunk_node_bytes(pages), frontier.metadata);
        unlock_between((void *)heap.base, (size_t)frontier.pages << PAGE_SHIFT,
                       (void *)(heap.base + ((uintptr_t)frontier.reserved << PAGE_SHIFT)));
        unlock_between(frontier.tables_end, 0, (void *)heap.base);
        unlock_between(frontier.heap_end, 0, frontier.end);
        lock_drop(&frontier.lock);
        metadata_unlock_reserve();
        page_extras_unlock();
}

bool pages_init(void)
{
        size_t heap_bytes = wanted_heap_bytes();
        size_t least = min_of(heap_bytes, HEAP_BYTES_FLOOR);

        /* A nearly used-up address space may still have room for the least of all. */
        if (options.reserve == 0)
                least = HEAP_BYTES_LEAST;
        while (heap_bytes >= least) {
                void *start = system_reserve(reservation_bytes(heap_bytes));

                if (start) {
                        /*
                         * Laid out only if it stays: address space that is given back may go to
                         * another thread at once.
                         */
                        if (system_commit((void *)table_round((uintptr_t)start),
                                          HEAP_FRONT_BYTES)) {
                                lay_out((uintptr_t)start, heap_bytes);
                                return true;
                        }
                        /* The next call of the process tries anew. */
                        system_unmap(start, reservation_bytes(heap_bytes));
                        return false;
                }
                heap_bytes = round_down(heap_bytes / 2, CHUNK_BYTES);
        }
        return false;
}

/* Commits a table from its accessible end to its new end. */
static bool table_commit(void *table, size_t old_bytes, size_t new_bytes)
{
        size_t from = round_up(old_bytes, system_page_bytes());
        size_t to = round_up(new_bytes, system_page_bytes());

        return from >= to || system_commit((char *)table + from, to - from);
}

static bool tables_commit_locked(size_t pages)
{
        size_t old = frontier.table_pages;

        /* Committing a range again does no harm, so a refusal half way needs no undoing. */
        if (!table_commit(heap.map, map_bytes(old), map_bytes(pages)) ||
            !table_commit(heap.pages, descriptor_bytes(old), descriptor_bytes(pages)) ||
            !table_commit(frontier.touched_bits, touched_bytes(old), touched_bytes(pages)) ||
            !table_commit(frontier.chunk_nodes, chunk_node_bytes(old), chunk_node_bytes(pages)))
                return false;
        frontier.table_pages = (uint32_t)pages;
        return true;
}

static bool tables_grow_locked(size_t pages)
{
        size_t ahead = min_of(round_up(pages, TABLE_STEP_PAGES), (size_t)frontier.reserved);

        if (pages <= frontier.table_pages)
                return true;
        return tables_commit_locked(ahead) || tables_commit_locked(pages);
}

static bool refused_locked(void)
{
        /*
         * Without its first chunk the heap gives nothing, and few programs look at what malloc says
         * that early: they end by a signal, or with a line that names their own small request alone.
         */
        if (frontier.pages == 0 && frontier.refusals == 0)
                message("no memory for the first %zu KiB of the heap; expected higher limits of "
                        "memory (ulimit -d, -l, -v)",
                        CHUNK_BYTES >> 10);
        store_relaxed(&frontier.refusals, frontier.refusals + 1);
        return false;
}

/*
 * A system that makes huge pages wherever it can (transparent_hugepage/enabled is "always") has 2 MiB
 * resident for the first page that is touched, which is most of a small heap. So by default the
 * beginning of the heap keeps to small pages, and what comes behind is left to the system
 * (decisions/0030).
 */
static void advise_pages(void *start, size_t offset, size_t bytes)
{
        if (options.thp == THP_ALWAYS)
                system_make_pages_huge(start, bytes);
        else if (options.thp == THP_NEVER)
                system_keep_pages_small(start, bytes);
        else if (offset < SMALL_PAGES_BYTES)
                system_keep_pages_small(start, min_of(bytes, SMALL_PAGES_BYTES - offset));
}

bool frontier_grow_locked(struct zone *zone, size_t chunks, uint32_t limit)
{
        uint32_t old = frontier.pages;
        size_t pages = chunks * CHUNK_PAGES;
        uint32_t aside;
        void *start = (void *)(heap.base + ((uintptr_t)old << PAGE_SHIFT));

        zone_locked_check(zone);
        debug_check(lock_is_held(&frontier.lock));
        limit = min_of(limit, frontier.reserved);
        if (old >= limit || pages > limit - old || chunks > zone->chunks_most - zone->chunks)
                return false;
        if ((old + pages) << PAGE_SHIFT > later_limit())
                return refused_locked();
        if (!tables_grow_locked(old + pages))
                return refused_locked();
        /* First, for commits of a process that has locked its memory touch all of it. */
        if (!zone->bind_error)
                zone->bind_error = system_bind(start, pages << PAGE_SHIFT, zone->node);
        if (!system_commit(start, pages << PAGE_SHIFT))
                return refused_locked();
        advise_pages(start, (size_t)old << PAGE_SHIFT, pages << PAGE_SHIFT);
        PROBE2(pages_commit, start, pages << PAGE_SHIFT);

        if (frontier.chunk_nodes)
                memset(frontier.chunk_nodes + old / CHUNK_PAGES, (int)zone->node, chunks);
        add_owned(&zone->chunks, (uint32_t)chunks); /* pages_held reads it without the lock */
        /* Pairs with run_from, which asks for the zone of pages below it. */
        store_release(&frontier.pages, old + (uint32_t)pages);
        /* A thread that sees the new size may read map and descriptors: heap_contains. */
        store_release(&heap.accessible_bytes, (size_t)frontier.pages << PAGE_SHIFT);
        /* Page 0 is put aside for good, so that 0 can mean "none" in links. */
        aside = old == 0;
        range_add_locked(zone, old + aside, pages - aside, 0);
        return true;
}

bool zone_grow_locked(struct zone *zone, size_t chunks, uint32_t limit)
{
        size_t ahead = 1 + (frontier.chunk_nodes
                                    ? zone->chunks / ZONE_STEP
                                    : min_of(zone->chunks / HEAP_STEP, (uint32_t)AHEAD_CHUNKS_MAX));

        /* Locked memory is resident at once. */
        if (system_locks_memory())
                ahead = 1;
        return (ahead > chunks && frontier_grow_locked(zone, ahead, limit)) ||
               frontier_grow_locked(zone, chunks, limit);
}
