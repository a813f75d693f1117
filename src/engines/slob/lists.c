/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The lists of pages with free units, a list for each range of block sizes (S7.4).
 *
 * Allocation and free choose the list by equal sizes, so a page only ever holds blocks of a single
 * range (S7-30), and small blocks do not cut up the room that large blocks need.
 */
#include "engines/slob/block.h"

#include <string.h>

struct page_list slob_lists[SLOB_LISTS_MAX];
unsigned int slob_list_count;

static uint32_t limits[SLOB_LISTS_MAX - 1]; /* list n holds blocks of less than limits[n] bytes */

/*
 * For each list, by a number of units: how many pages have a room of that many units, for either
 * kind of block (block.h), and how many free blocks there are in pages with that many free units.
 * So a search that no page can serve ends without a look at them, and still adds the counts of that
 * look.
 */
static KMEM_SPARSE struct {
        uint32_t room[PAGE_UNITS + 1];
        uint32_t malloc_room[PAGE_UNITS + 1];
        uint32_t fragments[PAGE_UNITS + 1];
} figures[SLOB_LISTS_MAX];

/*
 * The mail that introduced the split put blocks of more than 300 bytes on the second list; the
 * version that was merged puts blocks of 256 bytes or more on its second list. A single break means
 * the mail's rule, several mean the merged rule.
 */
void slob_lists_init(void)
{
        unsigned int breaks = options.slob_breaks.count;

        for (unsigned int i = 0; i < breaks; i++)
                limits[i] = options.slob_breaks.sizes[i] + (breaks == 1);
        memset(slob_lists, 0, sizeof(slob_lists));
        /* Only what lists of an earlier start have written: all of it would be 216 KiB resident. */
        memset(figures, 0, slob_list_count * sizeof(figures[0]));
        slob_trees_init();
        slob_list_count = breaks + 1;
}

unsigned int slob_list_of(uint32_t bytes)
{
        unsigned int number = 0;

        while (number + 1 < slob_list_count && bytes >= limits[number])
                number++;
        return number;
}

void slob_list_count_locked(const struct page *page, int change)
{
        struct page_state state = page_state(page);

        figures[page->list].room[state.room] += (uint32_t)change;
        figures[page->list].malloc_room[state.malloc_room] += (uint32_t)change;
        figures[page->list].fragments[state.free_units] += (uint32_t)change * state.fragments;
}

static uint64_t sum_from(const uint32_t *figure, uint32_t units)
{
        uint64_t sum = 0;

        for (; units <= PAGE_UNITS; units++)
                sum += figure[units];
        return sum;
}

bool slob_list_may_serve_locked(unsigned int list, const struct slob_request *request)
{
        const uint32_t *rooms =
                slob_is_of_malloc(request) ? figures[list].malloc_room : figures[list].room;

        return sum_from(rooms, slob_units(request->bytes)) != 0;
}

uint64_t slob_list_fragments_locked(unsigned int list, uint32_t units)
{
        return sum_from(figures[list].fragments, units);
}

/* New pages and pages that were full go to the head (S7-12, S7-21). */
void slob_list_add_locked(struct page *page)
{
        slob_tree_add_locked(page, page_list_first(&slob_lists[page->list]));
        page_list_add_head(&slob_lists[page->list], page);
        page->node_partial = 1;
        slob_list_count_locked(page, 1);
}

void slob_list_remove_locked(struct page *page)
{
        slob_list_count_locked(page, -1);
        slob_tree_remove_locked(page);
        page_list_remove(&slob_lists[page->list], page);
        page->node_partial = 0;
}

void slob_list_rotate_locked(struct page_list *list, struct page *page)
{
        uint32_t first = page_number(page);

        if (list->first == first)
                return;
        page_at(list->last)->next = list->first;
        page_at(list->first)->prev = list->last;
        list->first = first;
        list->last = page->prev;
        page_at(list->last)->next = 0;
        page->prev = 0;
}
