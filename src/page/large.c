/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Large blocks from the heap, and the choice between heap and huge mappings.
 *
 * LARGE-1  The kind of the first page is PAGE_LARGE from the moment the block is handed out
 *          until it is freed; a compare-and-swap ends it, so the second of two frees fails. Any
 *          address may be asked about: its descriptor is looked at only if the heap holds it and it
 *          is the start of a page.
 *
 * The threads that pass the pointer on order everything but the counters.
 */
#include "page/large.h"

#include "page/cleared.h"

#include "machine/probe.h"
#include "page/guarded.h"
#include "page/huge.h"
#include "page/kept.h"
#include "page/purge.h"
#include "page/reclaim.h"

#include <string.h>

/* The descriptor of a large block's start, or NULL. */
static struct page *large_page(const void *address)
{
        struct page *page;

        if (!heap_contains(address) || ((uintptr_t)address & (PAGE_SIZE - 1)) != 0)
                return NULL;
        page = page_at(address_page(address));
        return load_acquire(&page->kind) == PAGE_LARGE ? page : NULL;
}

static void *heap_alloc(size_t pages, size_t align_pages, bool zero)
{
        struct page *page = kept_take(pages, align_pages);
        size_t fresh = 0;

        if (page && zero)
                memset(page_address(page), 0, pages << PAGE_SHIFT);
        if (!page)
                page = zero ? pages_alloc_zeroed(pages, align_pages)
                            : pages_alloc_exact(pages, align_pages, &fresh);
        if (!page)
                return NULL;
        pages_purge_in_return(page, fresh);
        page->state = pages;
        page->growth = GROWTH_NONE;
        /* Pairs with the load in large_page when a bad pointer is looked up. */
        store_release(&page->kind, PAGE_LARGE);
        return page_address(page);
}

void *large_alloc(size_t bytes, size_t align, bool zero)
{
        size_t align_pages = max_of(align >> PAGE_SHIFT, (size_t)1);
        size_t request = max_of(bytes, (size_t)1);
        void *block = NULL;

        if (bytes > PTRDIFF_MAX || align > PTRDIFF_MAX)
                return NULL;
        bytes = round_up(max_of(bytes, (size_t)1), PAGE_SIZE);
        if (bytes < HUGE_BYTES && align_pages <= CHUNK_PAGES && likely(!large_guarded))
                block = heap_alloc(bytes >> PAGE_SHIFT, align_pages, zero);
        if (!block)
                block = huge_alloc(bytes, align, zero);
        if (unlikely(large_guarded) && block)
                huge_note_request(block, request);
        if (!block && align_pages <= CHUNK_PAGES && (pages_limit_was_lowered() || large_guarded))
                block = heap_alloc(bytes >> PAGE_SHIFT, align_pages, zero);
        if (!block)
                return NULL;
        PROBE2(large_alloc, block, bytes);
        return block;
}

size_t large_size(const void *address)
{
        const struct page *page = large_page(address);

        if (page)
                return page->state << PAGE_SHIFT;
        return heap_contains(address) ? 0 : huge_size(address);
}

bool large_free(void *address)
{
        struct page *page = large_page(address);
        uint8_t expected = PAGE_LARGE;
        size_t pages;

        reclaim_ask();
        if (!page)
                return !heap_contains(address) && huge_free(address);
        pages = page->state;
        if (!compare_swap_acquire(&page->kind, &expected, PAGE_UNUSED))
                return false;
        cleared_freed(address, pages << PAGE_SHIFT);
        PROBE2(large_free, address, pages << PAGE_SHIFT);
        page = kept_put(page, &pages);
        if (page)
                pages_free_exact(page, pages);
        return true;
}

void *large_resize(void *address, size_t bytes)
{
        struct page *page = large_page(address);
        size_t old_pages, pages;

        if (bytes > PTRDIFF_MAX)
                return NULL;
        if (!page)
                return heap_contains(address) ? NULL : huge_resize(address, bytes);
        old_pages = page->state;
        pages = max_of(pages_for(bytes), (size_t)1);
        cleared_resized(address, old_pages << PAGE_SHIFT, pages << PAGE_SHIFT);
        if ((pages > old_pages && pages << PAGE_SHIFT >= HUGE_BYTES) ||
            !pages_resize(page, old_pages, pages))
                return NULL;
        page->state = pages;
        /* It has exactly so many pages, so there is no room left. */
        page->growth = min_of(page->growth, (uint32_t)GROWTH_MOVED);
        return address;
}

enum large_growth large_growth(const void *block)
{
        const struct page *page = large_page(block);

        return page ? page->growth : GROWTH_NONE;
}

void large_set_growth(void *block, enum large_growth growth)
{
        struct page *page = large_page(block);

        if (page)
                page->growth = growth;
}

void large_count(struct large_counts *counts)
{
        struct page_counts pages;

        pages_count(&pages);
        huge_count(counts);
        counts->handed_out = pages.large_handed_out + kept_handed_out() + counts->huge_handed_out;
        counts->blocks = pages.large_blocks;
        counts->bytes = pages.large_pages << PAGE_SHIFT;
}
