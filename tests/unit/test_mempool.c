/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Memory pools (S8-28): the order in which they ask the allocator and the reserve, and with which
 * flags; the promise of min_nr elements with an allocator that fails; waiting, resizing, and many
 * threads on a small pool.
 */
#define _GNU_SOURCE
#include "child.h"
#include "forked.h"

#include "heap/heap.h"
#include "machine/event.h"
#include "heap/pool_locks.h"
#include "kmem.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ELEMENTS = 64, CALLS_MAX = 64 };

/* An allocator that records how it is called and fails on demand. */
static struct source {
        bool fails;
        unsigned int good;       /* with fails: number of first calls that succeed all the same */
        unsigned int succeed_in; /* with fails: failing calls before a call succeeds; 0: all */
        gfp_t calls[CALLS_MAX];
        unsigned int call_count;
        unsigned int out;
} source;

/* One of several callers at once sees the last of the calls that fail. */
static bool succeeds_now(struct source *from)
{
        return __atomic_load_n(&from->succeed_in, __ATOMIC_RELAXED) &&
               __atomic_sub_fetch(&from->succeed_in, 1, __ATOMIC_RELAXED) == 0;
}

static void *source_alloc(gfp_t flags, void *pool_data)
{
        struct source *from = pool_data;
        unsigned int call = __atomic_fetch_add(&from->call_count, 1, __ATOMIC_RELAXED);

        if (call < CALLS_MAX)
                from->calls[call] = flags;
        if (__atomic_load_n(&from->fails, __ATOMIC_RELAXED) && call >= from->good &&
            !succeeds_now(from)) {
                errno = ENOMEM;
                return NULL;
        }
        __atomic_add_fetch(&from->out, 1, __ATOMIC_RELAXED);
        return malloc(32);
}

static void source_free(void *element, void *pool_data)
{
        struct source *to = pool_data;

        __atomic_sub_fetch(&to->out, 1, __ATOMIC_RELAXED);
        free(element);
}

static mempool_t *pool_of(int count)
{
        memset(&source, 0, sizeof(source));
        return mempool_create(count, source_alloc, source_free, &source);
}

static void test_create_and_destroy(void **state)
{
        mempool_t *pool = pool_of(5);

        assert_non_null(pool);
        assert_int_equal(pool->curr_nr, 5);
        assert_int_equal(source.out, 5);
        assert_int_equal(source.calls[0], GFP_KERNEL);
        assert_true(mempool_is_saturated(pool));
        mempool_destroy(pool);
        assert_int_equal(source.out, 0);
        mempool_destroy(NULL);
        mempool_free(NULL, NULL);
}

static void test_failed_creation_leaves_nothing(void **state)
{
        for (unsigned int good = 0; good < 5; good++) {
                memset(&source, 0, sizeof(source));
                source.fails = true;
                source.good = good;
                errno = 0;
                assert_null(mempool_create(5, source_alloc, source_free, &source));
                assert_int_equal(errno, ENOMEM);
                assert_int_equal(source.call_count, good + 1);
                assert_int_equal(source.out, 0);
        }
        errno = 0;
        assert_null(mempool_create(-1, source_alloc, source_free, &source));
        assert_int_equal(errno, EINVAL);
}

