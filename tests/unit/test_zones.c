/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Zones: pages of several NUMA nodes, against the model. The nodes are fake, and a thread is on the
 * node that it says.
 */
#define _GNU_SOURCE
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/options.h"
#include "page/purge.h"
#include "page/zone.h"
#include "machine/system.h"
#include "page_model.h"
#include "random.h"
#include "system_wrap.h"

enum {
        HEAP_BYTES = 256 << 20,
        HEAP_CHUNKS = HEAP_BYTES >> PAGE_SHIFT >> ORDER_MAX,
        CHUNK_BYTES = CHUNK_PAGES << PAGE_SHIFT,
        BLOCKS = 400,
        OPERATIONS = 30000,
        CHECK_EVERY = 1500,
};

/* ---- The machine -------------------------------------------------------------------------- */

static __thread unsigned int here;

unsigned int __wrap_system_current_node(void);

unsigned int __wrap_system_current_node(void)
{
        return here;
}

/* The last request to system_bind, the number of requests, and its answer. */
static struct {
        size_t calls[NODES_MAX];
        void *start;
        size_t bytes;
        int error[NODES_MAX];
        bool even_really; /* ranges of even nodes get a policy */
} bind;

int __wrap_system_bind(void *start, size_t bytes, unsigned int node);

int __wrap_system_bind(void *start, size_t bytes, unsigned int node)
{
        unsigned long mask = 1;

        bind.calls[node]++;
        bind.start = start;
        bind.bytes = bytes;
        if (bind.even_really && node % 2 == 0)
                return syscall(SYS_mbind, start, bytes, 1, &mask, 65, 0) ? errno : 0;
        return bind.error[node];
}

/* Called once, when the search goes on from a zone to the next zone. */
static void (*between_zones)(void);

unsigned int __real_system_near_node(unsigned int node, unsigned int step);
unsigned int __wrap_system_near_node(unsigned int node, unsigned int step);

unsigned int __wrap_system_near_node(unsigned int node, unsigned int step)
{
        void (*now)(void) = between_zones;

        if (step == 1 && now) {
                between_zones = NULL;
                now();
        }
        return __real_system_near_node(node, step);
}

static void start(unsigned int nodes, size_t chunks_a_node)
{
        system_wrap_allow_all();
        memset(&bind, 0, sizeof(bind));
        options.purge_delay = 100;
        system_nodes_init(false, nodes);
        options.node_limit = chunks_a_node * CHUNK_BYTES;
        here = 0;
        assert_true(heap_renew(HEAP_BYTES));
}

static const unsigned int node_rows[] = {1, 2, 8};

static void each_machine(void (*run)(unsigned int nodes))
{
        for (size_t i = 0; i < sizeof(node_rows) / sizeof(node_rows[0]); i++)
                run(node_rows[i]);
}

static struct page *alloc_checked(unsigned int order, int node)
{
        struct page *page = pages_alloc(order, node, NULL);

        if (page) {
                assert_int_equal(zone_of(page_number(page))->node, page->node);
                if (node != NODE_ANY)
                        assert_int_equal(page->node, node);
        }
        return page;
}

static size_t used_pages(unsigned int node)
{
        struct page_counts counts;

        pages_count_node(node, &counts);
        return counts.used_pages;
}

/* ---- A single thread ----------------------------------------------------------------------- */

/*
 * Every node serves from its own zone; without a wish it is the zone of the CPU. Freed pages go
 * home.
 */
