/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The choice of a free run for a request, and the order of purging: runs of known length and age,
 * made by freeing parts of a block.
 */
#define _GNU_SOURCE
#include "unit.h"

#include <stdio.h>
#include <sys/mman.h>

#include "base/options.h"
#include "page/purge.h"
#include "page/zone.h"
#include "page_model.h"
#include "random.h"
#include "system_wrap.h"

enum {
        HEAP_BYTES = 256 << 20,
        ALL_PAGES = 4 * CHUNK_PAGES - 1,
};

static struct page *all; /* every page of the heap so far */

static int start(void **state)
{
        (void)state;
        system_wrap_allow_all();
        system_wrap.page_bytes = 0;
        system_wrap.while_purging = NULL;
        options.purge_delay = 100;
        if (!heap_renew(HEAP_BYTES))
                return -1;
        all = pages_alloc_exact(ALL_PAGES, 1, NULL);
        if (!all || frontier.pages != ALL_PAGES + 1)
                return -1;
        model_take(all, ALL_PAGES, 1);
        return 0;
}

static void hole(size_t first, size_t count)
{
        model_drop(all + first, count, 1);
        pages_free(all + first, count);
}

/* A request for this many pages gets these pages. */
static void fill(size_t first, size_t count)
{
        struct page *page = pages_alloc_exact(count, 1, NULL);

        assert_ptr_equal(page, all + first);
        model_take(page, count, 1);
}

static size_t touched_pages(size_t first, size_t count)
{
        size_t touched = 0;

        for (size_t i = 0; i < count; i++)
                touched += page_is_touched(page_number(all + first + i));
        return touched;
}

/* Small runs have a list for each length, longer runs share a list. */
static void test_newest_of_equals_serves(void **state)
{
        static const size_t lengths[] = {10, 40};

        (void)state;
        for (size_t i = 0; i < array_size(lengths); i++) {
                for (size_t first = 100; first <= 300; first += 100) {
                        hole(first, lengths[i]);
                        system_wrap.now_ms++;
                }
                for (size_t first = 300; first >= 100; first -= 100)
                        fill(first, lengths[i]);
                model_check_all();
        }
}

/* The touched run has as many touched pages as are wanted, or it is as short as the clean run. */
static void test_touched_or_clean(void **state)
{
        (void)state;
        skip_on_larger_pages();
        hole(100, 50);
        hole(300, 20);
        pages_purge_all(0);
        hole(150, 10);
        fill(100, 10);
        start(NULL);
        hole(100, 30);
        hole(300, 40);
        pages_purge_all(0);
        hole(130, 10);
        fill(100, 20);
        model_check_all();
}

/* A block grows over all of a run between used pages, and over no more. */
static void test_growth_over_a_run(void **state)
{
        (void)state;
        hole(100, 20);
        assert_false(pages_resize(all + 90, 10, 31));
        assert_true(pages_resize(all + 90, 10, 30));
        model_take(all + 100, 20, 1);
        model_check_all();
}

enum {
        AREA = 1000,
        AREA_PAGES = 2000
}; /* a run that blocks are placed in, as indexes into `all` */

/* The place where a block for a single object begins. */
static size_t placed(size_t count, size_t align)
{
        struct page *page = pages_alloc_exact(count, align, NULL);

        model_take(page, count, 1);
        return (size_t)(page - all);
}

/* A block for several objects begins at the low end. */
static void fill_low_end(size_t first, size_t count)
{
        struct page *page = pages_alloc_many(count, 1, NODE_ANY, 1, false);

        assert_ptr_equal(page, all + first);
        model_take(page, count, 1);
}

/*
 * A block for a single object begins at an earlier block's beginning, if that is near and has room
 * behind it.
 */
