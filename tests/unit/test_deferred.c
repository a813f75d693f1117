/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The queue of deferred pages, with grace periods that begin and end when they are told to.
 */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "base/options.h"
#include "base/rcu.h"
#include "page/deferred.h"
#include "page/zone.h"
#include "page_model.h"
#include "system_wrap.h"

enum { HEAP_BYTES = 64 << 20 };

/* The grace periods. */
static struct {
        uint64_t newest; /* value of a snapshot */
        uint64_t over;   /* the last grace period that has ended */
        unsigned int polls;
        unsigned int waits;
        void (*while_waiting)(void); /* NULL: nothing */
        void (*while_polling)(void); /* as above */
} periods;

uint64_t rcu_snapshot(void)
{
        /* DEFER-1: with any other order of calls the queue would not ascend. */
        check_or_die(lock_is_held(&deferred_lock));
        return load_relaxed(&periods.newest);
}

bool rcu_poll_seldom(uint64_t snapshot, uint64_t *refused_ms)
{
        check_or_die(refused_ms);
        add_relaxed(&periods.polls, 1);
        if (periods.while_polling)
                periods.while_polling();
        return snapshot <= load_relaxed(&periods.over);
}

void rcu_wait(uint64_t snapshot)
{
        add_relaxed(&periods.waits, 1);
        if (periods.while_waiting)
                periods.while_waiting();
        if (snapshot > load_relaxed(&periods.over))
                store_relaxed(&periods.over, snapshot);
}

static int start(void **state)
{
        (void)state;
        assert_int_equal(deferred_pages, 0);
        system_wrap_allow_all();
        options.purge_delay = 100;
        memset(&periods, 0, sizeof(periods));
        periods.newest = 1;
        return heap_renew(HEAP_BYTES) ? 0 : -1;
}

static struct page *take(size_t count, uint32_t owner)
{
        struct page *page = pages_alloc_exact(count, 1, NULL);

        assert_non_null(page);
        model_take(page, count, owner);
        return page;
}

/* Pages that came back are blocks like others again, each of them. */
static void check_all_free(void)
{
        size_t count = frontier.pages - 1;

        assert_int_equal(deferred_pages, 0);
        model_check_all();
        assert_int_equal(zones[0].free_pages, count);
        /*
         * At once, for objects in the middle of a run: there the page layer looks for links that
         * stayed.
         */
        assert_non_null(pages_alloc_many(1, 1, NODE_ANY, (unsigned int)count, false));
        assert_int_equal(zones[0].free_pages, 0);
}

/* Each object goes back when its own grace period is over, and later objects after it. */
static void test_each_waits_for_its_own(void **state)
{
        static const struct {
                size_t count;
                uint64_t period;
        } blocks[] = {{5, 3}, {1, 3}, {7, 4}, {2, 6}, {40, 6}};
        struct page *pages[array_size(blocks)];
        size_t pages_waiting = 0;
        size_t next = 0;

        (void)state;
        for (size_t i = 0; i < array_size(blocks); i++)
                pages[i] = take(blocks[i].count, (uint32_t)i + 1);
        pages_release_deferred();
        assert_int_equal(periods.polls, 0); /* nothing waits */
        for (size_t i = 0; i < array_size(blocks); i++) {
                periods.newest = blocks[i].period;
                pages[i]->next = page_number(pages[0]); /* as of a chain that they came in */
                pages_free_deferred(pages[i], blocks[i].count);
                pages_waiting += blocks[i].count;
                assert_int_equal(deferred_pages, pages_waiting);
        }
        for (periods.over = 0; periods.over <= 6; periods.over++) {
                for (; next < array_size(blocks) && blocks[next].period <= periods.over; next++) {
                        model_drop(pages[next], blocks[next].count, (uint32_t)next + 1);
                        pages_waiting -= blocks[next].count;
                }
                pages_release_deferred();
                assert_int_equal(deferred_pages, pages_waiting);
                model_check_all();
                for (size_t i = next; i < array_size(blocks); i++)
                        model_check(pages[i], blocks[i].count, (uint32_t)i + 1);
        }
        check_all_free();
}

/* A queue that was emptied begins anew, also after it was emptied by a wait. */
static void test_again_after_the_last(void **state)
{
        (void)state;
        for (unsigned int round = 1; round <= 6; round++) {
                struct page *first = take(3, 1);
                struct page *second = take(4, 2);

                periods.newest = 2 * round;
                pages_free_deferred(first, 3);
                pages_free_deferred(second, 4);
                pages_release_deferred();
                assert_int_equal(deferred_pages, 7);
                model_drop(first, 3, 1);
                model_drop(second, 4, 2);
                if (round % 2) {
                        periods.over = periods.newest;
                        pages_release_deferred();
                } else {
                        pages_wait_deferred();
                }
                assert_int_equal(deferred_pages, 0);
                model_check_all();
        }
        check_all_free();
}

static struct page *late;

static void defer_late(void)
{
        periods.newest++;
        pages_free_deferred(late, 9);
}

