/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Blocks of SLOB pages: which page serves a request, and pages that come and go (S7-10 to S7-22).
 */
#include "engines/slob/block.h"
#include "engines/slob/marks.h"

#include "base/metadata.h"

/* The search walks this many first pages of a list, which is quicker than the tree. */
enum { LOOKED_AT = 64 };

struct lock slob_lock;
struct slob_counts slob_counts;

/*
 * A page with a single free block, on no list yet. Made without the lock (S7-12): no other thread
 * knows it before it is on a list.
 */
static struct page *page_new(unsigned int list)
{
        struct slob_marks *marks = metadata_alloc(sizeof(*marks));
        const struct page_state whole = {
                .free_units = PAGE_UNITS,
                .first = 0,
                .fragments = 1,
                .room = PAGE_UNITS,
                .malloc_room = PAGE_UNITS,
        };
        struct page *page;

        if (!marks)
                return NULL;
        page = pages_alloc(0, NODE_ANY, NULL);
        if (!page) {
                metadata_free(marks, sizeof(*marks));
                return NULL;
        }
        page->table = marks;
        page->list = (uint16_t)list;
        page_set_state(page, whole);
        block_write(page, 0, PAGE_UNITS, PAGE_UNITS);
        /* Release: pairs with the acquire in slob_page_locked (SLOB-4). */
        store_release(&page->kind, (uint8_t)PAGE_SLAB);
        page_map_set(page, 1, (uint16_t)slob_shared.pair_offset);
        return page;
}

void slob_page_free(struct page *page)
{
        metadata_free(page->table, sizeof(struct slob_marks));
        page->table = NULL;
        pages_free(page, 1);
}

/*
 * Next fit between pages (S7-11): the page that served comes first in the next search. If it is
 * full now, 2.6.24 continues with the page behind it, later kernels leave the list as it is.
 * @prev is the page that was in front of it, NULL if it was the first.
 */
static void rotate_after(struct page_list *list, struct page *page, struct page *prev)
{
        if (page->node_partial)
                slob_list_rotate_locked(list, page);
        else if (options.slob_compat == SLOB_COMPAT_2_6_24 && prev && prev->next)
                slob_list_rotate_locked(list, page_at(prev->next));
}

/* How many pages of the list come before @page. */
static size_t pages_before(const struct page_list *list, const struct page *page)
{
        size_t first = slob_tree_place_locked(page_list_first(list));
        size_t place = slob_tree_place_locked(page);

        return place >= first ? place - first : place + list->length - first;
}

/*
 * The next page behind @page, in the list's order, that has @units free units; NULL: there is none.
 * The tree begins elsewhere than the list (TREE-1): *turned becomes true where the search goes on
 * at the tree's begin.
 */
static struct page *next_page(const struct page_list *list, struct page *page, uint32_t units,
                              bool *turned)
{
        const struct page *first = page_list_first(list);

        page = slob_tree_next_locked(page, units);
        if (!page && !*turned) {
                *turned = true;
                page = slob_tree_first_locked(first->list, units);
        }
        if (page && *turned && slob_tree_place_locked(page) >= slob_tree_place_locked(first))
                page = NULL;
        return page;
}

/*
 * Looks at @count pages of the list, from *page on; true: *page serves. Else *page is the page to
 * look at next, or NULL.
 */
static bool look_locked(struct page **page, size_t count, const struct slob_request *request,
                        uint32_t *at)
{
        uint32_t units = slob_units(request->bytes);

        for (; *page && count; count--) {
                if (page_state(*page).free_units >= units) {
                        *at = slob_take_locked(*page, request);
                        if (*at != PAGE_UNITS)
                                return true;
                }
                slob_counts.page_scans++;
                *page = page_list_next(*page);
        }
        return false;
}

/*
 * As look_locked, but with the tree: looks only at pages that have enough free units, from *page
 * on. Yet their units may lie in blocks that are too small. After LOOKED_AT pages of that kind the
 * list is quicker: then *page is the page to look at next.
 */
