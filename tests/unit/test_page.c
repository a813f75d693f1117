/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The page layer against a model: the model keeps the owner of each page, every page carries its
 * owner, and all lists and bits are walked again and again.
 */
#define _GNU_SOURCE
#include "unit.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/metadata.h"
#include "base/options.h"
#include "page/purge.h"
#include "page/zone.h"
#include "page_model.h"
#include "random.h"
#include "resident.h"
#include "system_wrap.h"

enum {
        HEAP_BYTES = 256 << 20,
        HEAP_PAGES = HEAP_BYTES >> PAGE_SHIFT,
        BLOCKS = 400, /* live at once in the random test */
        OPERATIONS = 60000,
        CHECK_EVERY = 1000,
};

struct block {
        struct page *page; /* NULL: none */
        size_t count;
        uint32_t owner;
};

static int heap_start(void **state)
{
        (void)state;
        system_wrap_allow_all();
        system_wrap.page_bytes = 0;
        options.purge_delay = 100;
        return heap_renew(HEAP_BYTES) ? 0 : -1;
}

static struct page *alloc_zero_checked(size_t count, size_t align, unsigned int order, bool exact)
{
        bool zero = false;
        size_t fresh = 0;
        struct page *page = exact ? pages_alloc_exact(count, align, &fresh)
                                  : pages_alloc(order, NODE_ANY, &zero);

        if (!page)
                return NULL;
        assert_int_equal(page->kind, PAGE_UNUSED);
        assert_int_equal(page->state, 0);
        assert_null(page->table);
        assert_int_equal(page->next, 0);
        assert_int_equal(page->prev, 0);
        assert_int_equal(page->slot, 0);
        assert_int_equal(page_number(page) % align, 0);
        if (zero || fresh == count)
                assert_true(range_is_zero(page_address(page), count << PAGE_SHIFT));
        return page;
}

/* Slow paths purge a part at a time, as long as something is due. */
static void purge_all_due(void)
{
        size_t before;

        do {
                before = zones[0].purged_pages;
                pages_purge_due();
        } while (zones[0].purged_pages != before && ++system_wrap.now_ms);
}

static size_t resident_pages(const void *start, size_t bytes)
{
        size_t resident = resident_bytes(start, bytes);

        assert_int_not_equal(resident, SIZE_MAX);
        return resident / PAGE_SIZE;
}

static void test_starts_empty(void **state)
{
        struct page_counts counts;

        (void)state;
        assert_int_equal(heap.base % ((size_t)CHUNK_PAGES << PAGE_SHIFT), 0);
        assert_int_equal(heap.accessible_bytes, 0);
        assert_int_equal(heap.reserved_bytes, HEAP_BYTES);
        assert_false(heap_contains((void *)heap.base));
        assert_false(heap_contains(NULL));
        pages_count(&counts);
        assert_int_equal(counts.accessible_pages, 0);
        assert_int_equal(counts.used_pages, 0);
}

static void test_orders(void **state)
{
        (void)state;
        for (unsigned int order = 0; order <= ORDER_MAX; order++) {
                struct page *page =
                        alloc_zero_checked(order_pages(order), order_pages(order), order, false);

                assert_non_null(page);
                assert_int_equal(page->order, order);
                assert_true(heap_contains(page_address(page)));
                assert_ptr_equal(page_at(address_page(page_address(page))), page);
                model_take(page, order_pages(order), order + 1);
                model_check_all();
        }
}

/* Blocks freed in any order merge back to a single run. */
static void test_merging(void **state)
{
        enum { COUNT = 2 * CHUNK_PAGES };
        static struct page *pages[COUNT];
        struct random random = {42};
        struct page_counts counts;

        (void)state;
        for (size_t i = 0; i < COUNT; i++)
                pages[i] = pages_alloc(0, NODE_ANY, NULL);
        for (size_t left = COUNT; left != 0; left--) {
                size_t i = random_below(&random, left);

                pages_free(pages[i], 1);
                pages[i] = pages[left - 1];
        }
        model_check_all();
        pages_count(&counts);
        assert_int_equal(counts.used_pages, 1);
        /* Three chunks were needed, and all there are, are a single run except for page 0. */
        assert_true(counts.accessible_pages >= 3 * CHUNK_PAGES);
        assert_int_equal(page_at(1)->kind, PAGE_FREE);
        assert_int_equal(page_at(1)->length, counts.accessible_pages - 1);
}

/* Two chains of the blocks of a run, each of them turned round. */
static void chain_split(struct page *first, struct random *random, uint32_t *parts)
{
        parts[0] = parts[1] = 0;
        while (first) {
                struct page *page = first;
                size_t part = random_below(random, 2);

                first = page_list_next(page);
                page->next = parts[part];
                parts[part] = page_number(page);
        }
}

/*
 * Blocks taken at once are the blocks that single calls would give in turn, and go back at once
 * too.
 */
static void test_many(void **state)
{
        struct random random = {1};
        struct page_counts counts;
        uint32_t parts[2];

        (void)state;
        for (size_t pages = 1; pages <= 9; pages++) {
                size_t align = pages & -pages;
                struct page *first = pages_alloc_many(pages, align, NODE_ANY, 40, false);
                unsigned int count = 0;

                assert_non_null(first);
                for (struct page *page = first; page; page = page_list_next(page)) {
                        assert_int_equal(page->order, get_order(pages << PAGE_SHIFT));
                        assert_int_equal(page_number(page) % align, 0);
                        assert_int_equal(page->kind, PAGE_UNUSED);
                        memset(page_address(page), 0x5a, pages << PAGE_SHIFT);
                        count++;
                }
                assert_int_equal(count, 40);
                pages_count(&counts);
                assert_int_equal(counts.used_pages, 1 + 40 * pages);
                chain_split(first, &random, parts);
                pages_free_chain(parts[0], pages);
                for (struct page *page = page_at(parts[1]); page; page = page_list_next(page))
                        assert_int_equal(page->kind, PAGE_UNUSED);
                pages_free_chain(parts[1], pages);
                pages_count(&counts);
                assert_int_equal(counts.used_pages, 1);
                model_check_all();
        }
        pages_free_chain(0, 1);
}

/* As many as there are, and none only if there is none. */
static void test_many_but_not_so_many(void **state)
{
        struct page *first =
                pages_alloc_many(CHUNK_PAGES, CHUNK_PAGES, NODE_ANY, UINT32_MAX, false);
        size_t count = 0;

        (void)state;
        assert_non_null(first);
        for (struct page *page = first; page; page = page_list_next(page))
                count++;
        assert_true(count > 0 && count <= HEAP_PAGES / CHUNK_PAGES);
        assert_null(pages_alloc_many(CHUNK_PAGES, CHUNK_PAGES, NODE_ANY, 2, false));
        pages_free_chain(page_number(first), CHUNK_PAGES);
        model_check_all();
}

