/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "slob_walk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "slob/marks.h"

struct page *page_of(const void *address)
{
        assert_true(heap_contains(address));
        return page_at(address_page(address));
}

/* Marks units of the map of a page; each may be marked once. */
static void cover(uint8_t *map, uint32_t at, uint32_t units)
{
        assert_true(at + units <= PAGE_UNITS);
        for (uint32_t unit = at; unit < at + units; unit++) {
                assert_int_equal(map[unit], 0);
                map[unit] = 1;
        }
}

/* The free list: ascending, sums right, rooms bound what is there (S7-02, SLOB-1). */
static void walk_free(const struct page *page, uint8_t *map, struct slob_walk *walk)
{
        struct page_state state = page_state(page);
        uint32_t units = 0, fragments = 0, end = PAGE_UNITS + 1;

        for (uint32_t at = state.first; at != PAGE_UNITS;) {
                struct free_block block = block_read(page, at);
                uint32_t aligned = (uint32_t)round_up(at, GRANULE_UNITS);

                assert_true(block.next > at && block.next <= PAGE_UNITS);
                cover(map, at, block.units);
                if (at == end)
                        walk->touching++;
                end = at + block.units;
                if (end > aligned)
                        assert_true(end - aligned <= state.room);
                aligned = (uint32_t)round_up(at + 4, 8) - 4;
                if (end > aligned)
                        assert_true(end - aligned <= state.malloc_room);
                walk->biggest = max_of(walk->biggest, (size_t)block.units * SLOB_UNIT);
                units += block.units;
                fragments++;
                at = block.next;
        }
        assert_int_equal(units, state.free_units);
        assert_int_equal(fragments, state.fragments);
        walk->free_bytes += units * SLOB_UNIT;
        walk->fragments += fragments;
}

/* What is not free begins with a mark (SLOB-2); a kmalloc block is as long as it says. */
static void walk_blocks(const struct page *page, const uint8_t *map, struct slob_walk *walk)
{
        const struct slob_marks *marks = page->table;
        size_t blocks = 0;

        for (uint32_t at = 0; at < PAGE_UNITS;) {
                uint32_t end = at;

                if (map[at]) {
                        at++;
                        continue;
                }
                assert_int_equal(at % GRANULE_UNITS, 0);
                assert_true(mark_get(marks->start, at / GRANULE_UNITS));
                do {
                        end++;
                } while (
                        end < PAGE_UNITS && !map[end] &&
                        !(end % GRANULE_UNITS == 0 && mark_get(marks->start, end / GRANULE_UNITS)));
                if (mark_get(marks->kmalloc, at / GRANULE_UNITS)) {
                        uint32_t size;

                        memcpy(&size, (char *)page_address(page) + at * SLOB_UNIT, sizeof(size));
                        assert_int_equal(slob_units(size + KMALLOC_HEADER), end - at);
                }
                blocks++;
                at = end;
        }
        for (uint32_t granule = 0; granule < PAGE_GRANULES; granule++) {
                if (mark_get(marks->start, granule))
                        assert_int_equal(map[granule * GRANULE_UNITS], 0);
                blocks -= mark_get(marks->start, granule);
                if (mark_get(marks->kmalloc, granule))
                        assert_true(mark_get(marks->start, granule));
        }
        assert_int_equal(blocks, 0);
        for (size_t word = 0; word < array_size(marks->start); word++)
                walk->blocks += (size_t)__builtin_popcountll(marks->start[word]);
}

static bool is_listed(const struct page *page, unsigned int list)
{
        for (const struct page *other = page_list_first(&slob_lists[list]); other;
             other = page_list_next(other))
                if (other == page)
                        return true;
        return false;
}

void slob_walk(struct slob_walk *walk)
{
        size_t listed = 0, with_room = 0;

        memset(walk, 0, sizeof(*walk));
        for (uint32_t number = 1; number < heap.accessible_bytes >> PAGE_SHIFT; number++) {
                struct page *page = page_at(number);
                uint8_t map[PAGE_UNITS] = {0};

                if (heap.map[number] != slob_shared.pair_offset || page->kind != PAGE_SLAB ||
                    !page->table)
                        continue;
                walk->pages++;
                walk_free(page, map, walk);
                walk_blocks(page, map, walk);
                /* SLOB-3 */
                assert_true(page_state(page).free_units < PAGE_UNITS);
                assert_int_equal(page->node_partial, page_state(page).free_units > 0);
                if (page_state(page).free_units) {
                        assert_true(is_listed(page, page->list));
                        with_room++;
                }
        }
        for (unsigned int list = 0; list < slob_list_count; list++)
                listed += slob_lists[list].length;
        assert_int_equal(listed, with_room);
        assert_int_equal(walk->pages, slob_counts.pages);
        assert_int_equal(walk->blocks, slob_counts.allocs - slob_counts.frees);
        assert_int_equal(walk->pages * PAGE_SIZE - walk->free_bytes, slob_counts.allocated);
        if (options.slob_compat == SLOB_COMPAT_NONE)
                assert_int_equal(walk->touching, 0);
}