static void own_zone(unsigned int nodes)
{
        struct page *block[NODES_MAX][ORDER_MAX + 1];

        start(nodes, 0);
        for (unsigned int node = 0; node < nodes; node++)
                for (unsigned int order = 0; order <= ORDER_MAX; order++) {
                        here = order % 2 ? node : (node + 1) % nodes;
                        block[node][order] = alloc_checked(order, order % 2 ? NODE_ANY : (int)node);
                        assert_non_null(block[node][order]);
                        assert_int_equal(block[node][order]->node, node);
                        model_take(block[node][order], order_pages(order), node * 100 + order + 1);
                }
        model_check_all();
        for (unsigned int node = 0; node < nodes; node++)
                assert_int_equal(used_pages(node), 2 * CHUNK_PAGES - 1 + (node == 0));
        here = nodes - 1;
        for (unsigned int node = 0; node < nodes; node++) {
                for (unsigned int order = 0; order <= ORDER_MAX; order++) {
                        model_drop(block[node][order], order_pages(order), node * 100 + order + 1);
                        pages_free(block[node][order], order_pages(order));
                }
                model_check_all();
                assert_int_equal(used_pages(node), node == 0);
        }
}

static void test_own_zone(void **state)
{
        (void)state;
        each_machine(own_zone);
}

/* A page of each node in turn: neighbouring chunks of two nodes stay two blocks. */
static void test_neighbours_do_not_merge(void **state)
{
        enum { PAGES = 4 * CHUNK_PAGES };
        static struct page *page[PAGES];

        (void)state;
        start(2, 0);
        for (int i = 0; i < PAGES; i++)
                assert_non_null(page[i] = alloc_checked(0, i % 2));
        for (int i = 0; i < PAGES; i++)
                pages_free(page[i], 1);
        model_check_all();
        for (unsigned int node = 0; node < 2; node++) {
                assert_int_equal(used_pages(node), node == 0);
                assert_true(zones[node].chunks >= 2);
        }
}

/* A node that may not grow: only its own requests fail, others go to the next node that can. */
static void exhaustion(unsigned int nodes)
{
        enum { CHUNKS = 3 };
        struct page *page, *again;
        size_t taken = 0;

        start(nodes, CHUNKS);
        while ((page = alloc_checked(3, (int)nodes - 1))) {
                model_take(page, 8, 1);
                taken += 8;
        }
        /* Its first chunk is the heap's: page 0 is aside, and the block around it is not whole. */
        assert_int_equal(taken, CHUNKS * CHUNK_PAGES - 8);
        for (unsigned int node = 0; node + 1 < nodes; node++)
                assert_int_equal(used_pages(node), 0);
        model_check_all();

        here = nodes - 1;
        page = alloc_checked(3, NODE_ANY);
        if (nodes == 1) {
                assert_null(page);
                return;
        }
        assert_non_null(page);
        assert_int_equal(page->node, 0); /* fake nodes are a ring */
        model_take(page, 8, 2);
        assert_null(alloc_checked(3, (int)nodes - 1));

        /* Exact ranges and spans have no wish; each lies in a node that has room for it. */
        again = pages_alloc_exact(2 * CHUNK_PAGES, 1, NULL);
        assert_non_null(again);
        assert_int_equal(again->node, 0);
        assert_int_equal(zone_of(page_number(again) + CHUNK_PAGES)->node, 0);
        model_take(again, 2 * CHUNK_PAGES, 3);
        model_check_all();
        for (unsigned int node = 1; node + 1 < nodes; node++) {
                assert_non_null(again = pages_alloc_exact(2 * CHUNK_PAGES + 1, 1, NULL));
                assert_int_equal(again->node, node);
                model_take(again, 2 * CHUNK_PAGES + 1, 4);
        }
        assert_null(pages_alloc_exact(2 * CHUNK_PAGES + 1, 1, NULL));

        /* Pages freed there serve there again. */
        model_drop(page, 8, 2);
        pages_free(page, 8);
        for (uint32_t number = 0; number < frontier.pages; number += 8)
                if (model_owner[number] == 1 && number % 64 == 0) {
                        model_drop(page_at(number), 8, 1);
                        pages_free(page_at(number), 8);
                }
        model_check_all();
        assert_non_null(page = alloc_checked(3, (int)nodes - 1));
        model_take(page, 8, 5);
        model_check_all();
}

static void test_exhaustion(void **state)
{
        (void)state;
        each_machine(exhaustion);
}