static void test_exact_gives_back_the_tail(void **state)
{
        struct page_counts before, after;
        struct page *page;

        (void)state;
        pages_free(pages_alloc(0, NODE_ANY, NULL), 1);
        for (size_t count = 1; count < 3 * CHUNK_PAGES; count += 1 + count / 3) {
                pages_count(&before);
                page = alloc_zero_checked(count, 1, 0, true);
                assert_non_null(page);
                pages_count(&after);
                assert_int_equal(after.used_pages - before.used_pages, count);
                model_take(page, count, 7);
                model_check_all();
                model_drop(page, count, 7);
                pages_free(page, count);
                model_check_all();
        }
        assert_null(pages_alloc_exact(0, 1, NULL));
        assert_null(pages_alloc_exact(SIZE_MAX, 1, NULL));
        assert_null(pages_alloc_exact(HEAP_PAGES + 1, 1, NULL));
}

/* Only touched pages are cleared; the rest of the block stays without memory. */
static void test_zeroed(void **state)
{
        struct page *holes, *page;

        (void)state;
        heap_keep_pages_small();
        /* The first chunk is used up, so that all that follows comes from the second. */
        for (unsigned int order = 0; order < ORDER_MAX; order++)
                model_take(pages_alloc(order, NODE_ANY, NULL), order_pages(order), 3);
        holes = pages_alloc(ORDER_MAX, NODE_ANY, NULL);
        pages_free(holes, CHUNK_PAGES);
        pages_purge_all(0);
        for (size_t i = 0; i < 3; i++) {
                assert_ptr_equal(pages_alloc_exact(100 * i + 1, 1, NULL), holes);
                memset(page_address(holes), 0xff, (100 * i + 1) << PAGE_SHIFT);
                pages_free(holes, 100 * i + 1);
        }
        assert_int_equal(zones[0].free_touched_pages, 201);
        page = pages_alloc_zeroed(CHUNK_PAGES - 1, 1);
        assert_ptr_equal(page, holes);
        assert_true(resident_pages(page_address(page), order_bytes(ORDER_MAX)) < 300);
        assert_true(range_is_zero(page_address(page), (CHUNK_PAGES - 1) << PAGE_SHIFT));
        model_take(page, CHUNK_PAGES - 1, 1);
        model_check_all();
        assert_null(pages_alloc_zeroed(0, 1));
        assert_null(pages_alloc_zeroed(SIZE_MAX, 1));

        /* Blocks that begin in the middle of a word of bits, and spans beyond the copy. */
        for (size_t count = 3; count < 12000; count = count * 3 + 1) {
                page = pages_alloc_exact(count, 1, NULL);
                memset(page_address(page), 0xff, count << PAGE_SHIFT);
                pages_free(page, count);
                page = pages_alloc_zeroed(count, 1);
                assert_true(range_is_zero(page_address(page), count << PAGE_SHIFT));
                model_take(page, count, 2);
        }
        model_check_all();
}

/* Above 16 MiB two pages share a bit; where either was touched, both are cleared. */
static void test_zeroed_in_pairs(void **state)
{
        enum { PAGES = 7000, TOUCHED = 501 };
        struct page *page = pages_alloc_exact(PAGES, 1, NULL);

        (void)state;
        skip_on_larger_pages();
        heap_keep_pages_small();
        assert_true(pages_resize(page, PAGES, TOUCHED));
        pages_purge_all(0);
        memset(page_address(page), 0xff, (size_t)TOUCHED << PAGE_SHIFT);
        pages_free(page, TOUCHED);
        assert_ptr_equal(pages_alloc_zeroed(PAGES, 1), page);
        assert_true(range_is_zero(page_address(page), (size_t)TOUCHED << PAGE_SHIFT));
        assert_int_in_range(resident_pages(page_address(page), (size_t)PAGES << PAGE_SHIFT),
                            TOUCHED, TOUCHED + 1);
        model_take(page, PAGES, 1);
        model_check_all();
}

static void test_resize(void **state)
{
        struct page *page = pages_alloc_exact(100, 1, NULL);
        struct page *behind;

        (void)state;
        assert_true(pages_resize(page, 100, 100));
        assert_false(pages_resize(page, 100, 0));
        assert_true(pages_resize(page, 100, 3 * CHUNK_PAGES));
        model_take(page, 3 * CHUNK_PAGES, 1);
        model_check_all();
        assert_false(pages_resize(page, 3 * CHUNK_PAGES, HEAP_PAGES + 1));
        assert_false(pages_resize(page, 3 * CHUNK_PAGES, SIZE_MAX));

        model_drop(page, 3 * CHUNK_PAGES, 1);
        assert_true(pages_resize(page, 3 * CHUNK_PAGES, 5));
        model_take(page, 5, 1);
        model_check_all();

        /* Something in the way. */
        model_drop(page, 5, 1);
        assert_true(pages_resize(page, 5, 8));
        behind = page + 8;
        assert_true(pages_resize(page, 8, 9));
        pages_free(page, 8);
        page = pages_alloc_exact(8, 1, NULL);
        assert_ptr_equal(page, behind - 8);
        assert_false(pages_resize(page, 8, 9));
        pages_free(behind, 1);
        assert_true(pages_resize(page, 8, 9));
        model_take(page, 9, 2);
        model_check_all();
}

/* A hole of two chunks between used chunks serves a smaller block, but not a larger block. */
static void test_blocks_fill_holes(void **state)
{
        struct page *chunk[8];
        struct page *span, *longer;

        (void)state;
        for (int i = 0; i < 8; i++) {
                chunk[i] = pages_alloc(ORDER_MAX, NODE_ANY, NULL);
                model_take(chunk[i], CHUNK_PAGES, (uint32_t)i + 1);
        }
        for (int i = 3; i < 5; i++) {
                model_drop(chunk[i], CHUNK_PAGES, (uint32_t)i + 1);
                pages_free(chunk[i], CHUNK_PAGES);
        }
        model_check_all();
        longer = pages_alloc_exact(2 * CHUNK_PAGES + 1, 1, NULL);
        assert_ptr_equal(longer, chunk[7] + CHUNK_PAGES);
        model_take(longer, 2 * CHUNK_PAGES + 1, 100);
        span = pages_alloc_exact(CHUNK_PAGES + 1, CHUNK_PAGES, NULL);
        assert_ptr_equal(span, chunk[3]);
        model_take(span, CHUNK_PAGES + 1, 101);
        model_check_all();
}

/* Free pages at the frontier become the beginning of a longer block. */
static void test_block_from_the_frontier(void **state)
{
        struct page *first = pages_alloc_exact(CHUNK_PAGES - 1, 1, NULL);
        struct page *chunk = pages_alloc_exact(CHUNK_PAGES, 1, NULL);
        uint32_t pages = frontier.pages;
        struct page *span;

        (void)state;
        model_take(first, CHUNK_PAGES - 1, 2);
        assert_ptr_equal(first, page_at(1));
        assert_int_equal(pages, 2 * CHUNK_PAGES);
        pages_free(chunk, CHUNK_PAGES);
        span = pages_alloc_exact(4 * CHUNK_PAGES, 1, NULL);
        assert_ptr_equal(span, chunk);
        assert_int_equal(frontier.pages, pages + 3 * CHUNK_PAGES);
        model_take(span, 4 * CHUNK_PAGES, 1);
        model_check_all();
}