static void test_order_of_asking(void **state)
{
        const gfp_t quiet = __GFP_NOMEMALLOC | __GFP_NORETRY | __GFP_NOWARN;
        mempool_t *pool = pool_of(2);
        void *newest = pool->elements[1];
        void *oldest = pool->elements[0];
        void *element;

        /* The allocator first, although the reserve is full. */
        source.call_count = 0;
        element = mempool_alloc(pool, GFP_KERNEL);
        assert_ptr_not_equal(element, newest);
        assert_int_equal(source.call_count, 1);
        assert_int_equal(source.calls[0],
                         (GFP_KERNEL | quiet) & ~(__GFP_DIRECT_RECLAIM | __GFP_IO));
        mempool_free(element, pool);
        assert_int_equal(source.out, 2); /* the reserve was full: back to the allocator */

        /* It fails: the reserve, last in, first out. */
        source.fails = true;
        source.call_count = 0;
        errno = 77;
        assert_ptr_equal(mempool_alloc(pool, GFP_KERNEL), newest);
        assert_ptr_equal(mempool_alloc(pool, GFP_KERNEL), oldest);
        assert_int_equal(source.call_count, 2);
        assert_int_equal(errno, 77); /* a call that succeeds leaves it alone */

        /* Nor that: the allocator with the caller's flags. */
        source.call_count = 0;
        source.succeed_in = 2;
        element = mempool_alloc(pool, GFP_KERNEL);
        assert_non_null(element);
        assert_int_equal(source.call_count, 2);
        assert_int_equal(source.calls[1], GFP_KERNEL | quiet);
        source.succeed_in = 0;

        /* A caller that may not wait gets NULL; there is nothing else to ask with its flags. */
        source.call_count = 0;
        errno = 0;
        assert_null(mempool_alloc(pool, GFP_NOWAIT));
        assert_int_equal(errno, ENOMEM);
        assert_int_equal(source.call_count, 1);
        errno = 0;
        assert_null(mempool_alloc_preallocated(pool));
        assert_int_equal(errno, ENOMEM);

        mempool_free(oldest, pool);
        assert_int_equal(pool->curr_nr, 1);
        assert_ptr_equal(mempool_alloc_preallocated(pool), oldest);
        mempool_free(oldest, pool);
        mempool_free(newest, pool);
        mempool_free(element, pool);
        assert_int_equal(pool->curr_nr, 2);
        mempool_destroy(pool);
        assert_int_equal(source.out, 0);
}

static void test_all_promised_elements(void **state)
{
        void *out[ELEMENTS];

        for (int count = 0; count <= ELEMENTS; count += 8) {
                mempool_t *pool = pool_of(count);

                assert_non_null(pool);
                source.fails = true;
                for (int i = 0; i < count; i++) {
                        out[i] = mempool_alloc(pool, i % 2 ? GFP_ATOMIC : GFP_KERNEL);
                        assert_non_null(out[i]);
                        memset(out[i], i, 32);
                }
                assert_null(mempool_alloc(pool, GFP_ATOMIC));
                for (int i = 0; i < count; i++) {
                        assert_int_equal(*(char *)out[i], i);
                        mempool_free(out[i], pool);
                }
                assert_int_equal(pool->curr_nr, count);
                mempool_destroy(pool);
                assert_int_equal(source.out, 0);
        }
}

/* With an allocator that would stop the process, the pool still asks the reserve. */
static void test_nofail(void **state)
{
        mempool_t *pool = pool_of(1);
        void *element;

        source.fails = true;
        source.call_count = 0;
        element = mempool_alloc(pool, GFP_KERNEL | __GFP_NOFAIL);
        assert_non_null(element);
        source.succeed_in = 2;
        mempool_free(mempool_alloc(pool, GFP_KERNEL | __GFP_NOFAIL), pool);
        mempool_free(element, pool);
        assert_int_equal(source.call_count, 3);
        for (int i = 0; i < 3; i++)
                assert_int_equal(source.calls[i] & __GFP_NOFAIL, 0);
        mempool_destroy(pool);
        child_aborts("nofail", NULL, "mempool_alloc: out of memory with __GFP_NOFAIL");
}

static void nofail_without_waiting(void)
{
        mempool_t *pool = pool_of(0);

        source.fails = true;
        mempool_alloc(pool, GFP_ATOMIC | __GFP_NOFAIL);
}

static void test_zero_is_refused(void **state)
{
        mempool_t *pool = pool_of(1);

        errno = 0;
        assert_null(mempool_alloc(pool, GFP_KERNEL | __GFP_ZERO));
        assert_int_equal(errno, EINVAL);
        assert_int_equal(pool->curr_nr, 1);
        mempool_destroy(pool);
}