static bool search_locked(const struct page_list *list, struct page **page,
                          const struct slob_request *request, uint32_t *at)
{
        uint32_t units = slob_units(request->bytes);
        size_t before = pages_before(list, *page);
        bool turned = slob_tree_place_locked(*page) < slob_tree_place_locked(page_list_first(list));
        struct page *found = *page;

        if (page_state(found).free_units < units)
                found = next_page(list, found, units, &turned);
        for (size_t tries = 0; found && tries < LOOKED_AT; tries++) {
                *at = slob_take_locked(found, request);
                if (*at != PAGE_UNITS)
                        break;
                found = next_page(list, found, units, &turned);
        }
        slob_counts.page_scans += (found ? pages_before(list, found) : list->length) - before;
        *page = found;
        return found && *at != PAGE_UNITS;
}

/*
 * A page of the list that has room, with the block at *at already taken out, or NULL. Pages that
 * the search skips count as looked at, and so do their blocks if they have enough free units.
 */
static struct page *find_locked(const struct page_list *list, const struct slob_request *request,
                                uint32_t *at)
{
        uint64_t block_scans = slob_counts.block_scans;
        struct page *page = page_list_first(list);

        if (look_locked(&page, LOOKED_AT, request, at))
                return page;
        if (!page)
                return NULL;
        if (!slob_list_may_serve_locked(page->list, request)) {
                uint32_t units = slob_units(request->bytes);

                slob_counts.page_scans += list->length - LOOKED_AT;
                slob_counts.block_scans =
                        block_scans + slob_list_fragments_locked(page->list, units);
                return NULL;
        }
        if (search_locked(list, &page, request, at) || look_locked(&page, SIZE_MAX, request, at))
                return page;
        return NULL;
}

/* As find_locked, and updates the list: a full page leaves it, and it rotates. */
static struct page *list_take_locked(struct page_list *list, const struct slob_request *request,
                                     uint32_t *at)
{
        struct page *page = find_locked(list, request, at);
        struct page *prev;

        if (!page)
                return NULL;
        prev = page->prev ? page_at(page->prev) : NULL;
        if (!page_state(page).free_units)
                slob_list_remove_locked(page);
        rotate_after(list, page, prev);
        return page;
}

/* Takes the block from a new page. The caller has made sure that the request fits in a page. */
static void take_from_new_locked(struct page *page, const struct slob_request *request,
                                 uint32_t *at)
{
        slob_count_pages(1);
        *at = slob_take_locked(page, request);
        check_or_die(*at != PAGE_UNITS);
        if (page_state(page).free_units)
                slob_list_add_locked(page);
}

static void account_alloc(const struct slob_request *request)
{
        uint32_t bytes = slob_units(request->bytes) * SLOB_UNIT;

        slob_counts.allocs++;
        slob_counts.allocated += bytes;
        slob_count_taken(request->owner);
        request->owner->bytes += bytes;
        if (request->header) {
                uint32_t asked = request->bytes - request->header;

                slob_counts.kmallocs++;
                slob_counts.kmalloc_allocated += asked;
                slob_counts.kmalloc_overhead += bytes - asked;
        }
}

void *slob_alloc(const struct slob_request *request)
{
        unsigned int list = slob_list_of(request->bytes);
        struct slob_marks *marks;
        struct page *page;
        uint32_t at;

        lock_take(&slob_lock);
        page = list_take_locked(&slob_lists[list], request, &at);
        if (!page) {
                lock_drop(&slob_lock);
                page = page_new(list);
                if (!page)
                        return NULL;
                lock_take(&slob_lock);
                take_from_new_locked(page, request, &at);
        }
        marks = page->table;
        mark_set(marks, at / GRANULE_UNITS, request->header != 0);
        account_alloc(request);
        lock_drop(&slob_lock);
        return (char *)page_address(page) + (size_t)at * SLOB_UNIT;
}

struct page *slob_page_locked(const void *address)
{
        uint32_t number;

