/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "slob_walk.h"

#include "base/metadata.h"
#include "engines/slob/marks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        HEADER_UNITS = KMALLOC_HEADER / SLOB_UNIT,
        MALLOC_UNITS = 16 / SLOB_UNIT, /* malloc's alignment */
};

#define ensure(condition, page)                                                                    \
        do {                                                                                       \
                if (!(condition))                                                                  \
                        broken(#condition, __LINE__, page);                                        \
        } while (0)

static void broken(const char *what, int line, const struct page *page)
{
        fprintf(stderr, "slob walker: %s (line %d): page %u\n", what, line,
                page ? page_number(page) : 0);
        abort();
}

struct page *page_of(const void *address)
{
        ensure(heap_contains(address), NULL);
        return page_at(address_page(address));
}

/* Marks units of the map of a page; each may be marked once. */
static void cover(const struct page *page, uint8_t *map, uint32_t at, uint32_t units)
{
        ensure(at + units <= PAGE_UNITS, page);
        for (uint32_t unit = at; unit < at + units; unit++) {
                ensure(!map[unit], page);
                map[unit] = 1;
        }
}

/*
 * The free list is ascending, its sums are right, and rooms bound the free blocks (S7-02, SLOB-1).
 */
static void walk_free(const struct page *page, uint8_t *map, struct slob_walk *walk)
{
        struct page_state state = page_state(page);
        uint32_t units = 0, fragments = 0, end = PAGE_UNITS + 1;

        for (uint32_t at = state.first; at != PAGE_UNITS;) {
                struct free_block block = block_read(page, at);
                uint32_t aligned = (uint32_t)round_up(at, GRANULE_UNITS);

                ensure(block.next > at && block.next <= PAGE_UNITS, page);
                cover(page, map, at, block.units);
                if (at == end)
                        walk->touching++;
                end = at + block.units;
                if (end > aligned)
                        ensure(end - aligned <= state.room, page);
                aligned = (uint32_t)round_up(at + HEADER_UNITS, MALLOC_UNITS) - HEADER_UNITS;
                if (end > aligned)
                        ensure(end - aligned <= state.malloc_room, page);
                walk->biggest = max_of(walk->biggest, (size_t)block.units * SLOB_UNIT);
                units += block.units;
                fragments++;
                at = block.next;
        }
        ensure(units == state.free_units, page);
        ensure(fragments == state.fragments, page);
        walk->free_bytes += units * SLOB_UNIT;
        walk->fragments += fragments;
}

/* A block in use begins with a mark (SLOB-2); a kmalloc block is as long as its header says. */
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
                ensure(at % GRANULE_UNITS == 0, page);
                ensure(bit_get(marks->start, at / GRANULE_UNITS), page);
                do {
                        end++;
                } while (end < PAGE_UNITS && !map[end] &&
                         !(end % GRANULE_UNITS == 0 && bit_get(marks->start, end / GRANULE_UNITS)));
                if (mark_is_kmalloc(marks, at / GRANULE_UNITS)) {
                        uint32_t size;

                        memcpy(&size, (char *)page_address(page) + at * SLOB_UNIT, sizeof(size));
                        ensure(slob_units(size + KMALLOC_HEADER) == end - at, page);
                }
                blocks++;
                at = end;
        }
        for (uint32_t granule = 0; granule < PAGE_GRANULES; granule++) {
                if (bit_get(marks->start, granule))
                        ensure(!map[granule * GRANULE_UNITS], page);
                blocks -= bit_get(marks->start, granule);
                if (granule % 2 == 0 && bit_get(marks->kmalloc, granule / 2))
                        ensure(mark_is_kmalloc(marks, granule) ||
                                       mark_is_kmalloc(marks, granule + 1),
                               page);
        }
        ensure(!blocks, page);
        for (size_t word = 0; word < array_size(marks->start); word++)
                walk->blocks += (size_t)__builtin_popcountll(marks->start[word]);
}

/* The subtree's pages in its order, from *next on; @parent, and their number, must be right (TREE-2). */
static void walk_subtree(uint32_t number, uint32_t parent, uint32_t **next)
{
        const struct page *page = page_at(number);
        const struct slob_marks *node = page->table;
        const uint32_t *first = *next;

        ensure(node->parent == parent, page);
        if (node->left)
                walk_subtree(node->left, number, next);
        *(*next)++ = number;
        if (node->right)
                walk_subtree(node->right, number, next);
        ensure(node->pages == (uint32_t)(*next - first), page);
        for (; first < *next; first++)
                ensure(page_state(page_at(*first)).free_units <= node->most, page);
}

/* TREE-1: the tree has the pages of the list, and as a ring the list's order. */
static void walk_tree(const struct page_list *list)
{
        const struct page *page = page_list_first(list);
        uint32_t *pages, *next;
        uint32_t root, place;

        if (!page)
                return;
        for (root = page_number(page); ((struct slob_marks *)page_at(root)->table)->parent;)
                root = ((struct slob_marks *)page_at(root)->table)->parent;
        pages = next = metadata_alloc(list->length * sizeof(*pages));
        ensure(pages != NULL, page);
        ensure(((struct slob_marks *)page_at(root)->table)->pages == list->length, page);
        walk_subtree(root, 0, &next);
        place = slob_tree_place_locked(page);
        for (; page; page = page_list_next(page), place++)
                ensure(pages[place % list->length] == page_number(page), page);
        metadata_free(pages, list->length * sizeof(*pages));
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

                if (heap.map[number] != slob_shared.pair_offset || page->kind != PAGE_SLAB)
                        continue;
                if (!page->table) {
                        walk->big_objects++;
                        walk->big_pages += order_pages(page->order);
                        number += (uint32_t)order_pages(page->order) - 1;
                        continue;
                }
                walk->pages++;
                walk_free(page, map, walk);
                walk_blocks(page, map, walk);
                /* SLOB-3 */
                ensure(page_state(page).free_units < PAGE_UNITS, page);
                ensure(page->node_partial == (page_state(page).free_units > 0), page);
                if (page_state(page).free_units) {
                        ensure(is_listed(page, page->list), page);
                        with_room++;
                }
        }
        for (unsigned int list = 0; list < slob_list_count; list++) {
                listed += slob_lists[list].length;
                walk_tree(&slob_lists[list]);
        }
        ensure(listed == with_room, NULL);
        ensure(walk->pages == slob_counts.pages, NULL);
        ensure(walk->big_pages == slob_counts.big_pages, NULL);
        ensure(walk->blocks == slob_counts.allocs - slob_counts.frees, NULL);
        ensure(walk->pages * PAGE_SIZE - walk->free_bytes == slob_counts.allocated, NULL);
        if (options.slob_compat == SLOB_COMPAT_NONE)
                ensure(!walk->touching, NULL);
}