/* Half of each chunk used: nothing larger than the other halves fits, but they do. */
static void test_fragmented_chunks(void **state)
{
        enum { HALVES = 2 * (HEAP_PAGES / CHUNK_PAGES) - 2 };
        static struct page *half[HALVES];
        size_t made = 0;

        (void)state;
        while (made < HALVES && (half[made] = pages_alloc(ORDER_MAX - 1, NODE_ANY, NULL)))
                made++;
        for (size_t i = 0; i < made; i++) {
                if (page_number(half[i]) & CHUNK_PAGES / 2)
                        model_take(half[i], CHUNK_PAGES / 2, 1);
                else
                        pages_free(half[i], CHUNK_PAGES / 2);
        }
        for (struct page *rest; (rest = pages_alloc(ORDER_MAX, NODE_ANY, NULL));)
                model_take(rest, CHUNK_PAGES, 2);
        assert_int_equal(frontier.pages, HEAP_PAGES);
        assert_null(pages_alloc_exact(CHUNK_PAGES + 1, 1, NULL));
        assert_null(pages_alloc_exact(CHUNK_PAGES / 2 + 1, 1, NULL));
        model_check_all();
        assert_non_null(half[0] = pages_alloc(ORDER_MAX - 1, NODE_ANY, NULL));
        model_take(half[0], CHUNK_PAGES / 2, 3);
        model_check_all();
}

/* When the reservation runs out, its last quarter serves slabs and no large blocks, nor their growth. */
static void test_last_quarter_is_for_slabs(void **state)
{
        enum { LENGTH = 3 * CHUNK_PAGES / 2 };
        struct page *page;
        bool grown = false;

        (void)state;
        while ((page = pages_alloc_exact(LENGTH, 1, NULL)))
                model_take(page, LENGTH, 1);
        while ((page = pages_alloc_exact(1, 1, NULL))) {
                model_take(page, 1, 2);
                if (page_number(page) == HEAP_PAGES / 4 * 3 - 1)
                        grown = pages_resize(page, 1, 2);
        }
        assert_int_equal(frontier.pages, HEAP_PAGES / 4 * 3);
        assert_int_equal(zones[0].free_pages, 0);
        assert_int_equal(model_owner[HEAP_PAGES / 4 * 3 - 1], 2);
        assert_false(grown);
        while ((page = pages_alloc(0, NODE_ANY, NULL)))
                model_take(page, 1, 3);
        assert_int_equal(frontier.pages, HEAP_PAGES);
        model_check_all();
}

/* A block has the shortest run that has room for it, wherever its borders are. */
static void test_best_fit(void **state)
{
        struct page *all = pages_alloc_exact(1000, 1, NULL);
        struct page *page;

        (void)state;
        model_take(all, 1000, 1);
        /* Runs of 7, 13, 50 and 40 pages. */
        static const size_t holes[][2] = {{101, 7}, {203, 13}, {310, 50}, {405, 40}};
        for (size_t i = 0; i < array_size(holes); i++) {
                model_drop(all + holes[i][0], holes[i][1], 1);
                pages_free(all + holes[i][0], holes[i][1]);
        }
        model_check_all();
        assert_ptr_equal(page = pages_alloc_exact(8, 1, NULL), all + 203);
        model_take(page, 8, 2);
        assert_ptr_equal(page = pages_alloc_exact(37, 1, NULL), all + 405);
        model_take(page, 37, 2);
        assert_ptr_equal(page = pages_alloc_exact(7, 1, NULL), all + 101);
        model_take(page, 7, 2);
        /* Only a single run has that many pages in a row from a multiple of 16 on. */
        page = pages_alloc_exact(20, 16, NULL);
        assert_true(page >= all + 310 && page < all + 360);
        assert_int_equal(page_number(page) % 16, 0);
        model_take(page, 20, 2);
        model_check_all();
        /* Both sides of the block that was cut out are still free, and join again. */
        model_drop(page, 20, 2);
        pages_free(page, 20);
        assert_ptr_equal(pages_alloc_exact(50, 1, NULL), all + 310);
        model_take(all + 310, 50, 2);
        model_check_all();
}

/* Not only the first runs of a bin are looked at where the heap cannot grow. */
static void test_run_behind_shorter_ones(void **state)
{
        enum { SHORT = 33, LONG = 36, RUNS = 40 };
        struct page *all = pages_alloc_exact(CHUNK_PAGES - 1, 1, NULL);
        struct page *more = pages_alloc_exact(CHUNK_PAGES, 1, NULL);
        struct page *page;

        (void)state;
        model_take(all, CHUNK_PAGES - 1, 1);
        model_take(more, CHUNK_PAGES, 1);
        model_drop(all, LONG, 1);
        pages_free(all, LONG);
        for (size_t i = 1; i <= RUNS; i++) {
                model_drop(all + i * (LONG + 1), SHORT, 1);
                pages_free(all + i * (LONG + 1), SHORT);
        }
        system_wrap.calls_left[CALL_COMMIT] = 0;
        assert_null(pages_alloc_exact(LONG + 1, 1, NULL));
        assert_ptr_equal(page = pages_alloc_exact(SHORT + 1, 1, NULL), all);
        model_take(page, SHORT + 1, 2);
        assert_null(pages_alloc_exact(SHORT + 1, 1, NULL));
        model_check_all();
}

/* Pages that were touched are used before others; a run with too few of them only if it is shorter. */
static void test_touched_first(void **state)
{
        struct page *all = pages_alloc_exact(300, 1, NULL);
        struct page *page;
        size_t fresh;

        (void)state;
        skip_on_larger_pages();
        model_take(all, 300, 1);
        for (size_t i = 10; i < 300; i += 100) {
                model_drop(all + i, 50, 1);
                pages_free(all + i, 50);
        }
        pages_purge_all(0);
        model_drop(all + 270, 9, 1);
        pages_free(all + 270, 9);
        model_check_all();
        assert_ptr_equal(page = pages_alloc_exact(5, 1, &fresh), all + 270);
        assert_int_equal(fresh, 0);
        model_take(page, 5, 1);
        page = pages_alloc_exact(5, 1, &fresh);
        assert_int_equal(fresh, 5);
        model_take(page, 5, 1);
        model_check_all();
}

/* A run that loses and gets back a few pages all the time is purged for all that. */
static void test_purge_of_a_run_in_use(void **state)
{
        enum { RUN = 2000 };
        struct page *all = pages_alloc_exact(RUN, 1, NULL);

        (void)state;
        skip_on_larger_pages();
        pages_free(all, RUN);
        for (int ms = 0; ms < 101; ms++) {
                struct page *page = pages_alloc_exact(3, 1, NULL);

                system_wrap.now_ms++;
                pages_free(page, 3);
        }
        purge_all_due();
        assert_int_equal(zones[0].free_touched_pages, 0);
        model_check_all();
}

/* A look of the reclaim thread makes calls for 32 MiB at most. */
static void test_purge_in_passes(void **state)
{
        enum { PASS = 8192, RUN = 3 * PASS - 100 };
        struct page *all = pages_alloc_exact(RUN, 1, NULL);
        size_t calls = system_wrap.calls_made[CALL_PURGE];

        (void)state;
        skip_on_larger_pages();
        pages_free(all, RUN);
        system_wrap.now_ms += 100;
        assert_int_equal(pages_purge_idle(), (size_t)RUN << PAGE_SHIFT);
        assert_int_equal(zones[0].free_touched_pages, 0);
        assert_int_equal(system_wrap.calls_made[CALL_PURGE] - calls, 3);
        assert_int_equal(zones[0].purged_pages, RUN);
        model_check_all();
}