/* A block grows in place up to the next node's chunk, and over the frontier if that is free. */
static void test_resize_stops_at_the_border(void **state)
{
        struct page *first, *second, *block;
        uint32_t pages;

        (void)state;
        start(2, 0);
        assert_non_null(first = alloc_checked(ORDER_MAX, 1)); /* its first growth is the heap's */
        model_take(first, CHUNK_PAGES, 1);
        assert_non_null(second = alloc_checked(ORDER_MAX, 0));
        model_take(second, CHUNK_PAGES, 2);
        assert_ptr_equal(second, first + CHUNK_PAGES);
        pages = frontier.pages;
        assert_false(pages_resize(first, CHUNK_PAGES, CHUNK_PAGES + 1));
        assert_int_equal(frontier.pages, pages);
        model_drop(second, CHUNK_PAGES, 2);
        pages_free(second, CHUNK_PAGES);
        /* Free, but another node's. */
        assert_false(pages_resize(first, CHUNK_PAGES, CHUNK_PAGES + 1));
        block = pages_alloc(ORDER_MAX, 0, NULL);
        assert_ptr_equal(block, second);
        assert_true(pages_resize(block, CHUNK_PAGES, 2 * CHUNK_PAGES + 1));
        assert_int_equal(frontier.pages, pages + 2 * CHUNK_PAGES);
        assert_int_equal(zone_of(pages)->node, 0);
        model_take(block, 2 * CHUNK_PAGES + 1, 3);
        model_check_all();
}

struct block {
        struct page *page; /* NULL: none */
        size_t count;
};

static void random_step(struct random *random, struct block *block, uint32_t owner)
{
        unsigned int nodes = system_nodes();
        size_t kind = random_below(random, 8);
        size_t count = random_below(random, 10) ? 1 + random_below(random, 64)
                                                : 1 + random_below(random, 3 * CHUNK_PAGES);

        here = (unsigned int)random_below(random, nodes);
        if (block->page) {
                model_drop(block->page, block->count, owner);
                if (kind < 6) {
                        pages_free(block->page, block->count);
                        block->page = NULL;
                        return;
                }
                if (pages_resize(block->page, block->count, count))
                        block->count = count;
        } else if (kind < 5) {
                unsigned int order = (unsigned int)random_below(random, ORDER_MAX + 1);
                int node = kind < 3 ? (int)random_below(random, nodes) : NODE_ANY;

                block->count = order_pages(order);
                block->page = alloc_checked(order, node);
        } else {
                block->count = count;
                block->page =
                        kind < 7 ? pages_alloc_exact(count, 1, NULL) : pages_alloc_zeroed(count, 1);
                if (block->page && kind == 7)
                        assert_true(range_is_zero(page_address(block->page), count << PAGE_SHIFT));
        }
        if (!block->page)
                return;
        for (size_t page = 0; page < block->count; page += CHUNK_PAGES / 2)
                assert_int_equal(zone_of(page_number(block->page + page))->node, block->page->node);
        model_take(block->page, block->count, owner);
}

static void random_run(unsigned int nodes)
{
        static struct block blocks[BLOCKS];
        struct random random = {nodes * 1000003};

        start(nodes, nodes == 2 ? HEAP_CHUNKS / 3 : 0);
        memset(blocks, 0, sizeof(blocks));
        for (uint32_t i = 1; i <= OPERATIONS; i++) {
                size_t number = random_below(&random, BLOCKS);

                random_step(&random, &blocks[number], (uint32_t)number + 1);
                if (random_below(&random, 16) == 0)
                        system_wrap.now_ms += random_below(&random, 100);
                if (random_below(&random, 64) == 0)
                        pages_purge_due();
                if (random_below(&random, 2048) == 0)
                        pages_purge_all(random_below(&random, 64 << 20));
                if (i % CHECK_EVERY == 0)
                        model_check_all();
                system_wrap.calls_left[CALL_COMMIT] = i / 5000 % 2 ? 0 : SIZE_MAX;
                system_wrap.calls_left[CALL_PURGE] = i / 3000 % 3 ? SIZE_MAX : 0;
        }
        for (size_t number = 0; number < BLOCKS; number++)
                if (blocks[number].page) {
                        model_drop(blocks[number].page, blocks[number].count, (uint32_t)number + 1);
                        pages_free(blocks[number].page, blocks[number].count);
                }
        system_wrap_allow_all();
        system_wrap.now_ms += 1;
        pages_purge_all(0);
        model_check_all();
        for (unsigned int node = 0; node < nodes; node++) {
                struct page_counts counts;

                pages_count_node(node, &counts);
                assert_int_equal(counts.free_touched_pages, 0);
                assert_int_equal(counts.used_pages, zone_of(0)->node == node);
        }
}

