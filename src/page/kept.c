/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A few cells with a block each; threads spread over them.
 *
 * KEPT-1  A cell's word is 0, or names a block that has no other owner: its pages are in no run,
 *         the kind of the first is PAGE_UNUSED, and its zone counts it as in use. A thread that
 *         takes the word away by compare-and-swap gets the block. A word that comes back meanwhile
 *         names a block that is kept again, so it does no harm that the word is equal. Release and
 *         acquire: writes to the block and its descriptor lie before the writes of the next owner.
 * KEPT-2  Kept blocks do not raise the peak, nor do they make a request fail, and a thread that
 *         looks at all free pages sees theirs. For this a zone frees its kept blocks before it
 *         takes pages that would have to be touched anew, before a block grows in place, and before
 *         its free pages are counted or purged. They count as freed at that moment: purging looks
 *         several times in the delay.
 *
 * With purge_delay=0, where memory goes back as it is freed, nothing is kept.
 */
#include "page/kept.h"

#include "base/options.h"
#include "machine/thread.h"

enum {
        CELLS = 16,
        PAGES_MOST = 64, /* longer blocks hold room that others need (0022) */
};
_Static_assert((int)CELLS == (int)REGISTRY_KEPT, "others see each cell");

static struct cell {
        _Alignas(64) uint64_t word; /* pages << 32 | page number of the first */
        uint64_t handed_out;        /* blocks taken from this cell, cumulative */
} cells[CELLS];

static struct cell *own_cell(void)
{
        return &cells[thread_choice(CELLS)];
}

/* Shows a cell's block to other processes, whichever thread changed it. */
static void cell_show(const struct cell *cell)
{
        struct registry_head *head;

        fence_behind_change();
        head = registry_head_shown();
        if (head)
                registry_show(&head->kept[cell - cells].block, &cell->word);
}

static uint32_t word_first(uint64_t word)
{
        return (uint32_t)word;
}

static size_t word_pages(uint64_t word)
{
        return word >> 32;
}

struct page *kept_take(size_t pages, size_t align_pages)
{
        struct cell *cell = own_cell();
        uint64_t word = load_relaxed(&cell->word);

        if (word_pages(word) != pages || word_first(word) % align_pages)
                return NULL;
        /* Pairs with the swap in kept_put. */
        if (!compare_swap_acquire(&cell->word, &word, 0))
                return NULL;
        add_relaxed(&cell->handed_out, 1);
        cell_show(cell);
        return page_at(word_first(word));
}

struct page *kept_put(struct page *page, size_t *pages)
{
        struct cell *cell = own_cell();
        uint64_t before = load_relaxed(&cell->word);

        debug_check(load_relaxed(&page->kind) == PAGE_UNUSED);
        if (*pages > PAGES_MOST || options.purge_delay == 0)
                return page;
        /* Release and acquire (KEPT-1): pairs with kept_take, kept_free_locked and itself. */
        while (!compare_swap(&cell->word, &before, (uint64_t)*pages << 32 | page_number(page)))
                ;
        cell_show(cell);
        *pages = word_pages(before);
        return before ? page_at(word_first(before)) : NULL;
}

bool kept_free_locked(struct zone *zone)
{
        bool any = false;

        zone_locked_check(zone);
        for (unsigned int i = 0; i < CELLS; i++) {
                uint64_t word = load_relaxed(&cells[i].word);

                /* Acquire: pairs with the swap in kept_put. */
                if (!word || zone_of(word_first(word)) != zone ||
                    !compare_swap_acquire(&cells[i].word, &word, 0))
                        continue;
                cell_show(&cells[i]);
                range_add_locked(zone, word_first(word), word_pages(word), system_time_ms());
                add_owned(&zone->large_blocks, -(size_t)1);
                add_owned(&zone->large_pages, -word_pages(word));
                any = true;
        }
        return any;
}

size_t kept_handed_out(void)
{
        size_t count = 0;

        for (unsigned int i = 0; i < CELLS; i++)
                count += load_relaxed(&cells[i].handed_out);
        return count;
}