static void test_resize(void **state)
{
        mempool_t *pool = pool_of(4);
        void *out[20];

        assert_int_equal(mempool_resize(pool, 0), -EINVAL);
        assert_int_equal(mempool_resize(pool, 2), 0);
        assert_int_equal(source.out, 2);
        assert_int_equal(mempool_resize(pool, 20), 0);
        assert_int_equal(pool->curr_nr, 20);
        assert_int_equal(pool->min_nr, 20);
        source.fails = true;
        for (int i = 0; i < 20; i++)
                assert_non_null(out[i] = mempool_alloc(pool, GFP_NOWAIT));
        /* Growing without memory still promises more; frees fill the reserve. */
        mempool_free(out[0], pool);
        assert_int_equal(mempool_resize(pool, 21), 0);
        assert_int_equal(pool->curr_nr, 1);
        source.fails = false;
        for (int i = 1; i < 20; i++)
                mempool_free(out[i], pool);
        assert_int_equal(pool->curr_nr, 20);
        assert_int_equal(mempool_resize(pool, 3), 0);
        assert_int_equal(source.out, 3);
        mempool_destroy(pool);
        assert_int_equal(source.out, 0);
}

/* Each time the pool grows its old array of elements goes. */
static void test_resize_leaves_nothing(void **state)
{
        struct kmem_stats before = {.size = sizeof(before)};
        struct kmem_stats after = {.size = sizeof(after)};
        mempool_t *pool;

        assert_int_equal(kmem_stats_get(&before), 0);
        pool = pool_of(4);
        for (int count = 5; count < 200; count++)
                assert_int_equal(mempool_resize(pool, count), 0);
        mempool_destroy(pool);
        assert_int_equal(kmem_stats_get(&after), 0);
        check_equal(after.bytes_inuse, before.bytes_inuse);
}

static void test_embedded(void **state)
{
        static mempool_t pool;

        mempool_exit(&pool); /* zeroed: allowed */
        assert_false(mempool_initialized(&pool));
        memset(&source, 0, sizeof(source));
        memset(&pool, 0xee, sizeof(pool));
        assert_int_equal(mempool_init(&pool, 3, source_alloc, source_free, &source), 0);
        assert_true(mempool_initialized(&pool));
        assert_int_equal(source.out, 3);
        mempool_exit(&pool);
        assert_int_equal(source.out, 0);
        mempool_exit(&pool);
        assert_false(mempool_initialized(&pool));
}

static void nothing(void *object)
{
        (void)object;
}

static void test_usual_kinds(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("pool_test", 200, 0, 0, NULL);
        struct kmem_cache *constructed = kmem_cache_create("pool_ctor", 200, 0, 0, nothing);
        mempool_t *pools[3] = {
                mempool_create_slab_pool(3, cache),
                mempool_create_kmalloc_pool(3, 1000),
                mempool_create_page_pool(3, 2),
        };
        static const size_t bytes[3] = {200, 1000, 4 << 12};

        for (int kind = 0; kind < 3; kind++) {
                void *out[9];

                assert_non_null(pools[kind]);
                for (int i = 0; i < 9; i++) {
                        out[i] = mempool_alloc(pools[kind], GFP_KERNEL);
                        assert_non_null(out[i]);
                        /* Engine slob knows no size of a cache's object. */
                        assert_true(kind == 0 || ksize(out[i]) >= bytes[kind]);
                        memset(out[i], 0x5a, bytes[kind]);
                }
                if (kind == 2)
                        assert_int_equal((uintptr_t)out[0] % bytes[2], 0);
                for (int i = 0; i < 9; i++)
                        mempool_free(out[i], pools[kind]);
                mempool_destroy(pools[kind]);
        }
        errno = 0;
        assert_null(mempool_create_slab_pool(3, constructed));
        assert_int_equal(errno, EINVAL);
        assert_null(kmem_pages_alloc(GFP_KERNEL, 11));
        assert_int_equal(errno, EINVAL);
        kmem_cache_destroy(cache);
        kmem_cache_destroy(constructed);
}