static void test_random(void **state)
{
        (void)state;
        skip_on_larger_pages();
        each_machine(random_run);
}

/* Each commit of a growing zone is refused in turn: tables of all zones too. */
static void test_refused_commits(void **state)
{
        (void)state;
        for (size_t granted = 0; granted < 24; granted++) {
                struct page *page[2];

                start(2, 0);
                system_wrap.calls_left[CALL_COMMIT] = granted;
                for (int node = 0; node < 2; node++) {
                        page[node] = pages_alloc_exact(CHUNK_PAGES + 17, 1, NULL);
                        if (page[node])
                                model_take(page[node], CHUNK_PAGES + 17, 1);
                        here = 1;
                        model_check_all();
                }
                assert_true(granted > 0 || !page[0]);
                assert_true(granted < 20 || (page[0] && page[1]));
                system_wrap_allow_all();
                for (int node = 0; node < 2; node++) {
                        assert_non_null(page[node] = alloc_checked(ORDER_MAX, node));
                        model_take(page[node], CHUNK_PAGES, 2);
                }
                model_check_all();
        }
}

/* ---- Purging ------------------------------------------------------------------------------ */

static void purging(unsigned int nodes)
{
        struct page *chunk[NODES_MAX];
        struct page_counts counts;

        start(nodes, 0);
        for (unsigned int node = 0; node < nodes; node++)
                assert_non_null(chunk[node] = alloc_checked(ORDER_MAX, (int)node));
        for (unsigned int node = 0; node < nodes; node++) {
                memset(page_address(chunk[node]), 1, CHUNK_BYTES);
                pages_free(chunk[node], CHUNK_PAGES);
                system_wrap.now_ms += 10;
        }
        /* The oldest node's is due, the youngest one's is not. */
        system_wrap.now_ms += 90 - 10 * (nodes - 1);
        for (int call = 0; call < 3; call++, system_wrap.now_ms++)
                pages_purge_due();
        for (unsigned int node = 0; node < nodes; node++)
                assert_int_equal(zones[node].purged_pages, node == 0 ? CHUNK_PAGES : 0);
        model_check_all();
        /* Pages that are to be kept are kept of all zones together. */
        assert_int_equal(pages_purge_all((size_t)(nodes - 1) * CHUNK_BYTES), 0);
        if (nodes > 2)
                assert_int_equal(pages_purge_all((size_t)(nodes - 3) * CHUNK_BYTES),
                                 2 * (size_t)CHUNK_BYTES);
        model_check_all();
        system_wrap.now_ms += 1000;
        for (int call = 0; call < 3; call++, system_wrap.now_ms++)
                pages_purge_due();
        for (unsigned int node = 0; node < nodes; node++) {
                assert_int_equal(zones[node].purged_pages, CHUNK_PAGES);
                assert_true(range_is_zero(page_address(chunk[node]), CHUNK_BYTES));
                assert_int_equal(zones[node].purge_at, UINT64_MAX);
        }
        pages_count(&counts);
        assert_int_equal(counts.free_touched_pages, 0);
        assert_int_equal(counts.purged_pages, nodes * CHUNK_PAGES);
}

static void test_purging(void **state)
{
        (void)state;
        each_machine(purging);
}

/* ---- Binding ------------------------------------------------------------------------------ */