        if (!heap_contains(address))
                return NULL;
        number = address_page(address);
        if (load_relaxed(&heap.map[number]) != slob_shared.pair_offset ||
            load_acquire(&page_at(number)->kind) != PAGE_SLAB)
                return NULL;
        return page_at(number);
}

enum slob_start slob_start_locked(const struct page *page, const void *address)
{
        const struct slob_marks *marks = page->table;
        size_t offset = (uintptr_t)address & (PAGE_SIZE - 1);
        uint32_t at = (uint32_t)offset / SLOB_UNIT;
        uint32_t granule = (uint32_t)offset / SLOB_ALIGN;
        uint32_t before;

        if (!marks)
                return address == page_address(page) ? SLOB_OBJECT : SLOB_INSIDE;
        if (offset % SLOB_ALIGN == 0) {
                /* The memory behind a header has no mark of its own. */
                if (granule && mark_is_kmalloc(marks, granule - 1))
                        return SLOB_KMALLOC;
                if (bit_get(marks->start, granule) && !mark_is_kmalloc(marks, granule))
                        return SLOB_OBJECT;
        }
        before = slob_gap_locked(page, at).before;
        if (before != PAGE_UNITS && before + block_read(page, before).units > at)
                return SLOB_FREE;
        return SLOB_INSIDE;
}

/*
 * Whether the block at @at has exactly @units: because blocks tile the page (SLOB-1), the end of
 * the page, a free block or another start must follow it directly, and none of these may lie
 * inside.
 */
static bool is_whole_block(const struct page *page, struct slob_gap gap, uint32_t at,
                           uint32_t units)
{
        const struct slob_marks *marks = page->table;
        uint32_t end = at + units;

        if (end > gap.next || mark_any(marks->start, at / GRANULE_UNITS + 1,
                                       (end + GRANULE_UNITS - 1) / GRANULE_UNITS))
                return false;
        return end == gap.next ||
               (end % GRANULE_UNITS == 0 && bit_get(marks->start, end / GRANULE_UNITS));
}

static uint32_t unit_of(const void *address)
{
        return (uint32_t)((uintptr_t)address & (PAGE_SIZE - 1)) / SLOB_UNIT;
}

bool slob_has_size_locked(const struct page *page, const void *start, uint32_t bytes)
{
        uint32_t at = unit_of(start);

        return is_whole_block(page, slob_gap_locked(page, at), at, slob_units(bytes));
}

static void account_free(uint32_t bytes, bool kmalloc, struct slob_cache *owner)
{
        slob_counts.frees++;
        slob_counts.allocated -= bytes;
        slob_counts.kmalloc_frees += kmalloc;
        slob_count_given(owner);
        owner->bytes -= bytes;
}

bool slob_free_locked(struct page *page, void *start, uint32_t bytes, struct slob_cache *owner,
                      struct page **empty)
{
        struct slob_marks *marks = page->table;
        uint32_t at = unit_of(start);
        uint32_t units = slob_units(bytes);
        uint32_t free_units = page_state(page).free_units;
        struct slob_gap gap = slob_gap_locked(page, at);

        *empty = NULL;
        if (!is_whole_block(page, gap, at, units))
                return false;
        account_free(units * SLOB_UNIT, mark_is_kmalloc(marks, at / GRANULE_UNITS), owner);
        if (free_units + units == PAGE_UNITS) {
                if (page->node_partial)
                        slob_list_remove_locked(page);
                slob_count_pages(-1);
                page_map_set(page, 1, 0);
                store_relaxed(&page->kind, (uint8_t)PAGE_UNUSED);
                *empty = page;
                return true;
        }
        mark_clear(marks, at / GRANULE_UNITS);
        slob_put_locked(page, gap, at, units);
        if (!free_units) {
                debug_check(page->list == slob_list_of(bytes));
                page->list = (uint16_t)slob_list_of(bytes);
                slob_list_add_locked(page);
        } else {
                slob_tree_raise_locked(page);
        }
        return true;
}