static void test_blocks_begin_where_others_began(void **state)
{
        (void)state;
        hole(AREA, AREA_PAGES);
        for (size_t at = AREA; at < AREA + 120; at += 40)
                assert_int_equal(placed(40, 1), at);
        hole(AREA, 120);
        fill_low_end(AREA, 1);
        assert_int_equal(placed(40, 1), AREA + 40);
        assert_int_equal(placed(40, 1), AREA + 80);
        /* The room in front of them serves other blocks. */
        assert_int_equal(placed(39, 1), AREA + 1);
        model_check_all();

        /* Not a block's length away, and not more than a MiB. */
        start(NULL);
        hole(AREA, AREA_PAGES);
        assert_int_equal(placed(300, 1), AREA);
        assert_int_equal(placed(300, 1), AREA + 300);
        hole(AREA, 600);
        fill_low_end(AREA, 44);
        assert_int_equal(placed(256, 1), AREA + 44);
        hole(AREA + 44, 256);
        assert_int_equal(placed(400, 1), AREA + 44);
        hole(AREA, 444);
        fill_low_end(AREA, 45);
        assert_int_equal(placed(400, 1), AREA + 300);
        model_check_all();

        /* Aligned: page 1068 of the heap is the first that 4 divides and a block began with. */
        start(NULL);
        hole(AREA, AREA_PAGES);
        assert_int_equal(placed(20, 1), AREA);
        assert_int_equal(placed(20, 1), AREA + 20);
        assert_int_equal(placed(27, 1), AREA + 40);
        assert_int_equal(placed(20, 1), AREA + 67);
        hole(AREA, 87);
        fill_low_end(AREA, 1);
        assert_int_equal(placed(70, 4), AREA + 67);
        model_check_all();
}

/* Where blocks began is forgotten with the purge, also when the pages are touched again. */
static void test_beginnings_are_forgotten(void **state)
{
        (void)state;
        hole(AREA, AREA_PAGES);
        assert_int_equal(placed(40, 1), AREA);
        assert_int_equal(placed(40, 1), AREA + 40);
        hole(AREA, 80);
        pages_purge_all(0);
        for (size_t at = AREA; at < AREA + AREA_PAGES; at += AREA_PAGES / 2)
                fill_low_end(at, AREA_PAGES / 2);
        hole(AREA, AREA_PAGES);
        fill_low_end(AREA, 1);
        assert_int_equal(placed(40, 1), AREA + 1);
        model_check_all();
}

/* A block for several objects goes where others were, if that is near; others take what is before. */
static void test_blocks_of_objects_return(void **state)
{
        (void)state;
        hole(AREA, AREA_PAGES);
        assert_int_equal(placed(8, 1), AREA);
        fill_low_end(AREA + 8, 4);
        assert_int_equal(placed(8, 1), AREA + 12);
        hole(AREA, 20);
        fill_low_end(AREA + 8, 4);
        assert_int_equal(placed(8, 1), AREA);
        assert_int_equal(placed(8, 1), AREA + 12);
        model_check_all();

        /* All of its pages, in one place, aligned, and several blocks side by side. */
        hole(AREA, 20);
        fill_low_end(AREA, 5);
        hole(AREA, 5);
        fill_low_end(AREA, 12);
        hole(AREA, 12);
        model_take(pages_alloc_many(4, 4, NODE_ANY, 2, false), 8, 1);
        assert_int_equal(page_number(all + AREA) % 4, 1);
        hole(AREA + 3, 8);
        model_check_all();

        /* Forgotten with the purge, and not beyond 512 pages. */
        for (size_t far = 511; far <= 512; far++) {
                start(NULL);
                hole(AREA, AREA_PAGES);
                assert_int_equal(placed(far, 1), AREA);
                fill_low_end(AREA + far, 4);
                hole(AREA, far + 4);
                fill_low_end(AREA + (far < 512 ? far : 0), 4);
        }
        start(NULL);
        hole(AREA, AREA_PAGES);
        assert_int_equal(placed(40, 1), AREA);
        fill_low_end(AREA + 40, 4);
        hole(AREA, 44);
        pages_purge_all(0);
        assert_int_equal(placed(AREA_PAGES, 1), AREA);
        hole(AREA, AREA_PAGES);
        fill_low_end(AREA, 4);
        model_check_all();
}