static size_t charged(struct kmem_group *group)
{
        struct kmem_group_stats stats;

        check_equal(kmem_group_stats(group, &stats), 0);
        return stats.bytes;
}

static void accounted_pages(void)
{
        struct kmem_group *group = kmem_group_create("pages", NULL, 1 << 20);
        struct kmem_group_stats stats;
        mempool_t *pool = mempool_create_page_pool(1, 4);
        void *pages[11];
        void *element;

        check(group && pool);
        kmem_group_set(group);
        for (unsigned int order = 0; order <= 7; order++) {
                check(pages[order] = kmem_pages_alloc(GFP_KERNEL_ACCOUNT, order));
                check_equal((uintptr_t)pages[order] % (4096u << order), 0);
                check_equal(charged(group), 4096u << order);
                kfree(pages[order]);
                check_equal(charged(group), 0);
        }
        errno = 0;
        check(!kmem_pages_alloc(GFP_KERNEL_ACCOUNT, 9));
        check_equal(errno, ENOMEM);
        check_equal(kmem_group_stats(group, &stats), 0);
        check_equal(stats.refusals, 1);
        check_equal(stats.bytes, 0);
        check(pages[9] = kmem_pages_alloc(GFP_KERNEL, 9));
        check_equal(charged(group), 0);
        kfree(pages[9]);
        /* Elements of the reserve were taken by whoever made the pool. */
        element = mempool_alloc(pool, GFP_KERNEL_ACCOUNT);
        check_equal(charged(group), 4096 << 4);
        mempool_free(element, pool);
        check_equal(charged(group), 0);
        mempool_destroy(pool);
        kmem_pages_alloc(GFP_KERNEL_ACCOUNT | __GFP_NOFAIL, 9);
}

static void test_accounted_pages(void **state)
{
        child_aborts("accounted-pages", NULL,
                     "kmem_pages_alloc(order 9): out of memory with __GFP_NOFAIL");
}

/* ---- Waiting ----------------------------------------------------------------------------- */

static void *take_one(void *pool)
{
        return mempool_alloc(pool, GFP_KERNEL);
}

static void await_waiters(const mempool_t *pool, unsigned int count)
{
        struct timespec start;
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &start);
        while (__atomic_load_n(&pool->wait[1], __ATOMIC_RELAXED) < count) {
                clock_gettime(CLOCK_MONOTONIC, &now);
                check(now.tv_sec < start.tv_sec + 20);
        }
}

static const void *sleepless; /* the event of a pool that has no reason to sleep */
static const void
        *endless; /* wake-up event of a pool with waiters that are not to wake by themselves */
static const void *hasty; /* the event of a pool whose waiters ask again at once */
static pid_t sleepers[2]; /* threads that wait there */
static uint32_t sleeper_count;

void __real_event_sleep(struct event *event, uint32_t sequence, unsigned int milliseconds);
void __wrap_event_sleep(struct event *event, uint32_t sequence, unsigned int milliseconds);

void __wrap_event_sleep(struct event *event, uint32_t sequence, unsigned int milliseconds)
{
        /* Whoever waits there must not fall asleep: an element has come since its announcement. */
        check(event != sleepless ||
              __atomic_load_n(&event->sequence, __ATOMIC_RELAXED) != sequence);
        if (event == endless) {
                uint32_t which = __atomic_fetch_add(&sleeper_count, 1, __ATOMIC_RELAXED);

                if (which < 2)
                        __atomic_store_n(&sleepers[which], gettid(), __ATOMIC_RELEASE);
                milliseconds = 3600 * 1000;
        }
        if (event == hasty) {
                check_equal(milliseconds, 5000);
                milliseconds = 1;
        }
        __real_event_sleep(event, sequence, milliseconds);
}

