/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The table of page/extra.h: address space for a word per page, accessible as far as pages need it.
 */
#include "page/extra.h"

#include "base/metadata.h"
#include "machine/system.h"

struct lock extra_lock;
uintptr_t *extra_table;
uint32_t extra_pages;

/* 256 KiB of table, a multiple of every system page size, serve 128 MiB of heap. */
enum { STEP_PAGES = 32 * CHUNK_PAGES };

static size_t reserved; /* pages the table has address space for; under extra_lock */

static size_t table_bytes(size_t pages)
{
        return pages * sizeof(*extra_table);
}

static bool table_grow_locked(uint32_t number)
{
        size_t old = extra_pages;
        size_t wanted = round_up((size_t)number + 1, STEP_PAGES);

        if (!extra_table) {
                reserved = round_up(load_relaxed(&heap.reserved_bytes) >> PAGE_SHIFT, STEP_PAGES);
                extra_table = system_reserve(table_bytes(reserved));
                if (extra_table)
                        system_keep_pages_small(extra_table, table_bytes(reserved));
        }
        if (!extra_table ||
            !system_commit(extra_table + old, table_bytes(wanted) - table_bytes(old)))
                return false;
        /* Release: the table is accessible so far. Partners: the acquires of extra_pages. */
        store_release(&extra_pages, (uint32_t)wanted);
        return true;
}

uintptr_t *page_extra_make(uint32_t number)
{
        bool there = number < load_acquire(&extra_pages);

        if (unlikely(!there)) {
                lock_take(&extra_lock);
                there = number < extra_pages || table_grow_locked(number);
                lock_drop(&extra_lock);
        }
        return there ? &extra_table[number] : NULL;
}

void page_extras_fit(size_t pages)
{
        lock_take(&extra_lock);
        pages = max_of(round_up(pages, STEP_PAGES), (size_t)extra_pages);
        if (extra_table && pages < reserved) {
                system_unmap(extra_table + pages, table_bytes(reserved - pages));
                reserved = pages;
        }
        lock_drop(&extra_lock);
}

size_t page_extras_reserved_bytes(void)
{
        size_t bytes;

        lock_take(&extra_lock);
        bytes = extra_table ? table_bytes(reserved) : 0;
        lock_drop(&extra_lock);
        return bytes;
}

void page_extras_unlock(void)
{
        lock_take(&extra_lock);
        if (extra_table && extra_pages < reserved)
                system_unlock(extra_table + extra_pages, table_bytes(reserved - extra_pages));
        lock_drop(&extra_lock);
}

void page_extras_drop(uint32_t first, size_t count)
{
        size_t end = min_of(first + count, (size_t)load_acquire(&extra_pages));

        for (size_t number = first; number < end; number++) {
                uintptr_t word = load_relaxed(&extra_table[number]);

                if (word && !(word & 1))
                        metadata_free((void *)word, *(uint64_t *)word);
                store_relaxed(&extra_table[number], 0);
        }
}
