/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "page_model.h"

#include "base/options.h"
#include "machine/system.h"
#include "page/zone.h"
#include "unit.h"

uint32_t model_owner[MODEL_PAGES];

bool heap_renew(size_t reserve)
{
        if (heap.map)
                system_unmap(heap.map, heap.base + heap.reserved_bytes - (uintptr_t)heap.map);
        memset(&heap, 0, sizeof(heap));
        memset(zones, 0, sizeof(zones));
        memset(&frontier, 0, sizeof(frontier));
        memset(model_owner, 0, sizeof(model_owner));
        options.reserve = reserve;
        return pages_init();
}

void heap_keep_pages_small(void)
{
        system_keep_pages_small((void *)heap.base, heap.reserved_bytes);
}

static uint8_t is_listed[MODEL_PAGES]; /* page is in a listed run */

/* First and last word of the page carry owner and page number. */
static uint64_t *page_words(uint32_t number)
{
        return (uint64_t *)page_address(page_at(number));
}

enum { LAST_WORD = 4096 / 8 - 1 };

static uint64_t mark_of(uint32_t number, uint32_t owner)
{
        return (uint64_t)owner << 32 | number;
}

void model_take(struct page *page, size_t count, uint32_t owner)
{
        uint32_t first = page_number(page);

        assert_true(first != 0 && first + count <= frontier.pages && first + count <= MODEL_PAGES);
        for (uint32_t number = first; number < first + count; number++) {
                assert_int_equal(model_owner[number], 0);
                model_owner[number] = owner;
                page_words(number)[0] = mark_of(number, owner);
                page_words(number)[LAST_WORD] = mark_of(number, owner);
        }
}

void model_check(struct page *page, size_t count, uint32_t owner)
{
        uint32_t first = page_number(page);

        for (uint32_t number = first; number < first + count; number++) {
                assert_int_equal(model_owner[number], owner);
                assert_true(page_words(number)[0] == mark_of(number, owner));
                assert_true(page_words(number)[LAST_WORD] == mark_of(number, owner));
        }
}

void model_drop(struct page *page, size_t count, uint32_t owner)
{
        uint32_t first = page_number(page);

        model_check(page, count, owner);
        for (uint32_t number = first; number < first + count; number++)
                model_owner[number] = 0;
}

bool range_is_zero(const void *start, size_t bytes)
{
        const uint64_t *word = start;
        uint64_t any = 0;

        for (size_t i = 0; i < bytes / sizeof(*word); i++)
                any |= word[i];
        return any == 0;
}

/* A page that belongs to no run of the zone, or lies beyond. */
static void check_no_neighbour(const struct zone *zone, uint32_t number)
{
        assert_true(number == 0 || number >= frontier.pages || zone_of(number) != zone ||
                    model_owner[number] != 0);
}

/*
 * Whether runs of this length belong in the bin: a length each below 32, four bins for each
 * doubling above.
 */
static bool bin_has(unsigned int bin, size_t length)
{
        unsigned int shift;

        if (bin < 32)
                return length == bin;
        shift = (bin - 32) / 4 + 3;
        return length >> shift == 4 + bin % 4;
}

/* A run: its descriptors, its pages and its neighbourhood. */
static size_t check_run(const struct zone *zone, struct page *page, unsigned int bin,
                        enum run_kind kind)
{
        uint32_t first = page_number(page);
        uint32_t end = first + page->length;
        size_t touched = 0;

        assert_int_equal(page->kind, PAGE_FREE);
        assert_true(bin_has(bin, page->length));
        assert_true(end <= frontier.pages);
        for (uint32_t number = first; number < end; number++) {
                assert_ptr_equal(zone_of(number), zone);
                assert_int_equal(model_owner[number], 0);
                assert_int_equal(is_listed[number], 0);
                is_listed[number] = 1;
                if (number != first)
                        assert_int_equal(page_at(number)->kind,
                                         number == end - 1 ? PAGE_FREE_END : PAGE_UNUSED);
                if (page_is_touched(number))
                        touched++;
                else
                        assert_true(range_is_zero(page_words(number), PAGE_SIZE));
                assert_true(page_is_touched(number) || !page_was_begun(number));
                assert_true(page_is_touched(number) || !page_was_packed(number));
        }
        assert_int_equal(page_at(end - 1)->length, page->length);
        assert_int_equal(page->state, touched);
        assert_int_equal(touched != 0, kind == RUN_TOUCHED);
        check_no_neighbour(zone, first - 1);
        check_no_neighbour(zone, end);
        return touched;
}

/* The pages of a list. */
static size_t check_list(const struct zone *zone, unsigned int bin, enum run_kind kind,
                         size_t *touched)
{
        const struct page_list *list = &zone->bins[bin][kind];
        size_t length = 0;
        size_t pages = 0;
        uint32_t prev = 0;

        for (struct page *page = page_list_first(list); page; page = page_list_next(page)) {
                assert_int_equal(page->prev, prev);
                *touched += check_run(zone, page, bin, kind);
                prev = page_number(page);
                pages += page->length;
                length++;
        }
        assert_int_equal(list->last, prev);
        assert_int_equal(list->length, length);
        assert_int_equal(bit_get(zone->bins_used[kind], bin), length != 0);
        return pages;
}

/* Lists, bits and counters of a zone. */
static void check_zone(const struct zone *zone)
{
        struct page_counts counts;
        size_t free_pages = 0;
        size_t touched = 0;
        size_t used_pages = 0;
        uint32_t chunks = 0;

        for (unsigned int bin = 0; bin < BINS; bin++)
                for (enum run_kind kind = RUN_TOUCHED; kind < RUN_KINDS; kind++)
                        free_pages += check_list(zone, bin, kind, &touched);
        for (uint32_t number = 0; number < frontier.pages; number++)
                if (zone_of(number) == zone) {
                        /* Page 0 is put aside. */
                        used_pages += number == 0 || model_owner[number] != 0;
                        chunks += number % CHUNK_PAGES == 0;
                }
        assert_int_equal(zone->chunks, chunks);
        assert_true(chunks <= zone->chunks_most);
        pages_count_node(zone->node, &counts);
        assert_int_equal(counts.free_pages, free_pages);
        assert_int_equal(counts.free_touched_pages, touched);
        assert_int_equal(counts.used_pages, used_pages);
        assert_int_equal(counts.accessible_pages, free_pages + used_pages);
}

void model_check_all(void)
{
        struct page_counts counts;

        memset(is_listed, 0, sizeof(is_listed));
        for (unsigned int node = 0; node < system_nodes(); node++)
                check_zone(&zones[node]);
        for (uint32_t number = 1; number < frontier.pages; number++)
                assert_true((model_owner[number] != 0) != (is_listed[number] != 0));
        for (uint32_t number = frontier.pages; number < MODEL_PAGES; number++)
                assert_int_equal(model_owner[number], 0);
        pages_count(&counts);
        assert_int_equal(counts.accessible_pages, frontier.pages);
        assert_int_equal(heap.accessible_bytes, counts.accessible_pages << PAGE_SHIFT);
}

size_t mappings_count(void)
{
        FILE *maps = fopen("/proc/self/maps", "r");
        size_t lines = 0;
        int character;

        assert_non_null(maps);
        while ((character = fgetc(maps)) != EOF)
                lines += character == '\n';
        fclose(maps);
        return lines;
}