/* Waits until the thread is in event_sleep, and the kernel has put it to sleep there. */
static void await_sleeper(const pid_t *sleeper)
{
        time_t end = time(NULL) + 20;
        char state = '?';

        while (state != 'S') {
                char path[64];
                FILE *file;

                check(time(NULL) < end);
                snprintf(path, sizeof(path), "/proc/self/task/%d/stat",
                         __atomic_load_n(sleeper, __ATOMIC_ACQUIRE));
                file = fopen(path, "r");
                if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
                        state = '?';
                if (file)
                        fclose(file);
        }
}

/*
 * The allocator serves a waiter, as it has memory for a moment; the reserve serves the other
 * waiter.
 */
static void test_a_wake_is_passed_on(void **state)
{
        mempool_t *pool = pool_of(1);
        void *element = mempool_alloc_preallocated(pool);
        struct timespec deadline;
        pthread_t threads[2];
        void *got[2];

        source.fails = true;
        endless = pool->wait;
        for (int i = 0; i < 2; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, take_one, pool), 0);
        await_sleeper(&sleepers[0]);
        await_sleeper(&sleepers[1]);
        __atomic_store_n(&source.succeed_in, 1, __ATOMIC_RELAXED);
        mempool_free(element, pool);
        clock_gettime(CLOCK_REALTIME, &deadline);
        deadline.tv_sec += 20;
        for (int i = 0; i < 2; i++)
                check_equal(pthread_timedjoin_np(threads[i], &got[i], &deadline), 0);
        assert_true(got[0] == element || got[1] == element);
        assert_ptr_not_equal(got[0], got[1]);
        endless = NULL;
        for (int i = 0; i < 2; i++)
                mempool_free(got[i], pool);
        mempool_destroy(pool);
}

/*
 * POOL-3: the only element is freed while its waiter is on the way to sleep: after the last refusal
 * of the allocator, or as soon as the waiter has found nothing under the lock and dropped the lock.
 * To catch that moment the test holds the pools' locks when the waiter wants a lock. The waiter
 * gets it as from a sleep, where it must assume that others sleep too, so it wakes them as it drops
 * it.
 */
static _Thread_local struct window {
        mempool_t *pool;
        void *element; /* to be freed in the window */
        bool before_the_lock;
        enum { CLOSED, LOCKS_HELD, WAITER_HAS_LOCK } stage;
} window;

void __real_lock_wait(struct lock *lock);
void __wrap_lock_wait(struct lock *lock);
void __real_lock_wake(struct lock *lock);
void __wrap_lock_wake(struct lock *lock);

static void window_free(void)
{
        void *element = window.element;

        window.stage = CLOSED;
        window.element = NULL;
        mempool_free(element, window.pool);
}

/* All requests fail; the first request with the caller's flags is the last before the wait. */
static void *window_alloc(gfp_t flags, void *pool_data)
{
        (void)pool_data;
        if (!(flags & __GFP_DIRECT_RECLAIM) || !window.element)
                return NULL;
        if (window.before_the_lock) {
                window_free();
        } else {
                pools_each_lock(lock_take);
                window.stage = LOCKS_HELD;
        }
        return NULL;
}

void __wrap_lock_wait(struct lock *lock)
{
        if (window.stage != LOCKS_HELD) {
                __real_lock_wait(lock);
                return;
        }
        pools_each_lock(lock_drop);
        check_equal(exchange_acquire(&lock->word, 2), 0);
        window.stage = WAITER_HAS_LOCK;
}

void __wrap_lock_wake(struct lock *lock)
{
        __real_lock_wake(lock);
        if (window.stage == WAITER_HAS_LOCK)
                window_free();
}

static void window_keep(void *element, void *pool_data)
{
        (void)element;
        (void)pool_data;
}

static void test_an_element_comes_before_the_sleep(void **state)
{
        static uint64_t element;
        mempool_t *pool = mempool_create(0, window_alloc, window_keep, NULL);

        assert_non_null(pool);
        /* The allocator has nothing, so a reserve of a single element stays empty. */
        assert_int_equal(mempool_resize(pool, 1), 0);
        sleepless = pool->wait;
        for (int before_the_lock = 0; before_the_lock <= 1; before_the_lock++) {
                window = (struct window){
                        .pool = pool,
                        .element = &element,
                        .before_the_lock = before_the_lock,
                };
                assert_ptr_equal(mempool_alloc(pool, GFP_KERNEL), &element);
                assert_null(window.element);
        }
        sleepless = NULL;
        assert_int_equal(pool->wait[1], 0);
        mempool_free(&element, pool);
        mempool_destroy(pool);
}

