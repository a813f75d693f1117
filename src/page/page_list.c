/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Lists of blocks through their descriptors. Links are page numbers, which halves them; 0
 * ends a list because page 0 is never handed out.
 */
#include "machine/message.h"
#include "page/page.h"

static void link_between(struct page_list *list, struct page *page, uint32_t prev, uint32_t next)
{
        uint32_t number = page_number(page);

        debug_check(number != 0);
        page->prev = prev;
        page->next = next;
        if (prev)
                page_at(prev)->next = number;
        else
                list->first = number;
        if (next)
                page_at(next)->prev = number;
        else
                list->last = number;
        /* The length is read without the lock as a hint. */
        add_owned(&list->length, 1);
}

void page_list_add_head(struct page_list *list, struct page *page)
{
        link_between(list, page, 0, list->first);
}

void page_list_add_tail(struct page_list *list, struct page *page)
{
        link_between(list, page, list->last, 0);
}

void page_list_remove(struct page_list *list, struct page *page)
{
        uint32_t number = page_number(page);

        debug_check(page->prev ? page_at(page->prev)->next == number : list->first == number);
        debug_check(page->next ? page_at(page->next)->prev == number : list->last == number);
        (void)number;
        if (page->prev)
                page_at(page->prev)->next = page->next;
        else
                list->first = page->next;
        if (page->next)
                page_at(page->next)->prev = page->prev;
        else
                list->last = page->prev;
        page->prev = 0;
        page->next = 0;
        add_owned(&list->length, (size_t)-1);
}