/* The newest grace period is waited for, once; objects that come meanwhile wait on. */
static void test_wait(void **state)
{
        struct page *first = take(3, 1);
        struct page *second = take(4, 2);

        (void)state;
        late = take(9, 3);
        pages_wait_deferred();
        assert_int_equal(periods.waits, 0);
        pages_free_deferred(first, 3);
        periods.newest = 5;
        pages_free_deferred(second, 4);
        periods.while_waiting = defer_late;
        model_drop(first, 3, 1);
        model_drop(second, 4, 2);
        pages_wait_deferred();
        assert_int_equal(periods.waits, 1);
        assert_int_equal(periods.over, 5);
        assert_int_equal(deferred_pages, 9);
        model_check(late, 9, 3);
        model_check_all();
        periods.while_waiting = NULL;
        model_drop(late, 9, 3);
        pages_wait_deferred();
        check_all_free();
}

static uint32_t waiting; /* 1: a thread does, 2: it is back */

static void *wait_thread(void *argument)
{
        (void)argument;
        store_relaxed(&waiting, 1);
        pages_wait_deferred();
        store_release(&waiting, 2);
        return NULL;
}

/*
 * A thread that waits is back only after other threads have freed the objects that they took off
 * the queue.
 */
static void check_wait_for_others(void)
{
        struct timespec pause = {.tv_nsec = 1000000};
        pthread_t thread;

        store_relaxed(&waiting, 0);
        lock_take(&release_lock);
        assert_int_equal(pthread_create(&thread, NULL, wait_thread, NULL), 0);
        while (load_relaxed(&waiting) == 0)
                sched_yield();
        for (int i = 0; i < 30; i++) {
                nanosleep(&pause, NULL);
                check_or_die(load_acquire(&waiting) == 1);
        }
        lock_drop(&release_lock);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(waiting, 2);
}

static void test_wait_for_others(void **state)
{
        struct page *page = take(3, 1);

        (void)state;
        /* As if they had all that there was. */
        check_wait_for_others();
        pages_free_deferred(page, 3);
        periods.over = periods.newest;
        /* A slow path does not wait for them. */
        lock_take(&release_lock);
        pages_release_deferred();
        lock_drop(&release_lock);
        assert_int_equal(deferred_pages, 3);
        model_drop(page, 3, 1);
        check_wait_for_others();
        check_all_free();
}

static uint32_t stage; /* 1: the other thread polls, 2: the queue is locked */

static void poll_slowly(void)
{
        store_release(&stage, 1);
        while (load_acquire(&stage) == 1)
                sched_yield();
}

static void *release_thread(void *argument)
{
        (void)argument;
        pages_release_deferred();
        return NULL;
}

/* Blocks leave the queue under its lock, which others have when they add some. */
static void test_queue_is_locked(void **state)
{
        struct timespec pause = {.tv_nsec = 1000000};
        struct page *page = take(3, 1);
        pthread_t thread;

        (void)state;
        pages_free_deferred(page, 3);
        periods.over = periods.newest;
        periods.while_polling = poll_slowly;
        stage = 0;
        assert_int_equal(pthread_create(&thread, NULL, release_thread, NULL), 0);
        while (load_acquire(&stage) == 0)
                sched_yield();
        lock_take(&deferred_lock);
        store_release(&stage, 2);
        for (int i = 0; i < 30; i++) {
                nanosleep(&pause, NULL);
                check_or_die(load_relaxed(&deferred_pages) == 3);
        }
        model_drop(page, 3, 1);
        lock_drop(&deferred_lock);
        assert_int_equal(pthread_join(thread, NULL), 0);
        check_all_free();
}

/* Blocks of several threads at once, none of which is lost or freed twice. */
enum { THREADS = 3, ROUNDS = 2000, BATCH = 64 };

static void *crowd_thread(void *argument)
{
        size_t count = (size_t)(uintptr_t)argument;

        for (int round = 0; round < ROUNDS; round++) {
                struct page *page = pages_alloc_many(count, 1, NODE_ANY, BATCH, false);

                check_or_die(page);
                while (page) {
                        struct page *next = page_list_next(page);

                        pages_free_deferred(page, count);
                        pages_release_deferred();
                        page = next;
                }
                store_relaxed(&periods.over, load_relaxed(&periods.newest));
                add_relaxed(&periods.newest, 1);
                if (round % 16 == 0)
                        pages_wait_deferred();
        }
        return NULL;
}

static void test_crowd(void **state)
{
        pthread_t threads[THREADS];

        (void)state;
        for (uintptr_t i = 0; i < THREADS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, crowd_thread, (void *)(i + 1)),
                                 0);
        for (int i = 0; i < THREADS; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        pages_wait_deferred();
        check_all_free();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_each_waits_for_its_own, start),
                cmocka_unit_test_setup(test_again_after_the_last, start),
                cmocka_unit_test_setup(test_wait, start),
                cmocka_unit_test_setup(test_wait_for_others, start),
                cmocka_unit_test_setup(test_queue_is_locked, start),
                cmocka_unit_test_setup(test_crowd, start),
        };

        system_init();
        return cmocka_run_group_tests_name("deferred", tests, NULL, NULL);
}
