/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * SLOB's figures as the mail and its successor printed them: gathered under slob_lock, then
 * written.
 */
#include "engines/slob/statistics.h"

#include "machine/message.h"
#include "page/large.h"
#include "engines/slob/block.h"

#include <stdio.h>
#include <string.h>

static void count_page(const struct page *page, struct slob_list_figures *figures)
{
        figures->pages++;
        figures->unused += page_state(page).free_units * SLOB_UNIT;
        for (uint32_t at = page_state(page).first; at != PAGE_UNITS;) {
                struct free_block block = block_read(page, at);

                figures->fragments++;
                figures->biggest = max_of(figures->biggest, (uint64_t)block.units * SLOB_UNIT);
                at = block.next;
        }
}

void slob_list_figures_locked(unsigned int list, struct slob_list_figures *figures)
{
        *figures = (struct slob_list_figures){0};
        for (struct page *page = page_list_first(&slob_lists[list]); page;
             page = page_list_next(page))
                count_page(page, figures);
}

/*
 * Large blocks belong to no engine: sizes that no size class serves, and SLOB's kmalloc from a
 * page on. They count as the kernel's requests to the page allocator do, also the large blocks of
 * other engines' caches.
 */
void slob_statistics(struct slob_statistics *statistics)
{
        struct large_counts large;
        uint64_t listed = 0;

        memset(statistics, 0, sizeof(*statistics));
        lock_take(&slob_lock);
        statistics->lists = slob_list_count;
        statistics->counts = slob_counts;
        for (unsigned int list = 0; list < slob_list_count; list++) {
                slob_list_figures_locked(list, &statistics->list[list]);
                listed += statistics->list[list].pages;
        }
        lock_drop(&slob_lock);
        large_count(&large);
        statistics->full_pages = statistics->counts.pages - listed;
        statistics->big = statistics->counts.big_objects + large.handed_out;
        statistics->big_pages =
                statistics->counts.big_pages + ((large.bytes + large.huge_bytes) >> PAGE_SHIFT);
        statistics->total = statistics->counts.pages + statistics->big_pages;
        statistics->used = pages_for(statistics->counts.allocated) + statistics->big_pages;
}

/* The mail's names, or its successor's, as far as they name the lists. */
static const char *list_name(unsigned int lists, unsigned int list)
{
        static const char *const names[][3] = {{"counted"},
                                               {"small list", "big list"},
                                               {"small list", "medium list", "large list"}};

        return lists <= 3 ? names[lists - 1][list] : "list";
}

void slob_report(int file)
{
        struct slob_statistics now;
        const struct slob_counts *counts = &now.counts;

        if (!slob_list_count)
                return;
        slob_statistics(&now);
        message_print(file, "# slob: unused, biggest, allocated and overhead are bytes\n");
        for (unsigned int i = 0; i < now.lists; i++)
                message_print(file, "# slob: %s pages %lu unused %lu biggest %lu fragments %lu\n",
                              list_name(now.lists, i), now.list[i].pages, now.list[i].unused,
                              now.list[i].biggest, now.list[i].fragments);
        message_print(
                file,
                "# slob: slob pages %lu full %lu allocs %lu frees %lu active %lu allocated %lu\n",
                counts->pages, now.full_pages, counts->allocs, counts->frees,
                counts->allocs - counts->frees, counts->allocated);
        message_print(file, "# slob: page scans %lu block scans %lu\n", counts->page_scans,
                      counts->block_scans);
        message_print(file, "# slob: kmallocs %lu active %lu allocated %lu overhead %lu\n",
                      counts->kmallocs, counts->kmallocs - counts->kmalloc_frees,
                      counts->kmalloc_allocated, counts->kmalloc_overhead);
        message_print(file, "# slob: bigpages %lu active %lu\n", now.big, now.big_pages);
        message_print(file, "# slob: total %lu used %lu\n", now.total, now.used);
}