static void test_a_free_wakes_a_waiter(void **state)
{
        mempool_t *pool = pool_of(1);
        void *element = mempool_alloc_preallocated(pool);
        void *got = NULL;
        pthread_t thread;

        source.fails = true;
        assert_int_equal(pthread_create(&thread, NULL, take_one, pool), 0);
        await_waiters(pool, 1);
        mempool_free(element, pool);
        assert_int_equal(pthread_join(thread, &got), 0);
        assert_ptr_equal(got, element);
        mempool_free(got, pool);
        mempool_destroy(pool);
}

/* Nobody frees, but the allocator has memory again: found when the five seconds are over. */
static void test_a_waiter_asks_again(void **state)
{
        mempool_t *pool = pool_of(1);
        void *element = mempool_alloc_preallocated(pool);
        void *got = NULL;
        pthread_t thread;

        source.fails = true;
        hasty = pool->wait;
        assert_int_equal(pthread_create(&thread, NULL, take_one, pool), 0);
        await_waiters(pool, 1);
        __atomic_store_n(&source.fails, false, __ATOMIC_RELAXED);
        assert_int_equal(pthread_join(thread, &got), 0);
        hasty = NULL;
        assert_non_null(got);
        assert_ptr_not_equal(got, element);
        mempool_free(got, pool);
        mempool_free(element, pool);
        mempool_destroy(pool);
}

enum { THREADS = 8, ROUNDS = 20000, SHARED = 3 };

static unsigned int owners[SHARED];
static void *shared[SHARED];

/* Each element has a single owner at a time, and every thread gets an element in the end. */
static void *take_and_give(void *argument)
{
        mempool_t *pool = argument;

        for (int round = 0; round < ROUNDS; round++) {
                void *element = mempool_alloc(pool, GFP_KERNEL);
                unsigned int which = 0;

                check(element != NULL);
                while (shared[which] != element)
                        check(++which < SHARED);
                check_equal(__atomic_add_fetch(&owners[which], 1, __ATOMIC_ACQ_REL), 1);
                memset(element, round, 32);
                __atomic_sub_fetch(&owners[which], 1, __ATOMIC_ACQ_REL);
                mempool_free(element, pool);
        }
        return NULL;
}

static void test_many_threads_on_a_small_pool(void **state)
{
        mempool_t *pool = pool_of(SHARED);
        pthread_t threads[THREADS];

        for (int i = 0; i < SHARED; i++)
                shared[i] = pool->elements[i];
        source.fails = true;
        for (int i = 0; i < THREADS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, pool), 0);
        for (int i = 0; i < THREADS; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(pool->curr_nr, SHARED);
        assert_int_equal(pool->wait[1], 0);
        mempool_destroy(pool);
        assert_int_equal(source.out, 0);
}

/* ---- Fork -------------------------------------------------------------------------------- */

static uint32_t forks_over;

static void *use_reserve(void *pool)
{
        while (!__atomic_load_n(&forks_over, __ATOMIC_RELAXED)) {
                void *element = mempool_alloc(pool, GFP_KERNEL);

                check(element != NULL);
                mempool_free(element, pool);
        }
        return NULL;
}

/* Other threads are inside calls at the forks; the child's do not wait for them. */
static void test_fork_beside_threads(void **state)
{
        mempool_t *pool = pool_of(THREADS);
        pthread_t threads[THREADS];

        source.fails = true;
        for (int i = 0; i < THREADS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, use_reserve, pool), 0);
        for (int i = 0; i < 100; i++) {
                pid_t pid = fork();

                assert_true(pid >= 0);
                if (pid == 0) {
                        alarm(20);
                        forked_child_starts_no_thread_under_qemu();
                        mempool_free(mempool_alloc_preallocated(pool), pool);
                        _exit(0);
                }
                child_wait(pid);
        }
        __atomic_store_n(&forks_over, 1, __ATOMIC_RELAXED);
        for (int i = 0; i < THREADS; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(pool->curr_nr, THREADS);
        mempool_destroy(pool);
}