static void test_binding(void **state)
{
        struct page *page;
        size_t calls;

        (void)state;
        start(2, 0);
        bind.error[1] = EPERM;
        for (int i = 0; i < 20; i++) {
                here = (unsigned int)i % 2;
                calls = bind.calls[here];
                assert_non_null(page = alloc_checked(ORDER_MAX, (int)here));
                model_take(page, CHUNK_PAGES, 1);
                if (bind.calls[here] == calls)
                        continue;
                /* The range became this zone's, and the block is of it. */
                assert_true((char *)page_address(page) >= (char *)bind.start);
                assert_true((char *)page_address(page) < (char *)bind.start + bind.bytes);
        }
        assert_true(bind.calls[0] >= 8);
        assert_int_equal(bind.calls[1], 1); /* once refused, it is not asked again */
        assert_int_equal(zones[0].bind_error, 0);
        assert_int_equal(zones[1].bind_error, EPERM);
        model_check_all();
}

/*
 * Two nodes that grow in turn and differ in their policy: a mapping for each chunk would be 2,000
 * here, and the budget of a process used up at 256 GiB. Each growth adds an eighth, however large
 * the zone is: steps of 32 MiB leave 276 mappings.
 */
static void test_mappings_stay_few(void **state)
{
        size_t before;
        struct page *page;

        (void)state;
        start(2, 0);
        assert_true(heap_renew((size_t)1 << 33));
        bind.even_really = true;
        model_take(alloc_checked(0, 0), 1, 1);
        if (zones[0].bind_error) {
                fprintf(stderr, "# skipped: mbind failed with error %d\n", zones[0].bind_error);
                skip();
        }
        before = mappings_count();
        for (int i = 0; i < 2000; i++)
                assert_non_null(page = alloc_checked(ORDER_MAX, i % 2));
        /* A node has 1,000 chunks: 8 single chunks, then steps of 1 + n / 8. */
        assert_true(mappings_count() > before + 4);
        assert_true(mappings_count() < before + 160);
}

/* Blocks of a chain may be of several zones: each zone gets its own back. */
static void chain_of_all_zones(unsigned int nodes)
{
        uint32_t chain = 0;

        start(nodes, 0);
        for (unsigned int i = 0; i < 40; i++) {
                struct page *page = alloc_checked(0, (int)(i % nodes));

                assert_non_null(page);
                page->next = chain;
                chain = page_number(page);
        }
        pages_free_chain(chain, 1);
        model_check_all();
        for (unsigned int node = 0; node < nodes; node++)
                assert_int_equal(used_pages(node), zone_of(0)->node == node);
}

static void test_chains(void **state)
{
        (void)state;
        each_machine(chain_of_all_zones);
}

/* ---- Threads ------------------------------------------------------------------------------ */

/*
 * Threads on different nodes that together want exactly all chunks there are, of any node, while
 * another purges: none may be refused (ZONE-2).
 */
enum { THREADS = 4, THREAD_ROUNDS = 4000, THREAD_CHUNKS = 15 };

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
                        here = (owner + (uint32_t)(i + (size_t)round)) % system_nodes();
                        held[i] = pages_alloc(ORDER_MAX, NODE_ANY, NULL);
                        check_or_die(held[i]);
                        check_or_die(zone_of(page_number(held[i]))->node == held[i]->node);
                        *(uint32_t *)page_address(held[i]) = owner;
                }
                for (size_t i = 0; i < most; i++) {
                        check_or_die(*(uint32_t *)page_address(held[i]) == owner);
                        pages_free(held[i], CHUNK_PAGES);
                }
        }
        return NULL;
}

static void all_chunks(unsigned int nodes)
{
        pthread_t threads[THREADS];
        pthread_t purger;

        start(nodes, 0);
        assert_true(heap_renew((size_t)(THREAD_CHUNKS + 1) * CHUNK_BYTES));
        threads_stop = false;
        assert_int_equal(pthread_create(&purger, NULL, purge_thread, NULL), 0);
        for (uintptr_t i = 0; i < THREADS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, chunk_thread, (void *)(i + 1)),
                                 0);
        for (int i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        store_relaxed(&threads_stop, true);
        pthread_join(purger, NULL);
        model_check_all();
        for (unsigned int node = 0; node < nodes; node++) {
                assert_int_equal(zones[node].limbo_pages, 0);
                assert_int_equal(used_pages(node), zone_of(0)->node == node);
        }
}

