/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "page_model.h"

#include "base/options.h"
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

static uint8_t is_listed[MODEL_PAGES]; /* page is in a listed free block */

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

static bool bit_of(const uint64_t *bits, size_t index)
{
        return (bits[index / 64] >> (index % 64)) & 1;
}

/* One free block: its descriptor, its pages and its neighbourhood. */
static size_t check_block(const struct zone *zone, struct page *page, unsigned int order,
                          bool touched_list)
{
        uint32_t first = page_number(page);
        size_t touched = 0;

        assert_int_equal(page->kind, PAGE_FREE);
        assert_int_equal(page->order, order);
        assert_int_equal(first % order_pages(order), 0);
        assert_true(first + order_pages(order) <= frontier.pages);
        assert_ptr_equal(zone_of(first), zone);
        for (uint32_t number = first; number < first + order_pages(order); number++) {
                assert_int_equal(model_owner[number], 0);
                assert_int_equal(is_listed[number], 0);
                is_listed[number] = 1;
                if (number != first)
                        assert_int_equal(page_at(number)->kind, PAGE_UNUSED);
                if (bit_of(frontier.touched_bits, number))
                        touched++;
                else
                        assert_true(range_is_zero(page_words(number), PAGE_SIZE));
        }
        assert_int_equal(page->state, touched);
        assert_int_equal(touched != 0, touched_list);
        if (order < ORDER_MAX) {
                struct page *buddy = page_at(first ^ (uint32_t)order_pages(order));

                assert_false(buddy->kind == PAGE_FREE && buddy->order == order);
        } else {
                assert_true(bit_of(zone->free_chunks, first / CHUNK_PAGES));
        }
        return touched;
}

static size_t check_list(const struct zone *zone, const struct page_list *list, unsigned int order,
                         bool touched_list, size_t *touched)
{
        size_t length = 0;
        uint32_t prev = 0;

        for (struct page *page = page_list_first(list); page; page = page_list_next(page)) {
                assert_int_equal(page->prev, prev);
                *touched += check_block(zone, page, order, touched_list);
                prev = page_number(page);
                length++;
        }
        assert_int_equal(list->last, prev);
        assert_int_equal(list->length, length);
        return length;
}

static size_t free_chunks_count(const struct zone *zone)
{
        size_t count = 0;

        for (uint32_t chunk = 0; chunk < frontier.pages / CHUNK_PAGES; chunk++)
                count += bit_of(zone->free_chunks, chunk);
        return count;
}

/* Lists, bits and counters of one zone. */
static void check_zone(const struct zone *zone)
{
        struct page_counts counts;
        size_t free_pages = 0;
        size_t touched = 0;
        size_t used_pages = 0;
        uint32_t chunks = 0;

        for (unsigned int order = 0; order <= ORDER_MAX; order++) {
                size_t length = check_list(zone, &zone->touched[order], order, true, &touched);

                length += check_list(zone, &zone->clean[order], order, false, &touched);
                free_pages += length * order_pages(order);
                if (order == ORDER_MAX)
                        assert_int_equal(free_chunks_count(zone), length);
        }
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