/* A call of the program gives back 2 MiB, and the next page that it frees looks again. */
static void test_purge_in_calls(void **state)
{
        enum { CALL = 512, PENDING = 16, RUN = 3 * CALL - 100 };
        struct page *all = pages_alloc_exact(RUN, 1, NULL);

        (void)state;
        pages_free(all, RUN);
        system_wrap.now_ms += 100;
        pages_purge_due();
        assert_int_equal(zones[0].free_touched_pages, RUN - CALL);
        model_check_all();
        for (size_t left = RUN - CALL; left; left -= min_of(left, (size_t)CALL)) {
                system_wrap.now_ms++;
                assert_int_in_range(zones[0].free_touched_pages, left, left + 1);
                for (int page = 0; page < PENDING / 2; page++)
                        pages_free(pages_alloc_exact(1, 1, NULL), 1);
        }
        assert_int_in_range(zones[0].free_touched_pages, 0, PENDING);
        model_check_all();
}

/*
 * PURGE-1: frees a run, makes a block that is longer and so lies on pages that were never touched, and checks that as
 * many others go back, but for a thirty-second of the pages in use, and @room at most. Returns how many went.
 */
static size_t returned_for(size_t pages, size_t room)
{
        struct page *run = pages_alloc_exact(pages - 1, 1, NULL);
        const struct zone *zone = &zones[0];
        size_t fresh, touched, spare, used;
        struct page *block;

        model_take(pages_alloc_exact(1, 1, NULL), 1, 1); /* the run stays alone */
        pages_free(run, pages - 1);
        block = pages_alloc_exact(pages, 1, &fresh);
        assert_int_equal(fresh, pages);
        model_take(block, pages, 1);
        touched = zone->free_touched_pages;
        used = zone->chunks * (size_t)CHUNK_PAGES - zone->free_pages;
        spare = touched - min_of(touched, used / 32);
        pages_purge_in_return(block, fresh);
        spare = min_of(spare, pages);
        assert_int_equal(touched - zone->free_touched_pages, min_of(spare, room));
        model_check_all();
        return touched - zone->free_touched_pages;
}

static void *ends_at_once(void *argument)
{
        return argument;
}

static void test_purge_in_return(void **state)
{
        enum { PAGES = 3000, ROOM = 4096, LEAST = 256 };
        struct page *block;
        size_t room = ROOM;
        pthread_t thread;
        size_t touched;
        uint64_t start;

        (void)state;
        skip_on_larger_pages();
        if (system_threads() != THREADS_ONE)
                skip_because("libc does not say that there is a single thread");
        start = system_wrap.now_ms += 10 * pages_delay_ms();
        for (int i = 0; i < 4; i++)
                room -= returned_for(PAGES, room);
        assert_int_equal(room, 0);
        /* Ten delays later 16 MiB may go back again. What is older than one went back unasked. */
        system_wrap.now_ms += pages_delay_ms();
        purge_all_due();
        system_wrap.now_ms = start + 10 * pages_delay_ms() - 1;
        assert_int_equal(returned_for(PAGES, 0), 0);
        system_wrap.now_ms += 1;
        assert_int_not_equal(returned_for(PAGES, ROOM), 0);
        /* Not for few pages, nor beside other threads. */
        block = pages_alloc_exact(2 * PAGES, 1, NULL);
        pages_free(block + 1, 2 * PAGES - 1);
        model_take(block, 1, 1);
        touched = zones[0].free_touched_pages;
        pages_purge_in_return(block, LEAST - 1);
        assert_int_equal(zones[0].free_touched_pages, touched);
        pages_purge_in_return(block, LEAST);
        assert_int_equal(zones[0].free_touched_pages, touched - LEAST);
        assert_int_equal(pthread_create(&thread, NULL, ends_at_once, NULL), 0);
        pthread_join(thread, NULL);
        pages_purge_in_return(block, LEAST);
        assert_int_equal(zones[0].free_touched_pages, touched - LEAST);
        model_check_all();
}

/* What was handed out again and touched, of pages that went back. */
static void wanted_again(struct page **block, size_t pages, bool touched)
{
        pages_free(*block, pages);
        system_wrap.now_ms += pages_delay_ms();
        purge_all_due();
        system_wrap.faults += touched ? pages : 0;
        *block = pages_alloc_exact(pages, 1, NULL);
}

/*
 * Pages stay longer while those that went back are touched again, up to sixteen times the option's
 * delay, and as long as the option says once they are not.
 */
static void test_delay_follows_the_need(void **state)
{
        enum { PAGES = 1024 };
        struct page *block = pages_alloc_exact(PAGES, 1, NULL);

        (void)state;
        assert_int_equal(pages_delay_ms(), 100);
        for (int round = 0; round < 20; round++)
                wanted_again(&block, PAGES, true);
        assert_int_equal(pages_delay_ms(), 1600);
        /* Handed out again, but not touched: the block is written at its beginning only. */
        for (int round = 0; round < 20; round++)
                wanted_again(&block, PAGES, false);
        assert_int_equal(pages_delay_ms(), 100);
        pages_free(block, PAGES);
        model_check_all();
}

/*
 * The flag of huge pages of the mapping that has an address: "nh" not wanted, "hg" wanted, "" as the
 * system likes; NULL if the system tells no flags.
 */
static const char *huge_page_flag(const void *address)
{
        FILE *file = fopen("/proc/self/smaps", "r");
        const char *flag = NULL;
        bool here = false;
        char line[512];

        assert_non_null(file);
        while (fgets(line, sizeof(line), file)) {
                uintptr_t start, end;

                if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2)
                        here = start <= (uintptr_t)address && (uintptr_t)address < end;
                if (!here || strncmp(line, "VmFlags:", 8) != 0)
                        continue;
                flag = strstr(line, " nh") ? "nh" : strstr(line, " hg") ? "hg" : "";
        }
        fclose(file);
        return flag;
}

/* The beginning of the heap keeps to small pages, unless option thp says otherwise. */
static void test_huge_pages(void **state)
{
        static const struct {
                enum thp thp;
                const char *begin;
                const char *behind;
        } cases[] = {{THP_AUTO, "nh", ""}, {THP_NEVER, "nh", "nh"}, {THP_ALWAYS, "hg", "hg"}};
        const size_t small = (size_t)32 << 20;

        (void)state;
        for (size_t i = 0; i < array_size(cases); i++) {
                options.thp = cases[i].thp;
                assert_true(heap_renew(HEAP_BYTES));
                assert_non_null(pages_alloc_exact((small >> PAGE_SHIFT) + CHUNK_PAGES, 1, NULL));
                if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0 ||
                    !huge_page_flag((void *)heap.base)) {
                        print_message("# skipped: this kernel has no transparent huge pages, or "
                                      "tells no flags\n");
                        options.thp = THP_AUTO;
                        skip();
                }
                assert_string_equal(huge_page_flag((void *)heap.base), cases[i].begin);
                assert_string_equal(huge_page_flag((void *)(heap.base + small)), cases[i].behind);
        }
        options.thp = THP_AUTO;
}