static size_t resident_pages(void)
{
        static unsigned char resident[1024];
        size_t left = heap.accessible_bytes / system_page_bytes();
        const char *at = (const char *)heap.base;
        size_t count = 0;

        while (left) {
                size_t pages = left < sizeof(resident) ? left : sizeof(resident);

                assert_int_equal(mincore((void *)at, pages * system_page_bytes(), resident), 0);
                for (size_t i = 0; i < pages; i++)
                        count += resident[i] & 1;
                at += pages * system_page_bytes();
                left -= pages;
        }
        return count * (system_page_bytes() / PAGE_SIZE);
}

/*
 * Rounds of blocks with only the first page written, as short as the two blocks for several objects
 * that come now and then, written whole. The resident memory in the end is not much more than the
 * memory written at once.
 */
static void test_residue_of_short_blocks(void **state)
{
        enum { ROUNDS = 100, BLOCKS = 600, BLOCK_PAGES = 8, SMALL_PAGES = 4, MOST = 64 };
        struct random random = {1};
        struct page *block[BLOCKS];

        (void)state;
        assert_true(heap_renew(HEAP_BYTES));
        heap_keep_pages_small();
        for (size_t round = 0; round < ROUNDS; round++) {
                struct page *packed = NULL;
                size_t left = 0;

                for (size_t i = 0; i < BLOCKS; i++) {
                        if (left-- == 0) {
                                struct page *page =
                                        pages_alloc_many(SMALL_PAGES, 1, NODE_ANY, 2, false);

                                left = MOST / 2 + random_below(&random, MOST / 2);
                                while (page) {
                                        struct page *next = page_list_next(page);

                                        memset(page_address(page), 1, SMALL_PAGES << PAGE_SHIFT);
                                        page->next = packed ? page_number(packed) : 0;
                                        packed = page;
                                        page = next;
                                }
                        }
                        block[i] = pages_alloc_many(BLOCK_PAGES, 1, NODE_ANY, 1, true);
                        memset(page_address(block[i]), 1, PAGE_SIZE);
                }
                for (size_t i = 0; i < BLOCKS; i++)
                        pages_free(block[i], BLOCK_PAGES);
                while (packed) {
                        struct page *next = page_list_next(packed);

                        packed->next = 0;
                        pages_free(packed, SMALL_PAGES);
                        packed = next;
                }
        }
        assert_true(resident_pages() < 2 * BLOCKS);
}

/*
 * Rounds of blocks with only the first page written, between small blocks that are written whole;
 * some of these stay for a round. The resident memory in the end is not much more than the memory
 * written at once.
 */
static void test_residue_does_not_pile_up(void **state)
{
        enum { ROUNDS = 100, BLOCKS = 200, BLOCK_PAGES = 50, SMALL_PAGES = 3, LIVE = 400 };
        struct random random = {1};
        struct page *large[BLOCKS];
        struct page *small[BLOCKS] = {NULL};
        size_t lengths[BLOCKS];

        (void)state;
        /* A new heap: the first huge page of the old one holds page 0, which is never purged. */
        assert_true(heap_renew(HEAP_BYTES));
        heap_keep_pages_small();
        for (size_t round = 0; round < ROUNDS; round++) {
                for (size_t i = 0; i < BLOCKS; i++) {
                        large[i] = pages_alloc_exact(BLOCK_PAGES, 1, NULL);
                        memset(page_address(large[i]), 1, PAGE_SIZE);
                        if (!small[i]) {
                                lengths[i] = 1 + random_below(&random, SMALL_PAGES);
                                small[i] = pages_alloc_many(lengths[i], 1, NODE_ANY, 1, false);
                                memset(page_address(small[i]), 1, lengths[i] << PAGE_SHIFT);
                        }
                }
                for (size_t i = 0; i < BLOCKS; i++) {
                        pages_free_exact(large[i], BLOCK_PAGES);
                        if (random_below(&random, 4) != 0) {
                                pages_free(small[i], lengths[i]);
                                small[i] = NULL;
                        }
                }
        }
        assert_true(resident_pages() < 3 * (BLOCKS + BLOCKS * SMALL_PAGES));
}