/* ---- A heap that is full ----------------------------------------------------------------- */

static void exhausted(void)
{
        struct kmem_cache *cache = kmem_cache_create("full", 4000, 0, 0, NULL);
        mempool_t *pool = mempool_create_slab_pool(ELEMENTS, cache);
        void *out[ELEMENTS];
        void **chain = NULL;
        unsigned int taken = 0;

        check(pool);
        for (void **object; (object = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN));
             taken++) {
                *object = chain;
                chain = object;
        }
        check(taken > 1000);
        for (int i = 0; i < ELEMENTS; i++) {
                out[i] = mempool_alloc(pool, GFP_KERNEL);
                check(out[i]);
                memset(out[i], i, 4000);
        }
        check(!mempool_alloc(pool, GFP_ATOMIC));
        for (int i = 0; i < ELEMENTS; i++)
                mempool_free(out[i], pool);
        check_equal(pool->curr_nr, ELEMENTS);
        while (chain) {
                void **next = *chain;

                kmem_cache_free(cache, chain);
                chain = next;
        }
        mempool_destroy(pool);
        check_equal(kmem_cache_shrink(cache), 0);
        kmem_cache_destroy(cache);
}

static void test_full_heap(void **state)
{
        child_passes("exhausted", "reserve=64M");
}

static void construct(void *object)
{
        *(char *)object = 1;
}

static void refused(void)
{
        struct kmem_cache *constructed = kmem_cache_create("built", 64, 0, 0, construct);
        mempool_t pool;

        check(!mempool_create_kmalloc_pool(-3, 64));
        check_equal(errno, EINVAL);
        check_equal(mempool_init_slab_pool(&pool, 1, constructed), -EINVAL);
        check_equal(mempool_init_page_pool(&pool, 0, 11), -EINVAL);
        check_equal(mempool_init_page_pool(&pool, 0, -1), -EINVAL);
}

static void test_what_is_refused_is_said(void **state)
{
        child_prints("refused", NULL, "mempool of -3 elements: expected 0 or more; no pool");
        child_prints("refused", NULL,
                     "mempool of cache built: expected one without constructor; no pool");
        child_prints("refused", NULL, "mempool of pages of order 11: expected 0 to 10; no pool");
        child_prints("refused", NULL, "mempool of pages of order -1: expected 0 to 10; no pool");
}

int main(int argc, char **argv)
{
        static const struct child_case cases[] = {
                {"exhausted", exhausted},
                {"accounted-pages", accounted_pages},
                {"nofail", nofail_without_waiting},
                {"refused", refused},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_create_and_destroy),
                cmocka_unit_test(test_failed_creation_leaves_nothing),
                cmocka_unit_test(test_order_of_asking),
                cmocka_unit_test(test_all_promised_elements),
                cmocka_unit_test(test_nofail),
                cmocka_unit_test(test_zero_is_refused),
                cmocka_unit_test(test_resize),
                cmocka_unit_test(test_resize_leaves_nothing),
                cmocka_unit_test(test_embedded),
                cmocka_unit_test(test_usual_kinds),
                cmocka_unit_test(test_accounted_pages),
                cmocka_unit_test(test_an_element_comes_before_the_sleep),
                cmocka_unit_test(test_a_free_wakes_a_waiter),
                cmocka_unit_test(test_a_wake_is_passed_on),
                cmocka_unit_test(test_a_waiter_asks_again),
                cmocka_unit_test(test_many_threads_on_a_small_pool),
                cmocka_unit_test(test_fork_beside_threads),
                cmocka_unit_test(test_full_heap),
                cmocka_unit_test(test_what_is_refused_is_said),
        };

        child_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