/* However far the heap grows, and whatever is purged inside it. */
static void test_mappings_stay_few(void **state)
{
        size_t before;
        struct page *page;

        (void)state;
        model_take(pages_alloc(0, NODE_ANY, NULL), 1, 1);
        before = mappings_count();
        for (int i = 0; i < 40; i++) {
                assert_non_null(page = pages_alloc(ORDER_MAX, NODE_ANY, NULL));
                model_take(page, CHUNK_PAGES, 2);
                if (i % 3 == 0) {
                        model_drop(page, CHUNK_PAGES, 2);
                        pages_free(page, CHUNK_PAGES);
                        pages_purge_all(0);
                }
        }
        assert_true(mappings_count() <= before + 1);
}

static void test_map(void **state)
{
        struct page *page = pages_alloc(3, NODE_ANY, NULL);

        (void)state;
        page_map_set(page, 8, 48);
        for (uint32_t i = 0; i < 8; i++)
                assert_int_equal(heap.map[page_number(page) + i], 48);
        assert_int_equal(heap.map[page_number(page) + 8], 0);
        page_map_set(page, 8, 0);
        pages_free(page, 8);
}

/* A random operation on a block. */
static void random_step(struct random *random, struct block *block, uint32_t owner)
{
        size_t count = random_below(random, 10) ? 1 + random_below(random, 64)
                                                : 1 + random_below(random, 3 * CHUNK_PAGES);
        size_t kind = random_below(random, 8);

        if (!block->page && kind < 4) {
                unsigned int order = (unsigned int)random_below(random, ORDER_MAX + 1);

                block->count = order_pages(order);
                block->page = alloc_zero_checked(block->count, block->count, order, false);
        } else if (!block->page) {
                size_t align = (size_t)1 << random_below(random, 5);

                block->count = count;
                block->page = alloc_zero_checked(count, align, 0, true);
        } else if (kind < 5) {
                model_drop(block->page, block->count, block->owner);
                pages_free(block->page, block->count);
                block->page = NULL;
                return;
        } else if (kind < 6) {
                /* The lower part goes, the upper part becomes a block. */
                size_t part = random_below(random, block->count);

                if (part == 0)
                        return;
                model_drop(block->page, part, block->owner);
                pages_free(block->page, part);
                block->page += part;
                block->count -= part;
                return;
        } else {
                model_drop(block->page, block->count, block->owner);
                if (pages_resize(block->page, block->count, count))
                        block->count = count;
        }
        block->owner = owner;
        if (block->page)
                model_take(block->page, block->count, owner);
}

static void test_random(void **state)
{
        static struct block blocks[BLOCKS];
        struct random random = {20240501};

        (void)state;
        skip_on_larger_pages();
        memset(blocks, 0, sizeof(blocks));
        for (uint32_t i = 1; i <= OPERATIONS; i++) {
                random_step(&random, &blocks[random_below(&random, BLOCKS)], i);
                if (random_below(&random, 16) == 0)
                        system_wrap.now_ms += random_below(&random, 100);
                if (random_below(&random, 64) == 0)
                        pages_purge_due();
                if (random_below(&random, 2048) == 0)
                        pages_purge_all(random_below(&random, 64 << 20));
                if (i % CHECK_EVERY == 0)
                        model_check_all();
                /* Times of plenty and of want. */
                system_wrap.calls_left[CALL_COMMIT] = i / 5000 % 2 ? 0 : SIZE_MAX;
                system_wrap.calls_left[CALL_PURGE] = i / 3000 % 3 ? SIZE_MAX : 0;
        }
        for (size_t i = 0; i < BLOCKS; i++)
                if (blocks[i].page) {
                        model_drop(blocks[i].page, blocks[i].count, blocks[i].owner);
                        pages_free(blocks[i].page, blocks[i].count);
                }
        system_wrap_allow_all();
        system_wrap.now_ms += 1;
        pages_purge_all(0);
        model_check_all();
        assert_int_equal(zones[0].free_touched_pages, 0);
        assert_int_equal(zones[0].free_pages, frontier.pages - 1);
}

/* Each commit of a growing heap is refused in turn; memory that was there before stays usable. */
static void test_refused_commits(void **state)
{
        (void)state;
        for (size_t granted = 0; granted < 12; granted++) {
                struct page *page;
                size_t calls;

                heap_start(NULL);
                system_wrap.calls_left[CALL_COMMIT] = granted;
                calls = system_wrap.calls_made[CALL_COMMIT];
                page = pages_alloc_exact(5 * CHUNK_PAGES + 17, 1, NULL);
                if (page)
                        model_take(page, 5 * CHUNK_PAGES + 17, 1);
                model_check_all();
                calls = system_wrap.calls_made[CALL_COMMIT] - calls;
                assert_true(page ? calls <= granted : calls > granted);
                assert_true(granted < 11 || page);

                system_wrap_allow_all();
                page = pages_alloc_exact(5 * CHUNK_PAGES + 17, 1, NULL);
                assert_non_null(page);
                model_take(page, 5 * CHUNK_PAGES + 17, 2);
                model_check_all();
        }
}

/* The tables may be refused for 128 MiB ahead and granted for the needed part. */
static void test_tables_fall_back_to_the_need(void **state)
{
        struct page *page;

        (void)state;
        system_wrap.calls_left[CALL_COMMIT] = 0;
        assert_null(pages_alloc(0, NODE_ANY, NULL));
        assert_int_equal(frontier.table_pages, 0);
        system_wrap_allow_all();
        page = pages_alloc(0, NODE_ANY, NULL);
        assert_non_null(page);
        assert_int_equal(frontier.table_pages, 32 * CHUNK_PAGES);
}

static void test_reservation_used_up(void **state)
{
        struct page *page;
        size_t chunks = 0;

        (void)state;
        while ((page = pages_alloc(ORDER_MAX, NODE_ANY, NULL))) {
                model_take(page, CHUNK_PAGES, 1);
                chunks++;
        }
        assert_int_equal(chunks, HEAP_PAGES / CHUNK_PAGES - 1);
        while ((page = pages_alloc(0, NODE_ANY, NULL)))
                model_take(page, 1, 2);
        model_check_all();
        assert_int_equal(zones[0].free_pages, 0);
}

static void test_purge_all_gives_memory_back(void **state)
{
        struct page *chunk = pages_alloc(ORDER_MAX, NODE_ANY, NULL);
        struct page *small = pages_alloc(0, NODE_ANY, NULL);
        void *start = page_address(chunk);
        bool zero;

        (void)state;
        heap_keep_pages_small();
        memset(start, 1, order_bytes(ORDER_MAX));
        memset(page_address(small), 1, PAGE_SIZE);
        pages_free(chunk, CHUNK_PAGES);
        assert_int_equal(resident_pages(start, order_bytes(ORDER_MAX)), CHUNK_PAGES);

        /* Pages that are to be kept are kept. */
        assert_int_equal(pages_purge_all(order_bytes(ORDER_MAX)), 0);
        assert_int_equal(resident_pages(start, order_bytes(ORDER_MAX)), CHUNK_PAGES);
        assert_int_equal(pages_purge_all(0), order_bytes(ORDER_MAX));
        assert_int_equal(resident_pages(start, order_bytes(ORDER_MAX)), 0);
        assert_int_equal(zones[0].purged_pages, CHUNK_PAGES);
        assert_int_equal(pages_purge_all(0), 0);

        pages_free(small, 1);
        assert_int_equal(pages_purge_all(0), system_page_bytes() == PAGE_SIZE ? PAGE_SIZE : 0);
        model_check_all();

        assert_ptr_equal(pages_alloc(ORDER_MAX, NODE_ANY, &zero), chunk);
        assert_true(zero);
        model_take(chunk, CHUNK_PAGES, 1);
}