/* Runs that are due go before a MiB is handed out, without any free. */
static void test_look_before_handing_out(void **state)
{
        enum { CALL = 512 };

        (void)state;
        hole(100, 40);
        hole(AREA, AREA_PAGES);
        system_wrap.now_ms += 99;
        assert_int_equal(placed(300, 1), AREA);
        assert_int_equal(zones[0].purged_pages, 0);

        start(NULL);
        hole(100, 40);
        hole(AREA, AREA_PAGES);
        system_wrap.now_ms += 100;
        assert_int_equal(placed(200, 1), AREA);
        assert_int_equal(zones[0].purged_pages, 0);
        assert_int_equal(placed(56, 1), AREA + 200);
        assert_int_equal(zones[0].purged_pages, CALL);
        model_check_all();
}

/* Blocks that are taken at once are aligned, each of them. */
static void test_many_of_odd_length(void **state)
{
        (void)state;
        hole(100, 40);
        for (struct page *page = pages_alloc_many(3, 4, NODE_ANY, 5, false); page;
             page = page_list_next(page)) {
                assert_int_equal(page_number(page) % 4, 0);
                model_take(page, 3, 1);
        }
        model_check_all();
}

/* A run that was joined is as old as its part with the most touched pages, on whatever side. */
static void test_time_of_joined_runs(void **state)
{
        (void)state;
        skip_on_larger_pages();
        for (size_t side = 0; side < 2; side++) {
                start(NULL);
                hole(100 + side * 35, 30);
                system_wrap.now_ms += 20;
                hole(side ? 110 : 135, 20);
                system_wrap.now_ms += 20;
                hole(130, 5);
                system_wrap.now_ms += 60;
                pages_purge_due();
                assert_int_equal(zones[0].free_touched_pages, 0);
                model_check_all();
        }
}

/* The oldest runs of a list are purged, and newer runs do not keep their rests. */
static void test_oldest_are_purged(void **state)
{
        (void)state;
        skip_on_larger_pages();
        hole(100, 40);
        system_wrap.now_ms += 50;
        hole(200, 40);
        system_wrap.now_ms += 50;
        pages_purge_due();
        assert_int_equal(zones[0].purged_pages, 40);
        assert_int_equal(touched_pages(200, 40), 40);

        start(NULL);
        hole(100, 100);
        system_wrap.now_ms += 50;
        hole(300, 40);
        fill(100, 60);
        system_wrap.now_ms += 50;
        pages_purge_due();
        assert_int_equal(zones[0].purged_pages, 40);
        assert_int_equal(touched_pages(300, 40), 40);
        model_check_all();
}

/* When the zone is looked at again: as soon as the oldest run is due that is purged unasked. */
static void test_next_look(void **state)
{
        uint64_t begin = system_wrap.now_ms;

        (void)state;
        skip_on_larger_pages();
        hole(100, PURGE_PAGES - 1);
        assert_int_equal(zones[0].purge_at, UINT64_MAX);
        hole(200, PURGE_PAGES);
        assert_int_equal(zones[0].purge_at, begin + 100);
        system_wrap.now_ms += 30;
        hole(300, 40);
        system_wrap.now_ms += 30;
        hole(400, 40);
        hole(500, 200);
        system_wrap.now_ms = begin + 100;
        pages_purge_due();
        assert_int_equal(zones[0].purged_pages, PURGE_PAGES);
        assert_int_equal(zones[0].purge_at, begin + 130);
        system_wrap.now_ms = begin + 130;
        pages_purge_due();
        assert_int_equal(zones[0].purged_pages, PURGE_PAGES + 40);
        assert_int_equal(zones[0].purge_at, begin + 160);
        system_wrap.now_ms = begin + 140;
        hole(800, PURGE_PAGES);
        system_wrap.now_ms = begin + 160;
        pages_purge_due();
        assert_int_equal(zones[0].free_touched_pages, 2 * PURGE_PAGES - 1);
        assert_int_equal(zones[0].purge_at, begin + 240);
        model_check_all();
}

