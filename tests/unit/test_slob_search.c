/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A search of engine slob over many pages finds the block, and counts the looks, that a plain walk over
 * all pages of the list does (S7-10, S7-11), whatever it passes over without a look (engines/slob/tree.c).
 */
#include "child.h"
#include "slob_walk.h"

#include "heap/heap.h"
#include "engines/slob/block.h"
#include "engines/slob/marks.h"

#include <stdio.h>
#include <string.h>

enum { LIVE = 3000, OPERATIONS = 30000, WALK_EVERY = 3000 };

struct looks {
        uint64_t pages;
        uint64_t blocks;
};

/* The first block that fits in a page, as in S7-10; NULL: none. */
static char *first_fit(const struct page *page, const struct slob_request *request,
                       struct looks *looks)
{
        for (uint32_t at = page_state(page).first; at != PAGE_UNITS;) {
                struct free_block block = block_read(page, at);
                char *start = (char *)page_address(page) + (size_t)at * SLOB_UNIT;
                char *end = start + (size_t)block.units * SLOB_UNIT;
                char *usable = (char *)round_up((uintptr_t)start + request->header, request->align);

                looks->blocks++;
                if (usable - request->header + (size_t)slob_units(request->bytes) * SLOB_UNIT <=
                    end)
                        return usable;
                at = block.next;
        }
        return NULL;
}

/* Where the memory of a request is to be, NULL: in a new page. */
static char *walk(const struct slob_request *request, struct looks *looks)
{
        const struct page_list *list = &slob_lists[slob_list_of(request->bytes)];

        for (const struct page *page = page_list_first(list); page; page = page_list_next(page)) {
                char *found = NULL;

                if (page_state(page).free_units >= slob_units(request->bytes))
                        found = first_fit(page, request, looks);
                if (found)
                        return found;
                looks->pages++;
        }
        return NULL;
}

static void *alloc_as_walked(size_t size, size_t align)
{
        struct kmem_cache *cache = class_cache(CLASS_KMALLOC, size);
        const struct slob_request request = {
                .bytes = (uint32_t)size + KMALLOC_HEADER,
                .align = align                   ? (uint32_t)align
                         : is_power_of_two(size) ? max_of(8u, (uint32_t)size)
                                                 : 8,
                .header = KMALLOC_HEADER,
        };
        struct looks looks = {slob_counts.page_scans, slob_counts.block_scans};
        const char *expected = walk(&request, &looks);
        uint64_t pages = slob_counts.pages;
        void *block = cache->engine->alloc_bytes(cache, size, align, false);

        check(block != NULL);
        if (expected) {
                check(block == expected);
        } else {
                check_equal(slob_counts.pages, pages + 1);
                looks.blocks++; /* the whole new page */
        }
        check_equal(slob_counts.page_scans, looks.pages);
        check_equal(slob_counts.block_scans, looks.blocks);
        memset(block, 0x5b, size);
        return block;
}

static size_t some_size(unsigned int kind, uint64_t *random)
{
        static const size_t few[] = {40, 100, 1100, 200, 24, 1500, 3000};

        switch (kind) {
        case 0:
                return 100; /* leaves gaps that are enough together */
        case 1:
                return few[random_step(random) % array_size(few)];
        default:
                return 1 + random_step(random) % 3500;
        }
}

/* Grows, has holes all over, and shrinks; about as many pages as blocks, or 30 times fewer. */
static void use(unsigned int kind)
{
        static void *blocks[LIVE];
        uint64_t random = 17 + kind;
        struct slob_walk counted;
        size_t most = 0;

        for (unsigned int step = 0; step < OPERATIONS; step++) {
                unsigned int i = (unsigned int)(random_step(&random) % LIVE);
                bool shrinks = step / (OPERATIONS / 4) % 2;

                if (blocks[i] && (shrinks || random_step(&random) % 2)) {
                        kfree(blocks[i]);
                        blocks[i] = NULL;
                }
                if (!blocks[i] && (!shrinks || random_step(&random) % 4 == 0))
                        blocks[i] = alloc_as_walked(some_size(kind, &random),
                                                    random_step(&random) % 2 ? 16 : 0);
                if (step % WALK_EVERY == 0)
                        slob_walk(&counted);
                most = max_of(most, slob_lists[kind ? slob_list_count - 1 : 0].length);
        }
        /* More than the number that is looked at singly before anything else is asked. */
        check(most > (kind ? 200 : 70));
        for (unsigned int i = 0; i < LIVE; i++) {
                kfree(blocks[i]);
                blocks[i] = NULL;
        }
        slob_walk(&counted);
        check_equal(counted.pages, 0);
}

static void child_one_size(void)
{
        use(0);
}

static void child_few_sizes(void)
{
        use(1);
}

static void child_all_sizes(void)
{
        use(2);
}

static void as_walked(void **state)
{
        static const char *const loads[] = {"one_size", "few_sizes", "all_sizes"};
        static const char *const rows[] = {"slob_breaks=256:1024",
                                           "slob_breaks=", "slob_breaks=,slob_compat=2.6.24"};

        for (size_t i = 0; i < array_size(loads); i++)
                for (size_t j = 0; j < array_size(rows); j++) {
                        char row[100];

                        snprintf(row, sizeof(row), "engine=slob,%s", rows[j]);
                        child_passes(loads[i], row);
                }
}

static const struct child_case children[] = {
        {"one_size", child_one_size},
        {"few_sizes", child_few_sizes},
        {"all_sizes", child_all_sizes},
};

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {cmocka_unit_test(as_walked)};

        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests_name("slob_search", tests, NULL, NULL);
}