static void test_purge_waits_for_the_delay(void **state)
{
        struct page *chunk = pages_alloc(ORDER_MAX, NODE_ANY, NULL);
        struct page *small = pages_alloc_exact(4, 1, NULL);
        struct page *again;
        bool zero;

        (void)state;
        skip_on_larger_pages();
        pages_free(chunk, CHUNK_PAGES);
        pages_free(small, 4);
        system_wrap.now_ms += 99;
        pages_purge_due();
        assert_int_equal(zones[0].purged_pages, 0);
        /* Memory freed lately is used again, and is not known to be zero. */
        again = pages_alloc(ORDER_MAX, NODE_ANY, &zero);
        assert_ptr_equal(again, chunk);
        assert_false(zero);
        pages_free(again, CHUNK_PAGES);
        system_wrap.now_ms += 99;
        pages_purge_due();
        assert_int_equal(zones[0].purged_pages, 0);
        system_wrap.now_ms += 1;
        purge_all_due();
        assert_int_equal(zones[0].purged_pages >= CHUNK_PAGES, 1);
        assert_int_equal(zones[0].purge_at, UINT64_MAX);
        model_check_all();
}

static void test_purge_at_once(void **state)
{
        struct page *chunk = pages_alloc(ORDER_MAX, NODE_ANY, NULL);
        struct page *run = pages_alloc_exact(PURGE_PAGES, 1, NULL);

        (void)state;
        skip_on_larger_pages();
        options.purge_delay = 0;
        pages_free(run, PURGE_PAGES);
        assert_int_equal(zones[0].purged_pages, PURGE_PAGES);
        pages_free(chunk, CHUNK_PAGES);
        assert_int_equal(zones[0].free_touched_pages, 0);
        model_check_all();
}

/* Freeing looks for due blocks by itself, so that no thread of ours is needed. */
static void test_frees_purge(void **state)
{
        struct page *chunk = pages_alloc(ORDER_MAX, NODE_ANY, NULL);

        (void)state;
        pages_free(chunk, CHUNK_PAGES);
        system_wrap.now_ms += 100;
        for (int i = 0; i < 256; i++) {
                pages_free(pages_alloc(0, NODE_ANY, NULL), 1);
                system_wrap.now_ms++;
        }
        assert_true(zones[0].purged_pages >= CHUNK_PAGES);
        model_check_all();
}

/* If all memory is locked, nothing is lost, and it is tried again later only, with few calls. */
static void test_refused_purge(void **state)
{
        struct page *chunk = pages_alloc(ORDER_MAX, NODE_ANY, NULL);
        size_t calls;

        (void)state;
        pages_free(chunk, CHUNK_PAGES);
        system_wrap.calls_left[CALL_PURGE] = 0;
        system_wrap.now_ms += 100;
        calls = system_wrap.calls_made[CALL_PURGE];
        pages_purge_due();
        assert_int_in_range(system_wrap.calls_made[CALL_PURGE] - calls, 1, 40);
        calls = system_wrap.calls_made[CALL_PURGE];
        pages_purge_due();
        assert_int_equal(system_wrap.calls_made[CALL_PURGE] - calls, 0);
        assert_int_equal(pages_purge_all(0), 0);
        assert_int_equal(zones[0].free_touched_pages, CHUNK_PAGES);
        model_check_all();
        system_wrap_allow_all();
        system_wrap.now_ms += 2 * 100 + 1; /* the delay is doubled */
        purge_all_due();
        assert_int_equal(zones[0].free_touched_pages, 0);
        model_check_all();
}

/* Where many runs are refused, a call asks for some of them, and the next pass over them comes later. */
static void test_refused_runs(void **state)
{
        enum { RUNS = 400, PAGES = PURGE_PAGES, CALLS_MOST = 2 * RUNS };
        static struct page *runs[2 * RUNS];
        uint64_t delay;
        size_t calls;

        (void)state;
        skip_on_larger_pages();
        for (int i = 0; i < 2 * RUNS; i++)
                assert_non_null(runs[i] = pages_alloc_exact(PAGES, 1, NULL));
        for (int i = 0; i < 2 * RUNS; i += 2)
                pages_free_exact(runs[i], PAGES);
        system_wrap.calls_left[CALL_PURGE] = 0;
        system_wrap.now_ms += 101;
        delay = pages_delay_ms();
        calls = system_wrap.calls_made[CALL_PURGE];
        pages_purge_due();
        assert_int_in_range(system_wrap.calls_made[CALL_PURGE] - calls, 1, CALLS_MOST);
        assert_true(pages_delay_ms() > delay);
        system_wrap_allow_all();
        for (int i = 1; i < 2 * RUNS; i += 2)
                pages_free_exact(runs[i], PAGES);
        assert_true(pages_purge_all(0) > 0);
        model_check_all();
}

/* Pages that the program locked, and freed so, do not keep others. */
static void test_purge_around_locked_pages(void **state)
{
        enum { PAGES = 3 * 8192, LOCKED = 40, PART = 100 };
        struct page *block = pages_alloc_exact(PAGES, 1, NULL);
        char *start = page_address(block);
        size_t touched;
        size_t bytes;

        (void)state;
        skip_on_larger_pages();
        skip_if_sanitized();
        heap_keep_pages_small();
        memset(start, 1, (size_t)PAGES << PAGE_SHIFT);
        /*
         * The first page, a page in the middle, and several side by side; in two of the three
         * passes.
         */
        if (mlock(start, PAGE_SIZE) || mlock(start + 5000 * PAGE_SIZE, PAGE_SIZE) ||
            mlock(start + 20000 * PAGE_SIZE, LOCKED * PAGE_SIZE)) {
                print_message("# skipped: memory cannot be locked here\n");
                skip();
        }
        pages_free(block, PAGES);
        for (int pass = 0; pass < 4; pass++) {
                system_wrap.now_ms += 101;
                pages_purge_idle();
        }
        assert_int_in_range(zones[0].free_touched_pages, LOCKED + 2, 2 * LOCKED + PART);
        assert_int_equal(resident_pages(start, (size_t)PAGES << PAGE_SHIFT),
                         zones[0].free_touched_pages);
        assert_int_equal(zones[0].purged_pages, PAGES - zones[0].free_touched_pages);
        model_check_all();
        /* Pages that the system refuses to take do not count as given back. */
        system_wrap.now_ms += 101;
        touched = zones[0].free_touched_pages;
        bytes = pages_purge_all(0);
        assert_int_equal(bytes, (touched - zones[0].free_touched_pages) << PAGE_SHIFT);
        assert_true(zones[0].free_touched_pages > LOCKED);
        assert_int_equal(munlock(start, (size_t)PAGES << PAGE_SHIFT), 0);
        system_wrap.now_ms++;
        assert_true(pages_purge_all(0) > 0);
        assert_int_equal(zones[0].free_touched_pages, 0);
        assert_int_equal(zones[0].purged_pages, PAGES);
        model_check_all();
}