/* Runs of every length, as many as are due, and none before that. */
static void test_idle(void **state)
{
        (void)state;
        skip_on_larger_pages();
        hole(100, system_page_bytes() / PAGE_SIZE * 2);
        hole(300, 40);
        assert_int_equal(pages_purge_idle(), 0);
        system_wrap.now_ms += 99;
        assert_int_equal(pages_purge_idle(), 0);
        system_wrap.now_ms += 1;
        assert_true(pages_purge_idle() >= 24 * PAGE_SIZE);
        assert_true(zones[0].free_touched_pages < 2 * system_page_bytes() / PAGE_SIZE);

        /* A delay from before the machine started. */
        start(NULL);
        options.purge_delay = system_wrap.now_ms + 1;
        hole(300, 40);
        assert_int_equal(pages_purge_idle(), 0);
        assert_int_equal(zones[0].free_touched_pages, 40);
        model_check_all();
}

/* The reclaim thread goes on until nothing is due; slow paths give back 2 MiB each millisecond. */
static void test_passes(void **state)
{
        enum { CALL = 512, LONG = 3 * 8192 - 100 };
        struct page *page = pages_alloc_exact(LONG, 1, NULL);

        (void)state;
        pages_free(page, LONG);
        system_wrap.now_ms += 100;
        pages_purge_due();
        assert_int_equal(zones[0].purged_pages, CALL);
        assert_int_equal(zones[0].purge_at, system_wrap.now_ms + 1);
        pages_purge_due();
        assert_int_equal(zones[0].purged_pages, CALL);
        assert_int_equal(pages_purge_idle(), (size_t)(LONG - CALL) << PAGE_SHIFT);
        assert_int_equal(zones[0].free_touched_pages, 0);
        model_check_all();
}

/* A run that the system refuses does not keep others of its list from being purged. */
static void test_refused_runs_stand_back(void **state)
{
        size_t calls = system_wrap.calls_made[CALL_PURGE];
        size_t calls_for_one;

        (void)state;
        system_wrap.calls_left[CALL_PURGE] = 0;
        hole(128, 48);
        assert_int_equal(pages_purge_all(0), 0);
        calls_for_one = system_wrap.calls_made[CALL_PURGE] - calls;
        assert_true(calls_for_one > 0);
        system_wrap.now_ms += 1;
        hole(256, 48);
        calls = system_wrap.calls_made[CALL_PURGE];
        assert_int_equal(pages_purge_all(0), 0);
        assert_true(system_wrap.calls_made[CALL_PURGE] - calls > calls_for_one);
        model_check_all();
}

/* Pieces that get smaller and larger are whole pages of the system, of whatever size (system_wrap.c). */
static void test_pieces_are_system_pages(void **state)
{
        enum { SYSTEM_PAGES = 16 };

        (void)state;
        system_wrap.page_bytes = SYSTEM_PAGES * PAGE_SIZE;
        hole(100, 5 * SYSTEM_PAGES);
        hole(300, 999);
        system_wrap.calls_left[CALL_PURGE] = 0;
        assert_int_equal(pages_purge_all(0), 0);
        system_wrap_allow_all();
        system_wrap.now_ms += 1;
        /* Only some system pages of the pages that may go, and a part of a system page. */
        pages_purge_all(700 * PAGE_SIZE);
        assert_true(zones[0].free_touched_pages >= 700);
        assert_true(zones[0].free_touched_pages < 700 + 2 * SYSTEM_PAGES);
        system_wrap.now_ms += 1;
        pages_purge_all(0);
        assert_true(zones[0].free_touched_pages < 4 * SYSTEM_PAGES);
        model_check_all();

        /* So are runs that were touched only at their end. */
        start(NULL);
        hole(2 * SYSTEM_PAGES - 1, 4 * SYSTEM_PAGES);
        pages_purge_all(0);
        fill(2 * SYSTEM_PAGES - 1, 8);
        fill(2 * SYSTEM_PAGES + 7, 20);
        hole(2 * SYSTEM_PAGES - 1, 8);
        pages_purge_all(0);
        hole(2 * SYSTEM_PAGES + 7, 20);
        system_wrap.page_bytes = SYSTEM_PAGES * PAGE_SIZE;
        pages_purge_all(0);
        assert_int_equal(zones[0].free_touched_pages, 0);
        model_check_all();
}

