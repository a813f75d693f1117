/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The lists of pages with free units, one for each range of block sizes (7.4).
 *
 * Allocation and free choose the list by the same size, so a page only ever holds blocks of one
 * range (S7-30), and small blocks do not cut up the room that large ones need.
 */
#include "slob/slob.h"

#include <string.h>

struct page_list slob_lists[SLOB_LISTS_MAX];
unsigned int slob_list_count;

static uint32_t limits[SLOB_LISTS_MAX - 1]; /* list n holds blocks of less than limits[n] bytes */

/*
 * The mail that introduced the split put blocks of more than 300 bytes on the second list; the
 * version that was merged puts blocks of 256 bytes or more on its second. One break means the
 * former, several the latter.
 */
void slob_lists_init(void)
{
        unsigned int breaks = options.slob_breaks.count;

        for (unsigned int i = 0; i < breaks; i++)
                limits[i] = options.slob_breaks.sizes[i] + (breaks == 1);
        memset(slob_lists, 0, sizeof(slob_lists));
        slob_list_count = breaks + 1;
}

unsigned int slob_list_of(uint32_t bytes)
{
        unsigned int number = 0;

        while (number + 1 < slob_list_count && bytes >= limits[number])
                number++;
        return number;
}

/* New pages and pages that were full go to the head (S7-12, S7-21). */
void slob_list_add_locked(struct page *page)
{
        page_list_add_head(&slob_lists[page->list], page);
        page->node_partial = 1;
}

void slob_list_remove_locked(struct page *page)
{
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