/* Touched pages in system pages that are used in part stay, and purging ends all the same. */
static void test_purge_in_larger_system_pages(void **state)
{
        enum { SYSTEM_PAGES = 16, PAGES = 40 };
        struct page *neighbour = pages_alloc_exact(2, 1, NULL);
        struct page *block = pages_alloc_exact(4, 1, NULL);
        void *start;

        (void)state;
        skip_on_larger_pages();
        heap_keep_pages_small();
        model_take(neighbour, 2, 1);
        system_wrap.page_bytes = SYSTEM_PAGES * PAGE_SIZE;
        assert_int_equal(page_number(block), page_number(neighbour) + 2);
        pages_free(block, 4);
        assert_int_equal(pages_purge_all(0), 0);
        assert_int_equal(zones[0].free_touched_pages, 4);
        system_wrap.now_ms += 200;
        pages_purge_idle();
        model_check_all();

        block = pages_alloc_exact(PAGES, 1, NULL);
        assert_int_equal(page_number(block), page_number(neighbour) + 2);
        start = page_address(block);
        memset(start, 1, PAGES * PAGE_SIZE);
        pages_free(block, PAGES);
        assert_int_equal(pages_purge_all(0),
                         (page_number(block) + PAGES - SYSTEM_PAGES) * PAGE_SIZE);
        assert_int_equal(zones[0].free_touched_pages, SYSTEM_PAGES - page_number(block));
        assert_int_equal(pages_purge_all(0), 0);
        system_wrap.page_bytes = 0;
        assert_int_equal(resident_pages(start, PAGES * PAGE_SIZE),
                         SYSTEM_PAGES - page_number(block));
        model_check_all();
}

/* Before there is a registry nobody would read the figures. */
static void test_no_figures_without_a_registry(void **state)
{
        struct page *page = pages_alloc_exact(3, 1, NULL);

        (void)state;
        pages_free(page, 3);
        assert_null(registry_head_shown());
        assert_int_equal(no_registry.zone[0].used_pages, 0);
        assert_int_equal(no_registry.zone[0].free_pages, 0);
}

/*
 * Threads that together want exactly all chunks there are, while another purges all the
 * time: a chunk that is being purged must never make an allocation fail.
 */
enum { THREADS = 4, THREAD_ROUNDS = 3000, THREAD_CHUNKS = 15 };

static bool threads_stop;

static void *purge_thread(void *argument)
{
        (void)argument;
        while (!load_relaxed(&threads_stop)) {
                add_relaxed(&system_wrap.now_ms, 1);
                pages_purge_all(0);
        }
        return NULL;
}

static void *chunk_thread(void *argument)
{
        uint32_t owner = (uint32_t)(uintptr_t)argument;
        struct page *held[THREAD_CHUNKS];
        size_t most = (size_t)(owner == 1 ? THREAD_CHUNKS % THREADS : 0) + THREAD_CHUNKS / THREADS;

        for (int round = 0; round < THREAD_ROUNDS; round++) {
                for (size_t i = 0; i < most; i++) {
                        held[i] = pages_alloc(ORDER_MAX, NODE_ANY, NULL);
                        check_or_die(held[i]);
                        *(uint32_t *)page_address(held[i]) = owner;
                }
                for (size_t i = 0; i < most; i++) {
                        check_or_die(*(uint32_t *)page_address(held[i]) == owner);
                        pages_free(held[i], CHUNK_PAGES);
                }
        }
        return NULL;
}

static void test_purging_never_refuses(void **state)
{
        pthread_t threads[THREADS];
        pthread_t purger;

        (void)state;
        assert_true(heap_renew(64 << 20));
        threads_stop = false;
        assert_int_equal(pthread_create(&purger, NULL, purge_thread, NULL), 0);
        for (uintptr_t i = 0; i < THREADS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, chunk_thread, (void *)(i + 1)),
                                 0);
        for (int i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        store_relaxed(&threads_stop, true);
        pthread_join(purger, NULL);
        assert_int_equal(zones[0].limbo_pages, 0);
        model_check_all();
}

/* The whole reservation stays within half of the limit. */
static int child_address_space_limit(void)
{
        struct rlimit limit = {.rlim_cur = (rlim_t)4 << 30, .rlim_max = (rlim_t)4 << 30};
        size_t total;

        child_check(setrlimit(RLIMIT_AS, &limit) == 0);
        /* The emulator ignores that, but has a limit of its own from the cross file. */
        child_check(getrlimit(RLIMIT_AS, &limit) == 0);
        child_check(emulated() || limit.rlim_cur == (rlim_t)4 << 30);
        if (limit.rlim_cur == RLIM_INFINITY) {
                dprintf(STDERR_FILENO, "# skipped: the emulator ignores setrlimit(RLIMIT_AS)\n");
                return 77;
        }
        child_check(heap_renew(0));
        total = heap.base + heap.reserved_bytes - (uintptr_t)heap.map;
        child_check(total <= limit.rlim_cur / 2);
        child_check(heap.reserved_bytes >= limit.rlim_cur / 4);
        child_check(pages_alloc(0, NODE_ANY, NULL));
        return 0;
}

static void test_address_space_limit(void **state)
{
        (void)state;
        skip_if_sanitized();
        run_in_child(child_address_space_limit);
}

/*
 * As on AArch64 with addresses of 39 bits, which are 512 GiB: others hold all but a hole of 400 GiB
 * and remains. The reservation, which wants at least a TiB, halves until there is room for it.
 */
static int child_small_address_space(void)
{
        const size_t hole_bytes = (size_t)400 << 30;
        void *hole = system_reserve(hole_bytes);

        child_check(hole);
        for (size_t bytes = (size_t)1 << 46; bytes >= (size_t)64 << 30; bytes /= 2)
                while (system_reserve(bytes))
                        ;
        system_unmap(hole, hole_bytes);
        child_check(heap_renew(0));
        child_check(heap.reserved_bytes == (size_t)256 << 30);
        child_check(pages_alloc(ORDER_MAX, NODE_ANY, NULL));
        return 0;
}

static void test_small_address_space(void **state)
{
        (void)state;
        skip_if_sanitized();
        if (emulated())
                skip_because("the emulator and valgrind keep track of each page that is reserved");
        run_in_child(child_small_address_space);
}

static bool is_mapped(const void *address)
{
        uintptr_t start = round_down((uintptr_t)address, system_page_bytes());
        unsigned char resident;

        return mincore((void *)start, 1, &resident) == 0;
}