/*
 * Each locked page keeps itself, and calls for other pages are not cut into a call for each page.
 */
static void test_many_locked_pages(void **state)
{
        enum { FIRST = 1000, PAGES = 2600, LOCKED = 12, APART = 200 };
        size_t system_pages = system_page_bytes() / PAGE_SIZE;
        size_t calls;

        (void)state;
        skip_if_sanitized();
        for (size_t i = 0; i < LOCKED; i++)
                if (mlock(page_address(all + FIRST + i * APART + 60), PAGE_SIZE)) {
                        print_message("# skipped: memory cannot be locked here\n");
                        skip();
                }
        hole(FIRST, PAGES);
        calls = system_wrap.calls_made[CALL_PURGE];
        pages_purge_all(0);
        calls = system_wrap.calls_made[CALL_PURGE] - calls;
        munlock(page_address(all), (size_t)ALL_PAGES << PAGE_SHIFT);
        assert_int_in_range(zones[0].free_touched_pages, LOCKED, (2 * LOCKED + 2) * system_pages);
        assert_int_in_range(calls, LOCKED, LOCKED * 40);
        model_check_all();
}

static size_t touched_while_purging;
static size_t free_while_purging;

static void count_while_purging(void)
{
        struct page_counts counts;

        pages_count(&counts);
        touched_while_purging = counts.free_touched_pages;
        free_while_purging = counts.free_pages;
}

/* A run that is being purged is free, and touched until it is purged. */
static void test_figures_while_purging(void **state)
{
        (void)state;
        hole(128, 256);
        touched_while_purging = free_while_purging = 0;
        system_wrap.while_purging = count_while_purging;
        assert_int_equal(pages_purge_all(0) > 0, true);
        system_wrap.while_purging = NULL;
        assert_int_equal(touched_while_purging, 256);
        assert_int_equal(free_while_purging, 256);
        model_check_all();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_newest_of_equals_serves, start),
                cmocka_unit_test_setup(test_touched_or_clean, start),
                cmocka_unit_test_setup(test_growth_over_a_run, start),
                cmocka_unit_test_setup(test_blocks_begin_where_others_began, start),
                cmocka_unit_test_setup(test_beginnings_are_forgotten, start),
                cmocka_unit_test_setup(test_blocks_of_objects_return, start),
                cmocka_unit_test_setup(test_residue_of_short_blocks, start),
                cmocka_unit_test_setup(test_residue_does_not_pile_up, start),
                cmocka_unit_test_setup(test_look_before_handing_out, start),
                cmocka_unit_test_setup(test_many_of_odd_length, start),
                cmocka_unit_test_setup(test_time_of_joined_runs, start),
                cmocka_unit_test_setup(test_oldest_are_purged, start),
                cmocka_unit_test_setup(test_next_look, start),
                cmocka_unit_test_setup(test_idle, start),
                cmocka_unit_test_setup(test_passes, start),
                cmocka_unit_test_setup(test_refused_runs_stand_back, start),
                cmocka_unit_test_setup(test_pieces_are_system_pages, start),
                cmocka_unit_test_setup(test_many_locked_pages, start),
                cmocka_unit_test_setup(test_figures_while_purging, start),
        };

        system_init();
        return cmocka_run_group_tests_name("runs", tests, NULL, NULL);
}