static void test_none_is_refused(void **state)
{
        (void)state;
        each_machine(all_chunks);
}

static struct page *chunk_of_0;

/* As another thread would between the two looks: a chunk comes back there, the last goes here. */
static void move_the_free_chunk(void)
{
        pages_free(chunk_of_0, CHUNK_PAGES);
        assert_non_null(alloc_checked(ORDER_MAX, 1));
}

/* A chunk is free at every moment, in this zone or in that; so a chunk is found (ZONE-2). */
static void test_free_chunk_that_moves(void **state)
{
        struct page *page, *chunk_of_1 = NULL;

        (void)state;
        start(2, 4);
        while ((page = alloc_checked(ORDER_MAX, 0)))
                chunk_of_0 = page;
        while ((page = alloc_checked(ORDER_MAX, 1)))
                chunk_of_1 = page;
        pages_free(chunk_of_1, CHUNK_PAGES);
        between_zones = move_the_free_chunk;
        assert_non_null(page = alloc_checked(ORDER_MAX, NODE_ANY));
        assert_ptr_equal(page, chunk_of_0);
        assert_null(between_zones);
        assert_null(alloc_checked(ORDER_MAX, NODE_ANY));
}

/*
 * Zones that grow at once, by blocks, spans and in place: each chunk ends up with a single owner.
 */
static void *growing_thread(void *argument)
{
        int node = (int)(intptr_t)argument;

        here = (unsigned int)node;
        for (int round = 0; round < 3; round++) {
                struct page *block = pages_alloc(ORDER_MAX, node, NULL);
                struct page *span = pages_alloc_exact(CHUNK_PAGES + 1, 1, NULL);

                check_or_die(block && block->node == node && span);
                if (!pages_resize(span, CHUNK_PAGES + 1, 2 * CHUNK_PAGES + 1))
                        check_or_die(pages_resize(span, CHUNK_PAGES + 1, CHUNK_PAGES + 1));
                else
                        pages_free(span + CHUNK_PAGES + 1, CHUNK_PAGES);
                if (round % 2)
                        pages_free(block, CHUNK_PAGES);
                pages_free(span, CHUNK_PAGES + 1);
                if (round % 2 == 0)
                        pages_free(block, CHUNK_PAGES);
        }
        return NULL;
}

static void test_growing_together(void **state)
{
        pthread_t threads[NODES_MAX];

        (void)state;
        for (int round = 0; round < 200; round++) {
                start(8, 0);
                for (intptr_t i = 0; i < NODES_MAX; i++)
                        assert_int_equal(
                                pthread_create(&threads[i], NULL, growing_thread, (void *)i), 0);
                for (int i = 0; i < NODES_MAX; i++)
                        pthread_join(threads[i], NULL);
                for (unsigned int node = 0; node < 8; node++)
                        assert_int_equal(used_pages(node), zone_of(0)->node == node);
        }
        model_check_all();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_own_zone),
                cmocka_unit_test(test_neighbours_do_not_merge),
                cmocka_unit_test(test_exhaustion),
                cmocka_unit_test(test_resize_stops_at_the_border),
                cmocka_unit_test(test_random),
                cmocka_unit_test(test_refused_commits),
                cmocka_unit_test(test_purging),
                cmocka_unit_test(test_binding),
                cmocka_unit_test(test_mappings_stay_few),
                cmocka_unit_test(test_chains),
                cmocka_unit_test(test_none_is_refused),
                cmocka_unit_test(test_free_chunk_that_moves),
                cmocka_unit_test(test_growing_together),
        };

        system_init();
        return cmocka_run_group_tests_name("zones", tests, NULL, NULL);
}