/* In a child: others may get the address space that is given back. */
static int child_fit_limit(void)
{
        struct page *page = pages_alloc(ORDER_MAX, NODE_ANY, NULL);
        size_t pages;

        child_check(page);
        model_take(page, CHUNK_PAGES, 1);
        pages_fit_limit(SIZE_MAX);
        child_check(frontier.reserved == HEAP_PAGES);
        pages_fit_limit(HEAP_BYTES);
        pages = frontier.reserved;
        child_check(pages < HEAP_PAGES / 2 && pages > HEAP_PAGES / 4);
        child_check(heap.reserved_bytes == pages << PAGE_SHIFT);
        /* Memory that others map there is no object of the heap. */
        child_check(heap.outside == ~((uintptr_t)HEAP_BYTES / 2 - 1));
        child_check(!is_mapped(&heap.map[HEAP_PAGES - 1]) && is_mapped(&heap.map[pages - 1]));
        child_check(!is_mapped(page_at(HEAP_PAGES - 1)) && is_mapped(page_at((uint32_t)pages - 1)));
        child_check(!is_mapped((char *)heap.base + HEAP_BYTES - 1));
        child_check(!is_mapped((char *)heap.base + (pages << PAGE_SHIFT)));
        while ((page = pages_alloc(0, NODE_ANY, NULL)))
                model_take(page, 1, 2);
        child_check(frontier.pages == pages);
        model_check_all();
        /* Nothing that is in use goes. */
        pages_fit_limit(1);
        child_check(frontier.reserved == pages && heap.reserved_bytes == pages << PAGE_SHIFT);
        model_check_all();
        return 0;
}

static void test_fit_limit(void **state)
{
        (void)state;
        run_in_child(child_fit_limit);
}

/* A heap that does not get its first memory leaves nothing behind that is used later. */
static int child_refused_start(void)
{
        char *others;

        metadata_set_reserve(NULL, 0); /* that of the heap before */
        system_wrap.calls_left[CALL_COMMIT] = 0;
        child_check(!heap_renew(HEAP_BYTES));
        system_wrap_allow_all();
        /* The system gives others the addresses that it got back last. */
        others = system_reserve(HEAP_BYTES + HEAP_BYTES / 16);
        child_check(others);
        pages_fit_limit(HEAP_BYTES);
        if (checks_natively("mincore of memory without access"))
                for (size_t offset = 0; offset < HEAP_BYTES; offset += PAGE_SIZE)
                        child_check(is_mapped(others + offset));
        system_wrap.calls_left[CALL_MAP] = 0;
        child_check(!metadata_alloc(300000));
        system_wrap_allow_all();
        child_check(heap_renew(HEAP_BYTES) && pages_alloc(0, NODE_ANY, NULL));
        return 0;
}

static void test_refused_start(void **state)
{
        (void)state;
        run_in_child(child_refused_start);
}

/* Real refusals by the system: writable memory is limited, address space is not. */
static int child_data_limit(void)
{
        struct rlimit limit = {.rlim_cur = (rlim_t)96 << 20, .rlim_max = (rlim_t)96 << 20};
        struct page *page;
        size_t chunks = 0;

        child_check(setrlimit(RLIMIT_DATA, &limit) == 0);
        while ((page = pages_alloc(ORDER_MAX, NODE_ANY, NULL))) {
                *(char *)page_address(page) = 1;
                chunks++;
        }
        if (chunks == HEAP_PAGES / CHUNK_PAGES - 1) {
                dprintf(STDERR_FILENO, "# RLIMIT_DATA is not enforced here\n");
                return 77;
        }
        child_check(chunks > 2 && chunks < 24);
        child_check((page = pages_alloc(ORDER_MAX - 1, NODE_ANY, NULL)) != NULL);
        pages_free(page, CHUNK_PAGES / 2);
        return 0;
}

static void test_data_limit(void **state)
{
        (void)state;
        skip_if_sanitized();
        run_in_child(child_data_limit);
}

static void test_default_reservation(void **state)
{
        (void)state;
        assert_true(heap_renew(0));
        assert_true(heap.reserved_bytes >= (size_t)64 << 20);
        assert_int_equal(heap.reserved_bytes % ((size_t)CHUNK_PAGES << PAGE_SHIFT), 0);
        assert_non_null(pages_alloc(0, NODE_ANY, NULL));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_starts_empty, heap_start),
                cmocka_unit_test_setup(test_orders, heap_start),
                cmocka_unit_test_setup(test_merging, heap_start),
                cmocka_unit_test_setup(test_many, heap_start),
                cmocka_unit_test_setup(test_many_but_not_so_many, heap_start),
                cmocka_unit_test_setup(test_exact_gives_back_the_tail, heap_start),
                cmocka_unit_test_setup(test_zeroed, heap_start),
                cmocka_unit_test_setup(test_zeroed_in_pairs, heap_start),
                cmocka_unit_test_setup(test_resize, heap_start),
                cmocka_unit_test_setup(test_blocks_fill_holes, heap_start),
                cmocka_unit_test_setup(test_block_from_the_frontier, heap_start),
                cmocka_unit_test_setup(test_fragmented_chunks, heap_start),
                cmocka_unit_test_setup(test_last_quarter_is_for_slabs, heap_start),
                cmocka_unit_test_setup(test_best_fit, heap_start),
                cmocka_unit_test_setup(test_run_behind_shorter_ones, heap_start),
                cmocka_unit_test_setup(test_touched_first, heap_start),
                cmocka_unit_test_setup(test_purge_of_a_run_in_use, heap_start),
                cmocka_unit_test_setup(test_purge_in_passes, heap_start),
                cmocka_unit_test_setup(test_purge_in_calls, heap_start),
                cmocka_unit_test_setup(test_purge_in_return, heap_start),
                cmocka_unit_test_setup(test_delay_follows_the_need, heap_start),
                cmocka_unit_test_setup(test_huge_pages, heap_start),
                cmocka_unit_test_setup(test_mappings_stay_few, heap_start),
                cmocka_unit_test_setup(test_map, heap_start),
                cmocka_unit_test_setup(test_random, heap_start),
                cmocka_unit_test_setup(test_refused_commits, heap_start),
                cmocka_unit_test_setup(test_tables_fall_back_to_the_need, heap_start),
                cmocka_unit_test_setup(test_reservation_used_up, heap_start),
                cmocka_unit_test_setup(test_purge_all_gives_memory_back, heap_start),
                cmocka_unit_test_setup(test_purge_waits_for_the_delay, heap_start),
                cmocka_unit_test_setup(test_purge_at_once, heap_start),
                cmocka_unit_test_setup(test_frees_purge, heap_start),
                cmocka_unit_test_setup(test_refused_purge, heap_start),
                cmocka_unit_test_setup(test_refused_runs, heap_start),
                cmocka_unit_test_setup(test_purge_around_locked_pages, heap_start),
                cmocka_unit_test_setup(test_purge_in_larger_system_pages, heap_start),
                cmocka_unit_test_setup(test_no_figures_without_a_registry, heap_start),
                cmocka_unit_test_setup(test_purging_never_refuses, heap_start),
                cmocka_unit_test_setup(test_address_space_limit, heap_start),
                cmocka_unit_test_setup(test_small_address_space, heap_start),
                cmocka_unit_test_setup(test_fit_limit, heap_start),
                cmocka_unit_test_setup(test_refused_start, heap_start),
                cmocka_unit_test_setup(test_data_limit, heap_start),
                cmocka_unit_test_setup(test_default_reservation, heap_start),
        };

        system_init();
        return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}
