/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * RCU: read sections and grace periods, kfree_rcu, callbacks, pages of type-safe caches.
 *
 * In the attacks, readers look at objects that writers take away and give up in a tight loop. Each
 * attack runs twice: as it is, when nothing may be seen, and with grace periods that are over at
 * once (sabotage), when the damage must be seen. The second shows that the first would notice.
 */
#define _GNU_SOURCE
#include "engines.h"
#include "filter.h"
#include "forked.h"
#include "steps.h"

#include "base/metadata.h"
#include "base/rcu.h"
#include "machine/system.h"
#include "kmem.h"
#include "page/deferred.h"
#include "percpu/percpu.h"
#include "percpu/rcu_sheaf.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static bool sabotage;        /* grace periods are over at once */
static size_t refused_bytes; /* metadata of this size is out */

void __real_rcu_wait(uint64_t snapshot);
bool __real_rcu_poll_seldom(uint64_t snapshot, uint64_t *refused_ms);
void *__real_metadata_alloc(size_t bytes);

void __wrap_rcu_wait(uint64_t snapshot);
bool __wrap_rcu_poll_seldom(uint64_t snapshot, uint64_t *refused_ms);
void *__wrap_metadata_alloc(size_t bytes);

void __wrap_rcu_wait(uint64_t snapshot)
{
        if (!sabotage)
                __real_rcu_wait(snapshot);
}

bool __wrap_rcu_poll_seldom(uint64_t snapshot, uint64_t *refused_ms)
{
        return sabotage || __real_rcu_poll_seldom(snapshot, refused_ms);
}

void *__wrap_metadata_alloc(size_t bytes)
{
        return bytes == refused_bytes ? NULL : __real_metadata_alloc(bytes);
}

static uint64_t now_ms(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

#define wait_until(condition)                                                                      \
        do {                                                                                       \
                uint64_t deadline_ = now_ms() + 20000;                                             \
                while (!(condition)) {                                                             \
                        check(now_ms() < deadline_);                                               \
                        sched_yield();                                                             \
                }                                                                                  \
        } while (0)

/* Objects that are not at rest anywhere. */
static uint64_t objects_in_use(struct kmem_cache *cache)
{
        struct engine_report report = {0};
        uint64_t resting;

        percpu_report(cache, &report, &resting);
        return report.taken - report.given - resting;
}

/* ---- A reader that stays in its section until it is told to leave -------------------------- */

static struct stayer {
        pthread_t thread;
        uint32_t stage; /* 1: inside; 2: may leave; 3: has left */
} stayer;

static void *stay(void *unused)
{
        kmem_rcu_read_lock();
        __atomic_store_n(&stayer.stage, 1, __ATOMIC_RELEASE);
        while (__atomic_load_n(&stayer.stage, __ATOMIC_ACQUIRE) != 2)
                sched_yield();
        kmem_rcu_read_unlock();
        __atomic_store_n(&stayer.stage, 3, __ATOMIC_RELEASE);
        return unused;
}

static void stayer_enter(void)
{
        stayer.stage = 0;
        check_equal(pthread_create(&stayer.thread, NULL, stay, NULL), 0);
        wait_until(__atomic_load_n(&stayer.stage, __ATOMIC_ACQUIRE) == 1);
}

static void stayer_leave(void)
{
        __atomic_store_n(&stayer.stage, 2, __ATOMIC_RELEASE);
        check_equal(pthread_join(stayer.thread, NULL), 0);
}

/* ---- Sections and grace periods ------------------------------------------------------------ */

static void test_sections_nest(void **state)
{
        assert_false(kmem_rcu_read_lock_held());
        for (int depth = 1; depth <= 1000; depth++)
                kmem_rcu_read_lock();
        for (int depth = 1000; depth >= 1; depth--) {
                assert_true(kmem_rcu_read_lock_held());
                kmem_rcu_read_unlock();
        }
        assert_false(kmem_rcu_read_lock_held());
        kmem_synchronize_rcu();
}

static void test_poll_waits_for_readers(void **state)
{
        uint64_t snapshot;

        stayer_enter();
        snapshot = rcu_snapshot();
        for (int i = 0; i < 100; i++)
                assert_false(rcu_poll(snapshot));
        stayer_leave();
        assert_true(rcu_poll(snapshot));

        /* A section that begins after the snapshot's grace period does not delay it. */
        snapshot = rcu_snapshot();
        assert_true(rcu_poll(snapshot));
        kmem_rcu_read_lock();
        assert_true(rcu_poll(snapshot));
        assert_false(rcu_poll(rcu_snapshot()));
        kmem_rcu_read_unlock();
        assert_true(rcu_poll(rcu_snapshot()));
}

static uint32_t synchronized;

static void *synchronize(void *unused)
{
        kmem_synchronize_rcu();
        /* The section has ended before: its last store is seen. */
        check(__atomic_load_n(&stayer.stage, __ATOMIC_ACQUIRE) >= 2);
        __atomic_store_n(&synchronized, 1, __ATOMIC_RELEASE);
        return unused;
}

static void test_synchronize_waits(void **state)
{
        pthread_t thread;

        synchronized = 0;
        stayer_enter();
        assert_int_equal(pthread_create(&thread, NULL, synchronize, NULL), 0);
        for (uint64_t end = now_ms() + 50; now_ms() < end;)
                check_equal(__atomic_load_n(&synchronized, __ATOMIC_ACQUIRE), 0);
        stayer_leave();
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(synchronized, 1);
}

/*
 * RCU-3: a reader's announcement may wait in its processor's store buffer until the barrier of the
 * grace period, while the reader already looks at the object that it found. No processor waits on
 * request, so the reader keeps its store back until a filter of system calls tells it of the
 * starter's barrier.
 */
static struct late_reader {
        int barriers;            /* descriptor from which it hears of the starter's barriers */
        uint64_t word;           /* the reader's announcement, seen by itself only */
        uint64_t barrier_number; /* the grace period that was published by then */
        uint32_t stage;          /* 1: has a record; 2: reads; 3: may leave */
} late_reader;

static void announce_at_barrier(void)
{
        struct seccomp_notif call = {0};
        struct seccomp_notif_resp answer = {0};

        check_equal(ioctl(late_reader.barriers, SECCOMP_IOCTL_NOTIF_RECV, &call), 0);
        store_relaxed(&late_reader.barrier_number, load_relaxed(&rcu.number));
        store_relaxed(&rcu_this_reader->word, late_reader.word);
        answer.id = call.id;
        check_equal(ioctl(late_reader.barriers, SECCOMP_IOCTL_NOTIF_SEND, &answer), 0);
}

static void *read_late(void *unused)
{
        rcu_enter();
        rcu_leave();
        store_release(&late_reader.stage, 1);
        wait_until(load_acquire(&late_reader.stage) == 2);
        announce_at_barrier();
        wait_until(load_acquire(&late_reader.stage) == 3);
        rcu_leave();
        return unused;
}

static void barrier_shows_readers(void)
{
        uint64_t snapshot;
        pthread_t thread;

        check_equal(pthread_create(&thread, NULL, read_late, NULL), 0);
        wait_until(load_acquire(&late_reader.stage) == 1);
        late_reader.barriers =
                rcu.fences ? -1
                           : filter_calls(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED,
                                          SECCOMP_RET_USER_NOTIF);
        if (late_reader.barriers < 0) {
                puts("# skipped: no membarrier, or no seccomp filter can report it");
                exit(CHILD_SKIP);
        }
        late_reader.word = load_relaxed(&rcu.number) << RCU_NESTING_BITS | 1;
        store_release(&late_reader.stage, 2);
        snapshot = rcu_snapshot();
        check(!rcu_poll(snapshot));
        /* A reader behind the barrier must not announce itself with an older number. */
        check_equal(load_relaxed(&late_reader.barrier_number), snapshot);
        store_release(&late_reader.stage, 3);
        check_equal(pthread_join(thread, NULL), 0);
        check(rcu_poll(snapshot));
        close(late_reader.barriers);
}

static void test_barrier_shows_readers(void **state)
{
        child_passes("barrier-shows-readers", NULL);
}

static void *read_once(void *unused)
{
        kmem_rcu_read_lock();
        kmem_rcu_read_unlock();
        return unused;
}

static void threads_read_once(int count)
{
        pthread_t thread;

        for (int i = 0; i < count; i++) {
                assert_int_equal(pthread_create(&thread, NULL, read_once, NULL), 0);
                assert_int_equal(pthread_join(thread, NULL), 0);
        }
}

static void test_records_are_used_again(void **state)
{
        size_t before;

        kmem_rcu_read_lock();
        kmem_rcu_read_unlock();
        threads_read_once(10);
        before = metadata_used_bytes();
        threads_read_once(290);
        assert_int_equal(metadata_used_bytes(), before);
}

static void *end_inside(void *unused)
{
        kmem_rcu_read_lock();
        return unused;
}

static void thread_ends_inside(void)
{
        pthread_t thread;

        check_equal(pthread_create(&thread, NULL, end_inside, NULL), 0);
        check_equal(pthread_join(thread, NULL), 0);
        kmem_synchronize_rcu();
}

static void test_thread_ends_inside(void **state)
{
        child_prints("thread-ends-inside", NULL, "a thread ended inside an RCU read section");
}

static void wait_inside(void)
{
        kmem_rcu_read_lock();
        kmem_synchronize_rcu();
}

static void test_wait_inside_stops(void **state)
{
        child_aborts("wait-inside", NULL, "would wait for itself");
}

/* Once more than entered, and in a thread that never was inside. */
static void leave_twice(void)
{
        kmem_rcu_read_lock();
        kmem_rcu_read_unlock();
        kmem_rcu_read_unlock();
}

static void leave_first(void)
{
        kmem_rcu_read_unlock();
}

static void test_leaving_without_a_section_stops(void **state)
{
        child_aborts("leave-twice", NULL,
                     "kmem_rcu_read_unlock: this thread is in no read section");
        child_aborts("leave-first", NULL,
                     "kmem_rcu_read_unlock: this thread is in no read section");
}

/* The stayer is inside in the parent and does not exist in the child. */
static void test_fork(void **state)
{
        pid_t pid;

        stayer_enter();
        kmem_rcu_read_lock();
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                uint64_t snapshot = rcu_snapshot();

                alarm(30);
                forked_child_starts_no_thread_under_qemu();
                if (!kmem_rcu_read_lock_held() || rcu_poll(snapshot))
                        _exit(1);
                kmem_rcu_read_unlock();
                kmem_synchronize_rcu();
                kfree_rcu(kmalloc(100, GFP_KERNEL));
                kfree_rcu_barrier();
                kmem_rcu_barrier();
                _exit(rcu_poll(snapshot) ? 0 : 2);
        }
        kmem_rcu_read_unlock();
        child_wait(pid);
        stayer_leave();
}

static pid_t forked = -1; /* by the handler; 0 in the child */

static void fork_in_handler(void)
{
        forked = fork();
        check(forked >= 0);
}

static struct rcu_reader *record_of_next;

static void *note_record(void *unused)
{
        kmem_rcu_read_lock();
        record_of_next = rcu_this_reader;
        kmem_rcu_read_unlock();
        return unused;
}

static void *fork_while_registering(void *count)
{
        bool done = run_with_act_at(*(unsigned int *)count, kmem_rcu_read_lock, fork_in_handler);

        if (forked == 0) {
                pthread_t next;

                alarm(30);
                check_equal(pthread_create(&next, NULL, note_record, NULL), 0);
                check_equal(pthread_join(next, NULL), 0);
                check(record_of_next != rcu_this_reader);
                _exit(0);
        }
        kmem_rcu_read_unlock();
        return done ? count : NULL;
}

/* Wherever a thread's first section is interrupted: its record stays its own in the child. */
static void registering_forks(void)
{
        unsigned int count = 0;
        pthread_t thread;
        void *done;

        kmem_synchronize_rcu();
        threads_read_once(1);
        do {
                check_equal(pthread_create(&thread, NULL, fork_while_registering, &count), 0);
                check_equal(pthread_join(thread, &done), 0);
                if (done)
                        child_wait(forked);
                count++;
        } while (done);
        check(count > 20); /* that many instructions it takes at least */
}

static void test_registering_forks(void **state)
{
        skip_without_steps();
        skip_without_threads_after_fork();
        child_passes("registering-forks", NULL);
}

static void no_memory_for_records(void)
{
        pthread_t threads[20];

        kmem_synchronize_rcu();
        refused_bytes = sizeof(struct rcu_reader);
        for (int i = 0; i < 20; i++)
                check_equal(pthread_create(&threads[i], NULL, read_once, NULL), 0);
        for (int i = 0; i < 20; i++)
                check_equal(pthread_join(threads[i], NULL), 0);
        kmem_synchronize_rcu();
}

static pthread_barrier_t all_have_read;

static void *read_and_wait(void *unused)
{
        kmem_rcu_read_lock();
        kmem_rcu_read_unlock();
        pthread_barrier_wait(&all_have_read);
        for (;;)
                pause();
        return unused;
}

/* 64 threads at once have records from the reserve; there is none for another. */
static void no_memory_for_more_records(void)
{
        enum { RESERVE = 64 };
        pthread_t threads[RESERVE];

        kmem_synchronize_rcu();
        refused_bytes = sizeof(struct rcu_reader);
        check_equal(pthread_barrier_init(&all_have_read, NULL, RESERVE + 1), 0);
        for (int i = 0; i < RESERVE; i++)
                check_equal(pthread_create(&threads[i], NULL, read_and_wait, NULL), 0);
        pthread_barrier_wait(&all_have_read);
        kmem_rcu_read_lock();
}

static void test_no_memory_for_records(void **state)
{
        child_passes("no-memory-for-records", NULL);
        child_aborts("no-memory-for-more-records", NULL,
                     "out of memory for the RCU record of a thread, and the 64 records in reserve "
                     "are taken");
}

/* ---- kfree_rcu and callbacks --------------------------------------------------------------- */

struct item {
        uint64_t value;
        struct kmem_rcu_head rcu;
        uint64_t more[5];
};

static void free_items(struct kmem_cache *cache, unsigned int count, bool with_head)
{
        for (unsigned int i = 0; i < count; i++) {
                struct item *item = kmem_cache_zalloc(cache, GFP_KERNEL);

                check(item);
                if (with_head)
                        kfree_rcu(item, rcu);
                else
                        kvfree_rcu(item);
        }
}

static void test_kfree_rcu(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("items", sizeof(struct item), 0, 0, NULL);
        struct item *none = NULL;
        char *large = kmalloc(100000, GFP_KERNEL);

        skip_on_slob("does not kfree objects of caches");
        kfree_rcu(none, rcu);
        kfree_rcu(none);
        kfree_rcu((char *)ZERO_SIZE_PTR);
        memset(large, 1, 100000);
        kfree_rcu(large);
        stayer_enter();
        free_items(cache, 5000, true);
        free_items(cache, 5000, false);
        kmem_cache_shrink(cache);
        assert_int_equal(objects_in_use(cache), 10000);
        stayer_leave();
        kfree_rcu_barrier();
        assert_int_equal(objects_in_use(cache), 0);

        /*
         * Without a barrier: later calls free the objects that earlier calls left. While the
         * reclaim thread frees, they leave all to it, and it may have to wait for a processor.
         */
        free_items(cache, 100000, true);
        wait_until((free_items(cache, 1, true), objects_in_use(cache) < 90000));
        /* Destroy waits for the rest (S8-08). */
        kmem_cache_destroy(cache);
}

/* Whether kfree_rcu puts the cache's objects into sheaves, in place of batches (S13-09). */
static bool collects_in_sheaves(const struct kmem_cache *cache)
{
        return cache->sheaves_as_7_0 && cache->sheaf_capacity;
}

/* A batch takes a page of metadata; a sheaf was there already, so nothing needs memory. */
static void no_memory_to_collect(void)
{
        struct kmem_cache *cache = kmem_cache_create("items", sizeof(struct item), 0, 0, NULL);
        struct item *items[200];

        for (int i = 0; i < 200; i++)
                items[i] = kmem_cache_alloc(cache, GFP_KERNEL);
        kmem_rcu_read_lock();
        kmem_rcu_read_unlock();
        refused_bytes = 4096;
        stayer_enter();
        for (int i = 0; i < 100; i++)
                kfree_rcu(items[i], rcu);
        check_equal(objects_in_use(cache), 200);
        stayer_leave();
        for (int i = 100; i < 199; i++)
                kfree_rcu(items[i]);
        kmem_rcu_read_lock();
        kfree_rcu(items[199]); /* without sheaves it leaks, and says so */
        kmem_rcu_read_unlock();
        kfree_rcu_barrier();
        check_equal(objects_in_use(cache), collects_in_sheaves(cache) ? 0 : 1);
        refused_bytes = 0;
        if (!collects_in_sheaves(cache))
                kmem_cache_free(cache, items[199]);
        kmem_cache_destroy(cache);
}

static void test_no_memory_to_collect(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("like items", sizeof(struct item), 0, 0, NULL);
        bool in_sheaves = collects_in_sheaves(cache);

        kmem_cache_destroy(cache);
        skip_on_slob("does not kfree objects of caches");
        if (in_sheaves)
                child_passes("no-memory-to-collect", NULL);
        else
                child_prints("no-memory-to-collect", NULL, "the block leaks");
}

/*
 * Another thread is in the middle of freeing, its batch or sheaf in no queue any more. A thread that
 * finds its lock taken lets it go on, which no other thread does.
 */
static uint32_t free_stage;           /* 1: the next thread to free waits; 2: it does; 3: goes on */
static uint32_t frees_over;           /* objects taken out of the queue by then are free */
static _Thread_local bool in_barrier; /* of the thread that calls the barrier */

void __real_blocks_free(size_t count, void **objects, uint32_t entry, unsigned int run,
                        unsigned int pushed, const char *call, const void *site);
void __wrap_blocks_free(size_t count, void **objects, uint32_t entry, unsigned int run,
                        unsigned int pushed, const char *call, const void *site);
void __real_rcu_sheaf_end(struct rcu_sheaf *waiting);
void __wrap_rcu_sheaf_end(struct rcu_sheaf *waiting);
void __real_lock_wait(struct lock *lock);
void __wrap_lock_wait(struct lock *lock);

/* True for a thread that had to wait in the middle of freeing. */
static bool waited_in_the_middle(void)
{
        uint32_t expected = 1;

        if (!compare_swap(&free_stage, &expected, 2))
                return false;
        wait_until(load_acquire(&free_stage) == 3);
        return true;
}

void __wrap_blocks_free(size_t count, void **objects, uint32_t entry, unsigned int run,
                        unsigned int pushed, const char *call, const void *site)
{
        bool waited = waited_in_the_middle();

        __real_blocks_free(count, objects, entry, run, pushed, call, site);
        if (waited)
                store_release(&frees_over, 1);
}

void __wrap_rcu_sheaf_end(struct rcu_sheaf *waiting)
{
        bool waited = waited_in_the_middle();

        __real_rcu_sheaf_end(waiting);
        if (waited)
                store_release(&frees_over, 1);
}

void __wrap_lock_wait(struct lock *lock)
{
        if (in_barrier)
                store_release(&free_stage, 3);
        __real_lock_wait(lock);
}

static void *free_until_in_the_middle(void *unused)
{
        while (load_acquire(&free_stage) == 1)
                kfree_rcu(kmalloc(50, GFP_KERNEL));
        return unused;
}

static void barrier_beside_frees(void)
{
        pthread_t thread;

        free_stage = 1;
        check_equal(pthread_create(&thread, NULL, free_until_in_the_middle, NULL), 0);
        wait_until(load_acquire(&free_stage) == 2);
        in_barrier = true;
        kfree_rcu_barrier();
        in_barrier = false;
        check_equal(load_acquire(&frees_over), 1);
        check_equal(pthread_join(thread, NULL), 0);
}

static void test_barrier_waits_for_frees(void **state)
{
        child_passes("barrier-beside-frees", NULL);
}

static uint32_t barrier_is_over;

static void call_barriers(struct kmem_rcu_head *head)
{
        struct kmem_cache *cache = kmem_cache_create("short", 40, 0, 0, NULL);

        kfree_rcu_barrier();
        kmem_cache_destroy(cache);
        __atomic_store_n(&barrier_is_over, 1, __ATOMIC_RELEASE);
}

/* A callback may wait for kfree_rcu, also for blocks that could not be collected, now or before. */
static void barriers_in_a_callback(void)
{
        static struct kmem_rcu_head head;

        for (int i = 0; i < 100; i++) {
                struct item *item = kmalloc(sizeof(*item), GFP_KERNEL);

                refused_bytes = 4096;
                kfree_rcu(item, rcu);
                refused_bytes = 0;
        }
        kmem_call_rcu(&head, call_barriers);
        wait_until(__atomic_load_n(&barrier_is_over, __ATOMIC_ACQUIRE));
}

static void test_barriers_in_a_callback(void **state)
{
        child_passes("barriers-in-a-callback", NULL);
}

/* A block that could not be collected is freed by later calls, too. */
static void no_memory_for_a_while(void)
{
        struct kmem_cache *cache = kmem_cache_create("items", sizeof(struct item), 0, 0, NULL);
        struct item *items[100];

        for (int i = 0; i < 100; i++)
                items[i] = kmem_cache_alloc(cache, GFP_KERNEL);
        refused_bytes = 4096;
        stayer_enter();
        for (int i = 0; i < 100; i++)
                kfree_rcu(items[i], rcu);
        check_equal(objects_in_use(cache), 100);
        stayer_leave();
        wait_until((kmem_cache_shrink(cache), objects_in_use(cache) == 0));
        kmem_cache_destroy(cache);
}

static void test_no_memory_for_a_while(void **state)
{
        skip_on_slob("does not kfree objects of caches");
        child_passes("no-memory-for-a-while", NULL);
}

enum { CALLBACKS = 3000 };

static struct callback {
        uint64_t number;
        struct kmem_rcu_head head;
} callbacks[CALLBACKS];
static uint32_t callbacks_run;

static void callback_ran(struct kmem_rcu_head *head)
{
        struct callback *callback =
                (struct callback *)((char *)head - offsetof(struct callback, head));

        check(!kmem_rcu_read_lock_held());
        check_equal(callback->number, __atomic_load_n(&callbacks_run, __ATOMIC_RELAXED));
        __atomic_add_fetch(&callbacks_run, 1, __ATOMIC_RELEASE);
}

static void test_callbacks(void **state)
{
        for (unsigned int i = 0; i < CALLBACKS; i++)
                callbacks[i].number = i;
        stayer_enter();
        for (unsigned int i = 0; i < CALLBACKS / 3; i++)
                kmem_call_rcu(&callbacks[i].head, callback_ran);
        assert_int_equal(__atomic_load_n(&callbacks_run, __ATOMIC_ACQUIRE), 0);
        stayer_leave();
        kmem_rcu_barrier();
        assert_int_equal(callbacks_run, CALLBACKS / 3);

        /* The thread alone brings the rest to its end. */
        for (unsigned int i = CALLBACKS / 3; i < CALLBACKS; i++)
                kmem_call_rcu(&callbacks[i].head, callback_ran);
        wait_until(__atomic_load_n(&callbacks_run, __ATOMIC_ACQUIRE) == CALLBACKS);
}

/* ---- A callback that forks ----------------------------------------------------------------- */

static uint32_t fork_is_over; /* the callback that forked has returned, in this process */
static uint32_t late_ran;

static void late(struct kmem_rcu_head *head)
{
        check(__atomic_load_n(&stayer.stage, __ATOMIC_ACQUIRE) >= 2);
        __atomic_store_n(&late_ran, 1, __ATOMIC_RELEASE);
}

static void pause_ms(uint64_t duration)
{
        for (uint64_t end = now_ms() + duration; now_ms() < end;)
                sched_yield();
}

static void *judge(void *unused)
{
        wait_until(__atomic_load_n(&fork_is_over, __ATOMIC_ACQUIRE));
        pause_ms(50);
        check_equal(__atomic_load_n(&late_ran, __ATOMIC_ACQUIRE), 0);
        stayer_leave();
        wait_until(__atomic_load_n(&late_ran, __ATOMIC_ACQUIRE));
        kmem_rcu_barrier();
        _exit(0);
        return unused;
}

static void after_fork(struct kmem_rcu_head *head)
{
        __atomic_store_n(&fork_is_over, 1, __ATOMIC_RELEASE);
}

static void fork_in_callback(struct kmem_rcu_head *head)
{
        static struct kmem_rcu_head late_head;
        pthread_t thread;
        pid_t pid = fork();

        check(pid >= 0);
        if (pid == 0) {
                alarm(60);
                stayer_enter();
                /* The child's new thread may take it, but this thread must not run it. */
                kmem_call_rcu(&late_head, late);
                pause_ms(50);
                check_equal(pthread_create(&thread, NULL, judge, NULL), 0);
                return;
        }
        child_wait(pid);
}

/* No thread takes one callback without the other: the second runs in parent and child. */
static void call_both(struct kmem_rcu_head *head)
{
        static struct kmem_rcu_head heads[2];

        kmem_call_rcu(&heads[0], fork_in_callback);
        kmem_call_rcu(&heads[1], after_fork);
}

static void callback_forks(void)
{
        static struct kmem_rcu_head head;

        if (under_qemu()) {
                puts("qemu: no threads in a forked child");
                exit(CHILD_SKIP);
        }
        kmem_call_rcu(&head, call_both);
        wait_until(__atomic_load_n(&fork_is_over, __ATOMIC_ACQUIRE));
        kmem_rcu_barrier();
}

static void test_callback_forks(void **state)
{
        skip_without_threads_after_fork();
        child_passes("callback-forks", NULL);
}

/* A second implementation, with grace periods that end when the test says so. */
static uint64_t requested;

static void request(uint64_t number)
{
        __atomic_store_n(&requested, number, __ATOMIC_RELEASE);
}

static void domain(void)
{
        uint64_t snapshot;

        check(kmem_rcu_set_domain(request));
        check(!kmem_rcu_set_domain(request));
        snapshot = rcu_snapshot();
        check(!rcu_poll(snapshot));
        check_equal(requested, snapshot);
        check(!rcu_poll(snapshot));
        kmem_rcu_domain_done(requested - 1);
        check(!rcu_poll(snapshot));
        kmem_rcu_domain_done(requested);
        check(rcu_poll(snapshot));
        /* Both kinds must be over. */
        stayer_enter();
        snapshot = rcu_snapshot();
        check(!rcu_poll(snapshot));
        kmem_rcu_domain_done(requested);
        check(!rcu_poll(snapshot));
        stayer_leave();
        check(rcu_poll(snapshot));
}

static void test_domain(void **state)
{
        child_passes("domain", NULL);
}

/* ---- Pages of type-safe caches ------------------------------------------------------------- */

static const uint64_t MAGIC = 0x7e57ab1e0b1ec7ed;

struct typed {
        uint64_t first;
        uint64_t value;
        char filling[400];
        uint64_t last;
};

static void typed_construct(void *object)
{
        struct typed *typed = object;

        /* Readers of an object that was freed and taken again see these stores. */
        __atomic_store_n(&typed->first, MAGIC, __ATOMIC_RELAXED);
        __atomic_store_n(&typed->last, MAGIC, __ATOMIC_RELAXED);
}

static struct kmem_cache *typed_cache(void)
{
        return kmem_cache_create("typed", sizeof(struct typed), 0, SLAB_TYPESAFE_BY_RCU,
                                 typed_construct);
}

enum { TYPED = 2000 };

static struct typed *typed[TYPED];

static void typed_take_all(struct kmem_cache *cache)
{
        for (int i = 0; i < TYPED; i++)
                check(typed[i] = kmem_cache_alloc(cache, GFP_KERNEL));
}

static void typed_free_all(struct kmem_cache *cache)
{
        for (int i = 0; i < TYPED; i++)
                kmem_cache_free(cache, typed[i]);
}

static void typed_check_all(void)
{
        for (int i = 0; i < TYPED; i++)
                check(typed[i]->first == MAGIC && typed[i]->last == MAGIC);
}

static void test_pages_wait_for_readers(void **state)
{
        struct kmem_cache *cache = typed_cache();
        struct engine_report report = {0};
        uint64_t resting;

        skip_on_slob("keeps a type-safe cache's memory until it is destroyed");
        /* An object of the CPU slab is reused at once, also without sheaves, and comes constructed. */
        typed_take_all(cache);
        typed[TYPED - 1]->value = 17;
        kmem_cache_free(cache, typed[TYPED - 1]);
        assert_ptr_equal(kmem_cache_alloc(cache, GFP_KERNEL), typed[TYPED - 1]);
        assert_int_equal(typed[TYPED - 1]->value, 17);
        typed_check_all();

        stayer_enter();
        typed_free_all(cache);
        assert_int_equal(kmem_cache_shrink(cache), 0);
        percpu_report(cache, &report, &resting);
        assert_int_equal(engine_report_total(&report).slabs, 0);
        assert_true(deferred_pages >= TYPED * sizeof(struct typed) / 4096);
        typed_check_all(); /* the pages have not been given to anybody */
        stayer_leave();
        wait_until(kmem_cache_shrink(cache) == 0 && deferred_pages == 0);
        kmem_cache_destroy(cache);
}

static void test_new_slabs_release_pages(void **state)
{
        struct kmem_cache *cache = typed_cache();
        struct kmem_cache *other = kmem_cache_create("other", 4000, 0, 0, NULL);
        void *objects[200];
        uint64_t refused;

        skip_on_slob("keeps a type-safe cache's memory until it is destroyed");
        typed_take_all(cache);
        stayer_enter();
        typed_free_all(cache);
        kmem_cache_shrink(cache);
        assert_true(deferred_pages > 0);
        stayer_leave();
        refused = system_time_ms();
        /* A poll that was refused is not repeated until the coarse clock moves. */
        wait_until(system_time_ms() != refused);
        for (int i = 0; i < 200; i++)
                objects[i] = kmem_cache_alloc(other, GFP_KERNEL);
        assert_int_equal(deferred_pages, 0);
        kmem_cache_free_bulk(other, 200, objects);
        kmem_cache_destroy(other);
        kmem_cache_destroy(cache);
}

static void *destroy(void *cache)
{
        kmem_cache_destroy(cache);
        check(__atomic_load_n(&stayer.stage, __ATOMIC_ACQUIRE) >= 2);
        __atomic_store_n(&synchronized, 1, __ATOMIC_RELEASE);
        return NULL;
}

/* Destroy waits, but not with the lock that a reader needs to make a cache. */
static void test_destroy_waits(void **state)
{
        struct kmem_cache *cache = typed_cache();
        pthread_t thread;

        synchronized = 0;
        typed_take_all(cache);
        typed_free_all(cache);
        stayer_enter();
        assert_int_equal(pthread_create(&thread, NULL, destroy, cache), 0);
        for (uint64_t end = now_ms() + 50; now_ms() < end;)
                check_equal(__atomic_load_n(&synchronized, __ATOMIC_ACQUIRE), 0);
        cache = kmem_cache_create("meanwhile", 100, 0, 0, NULL);
        assert_non_null(cache);
        stayer_leave();
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(deferred_pages, 0);
        kmem_cache_destroy(cache);
}

/* ---- Attacks ------------------------------------------------------------------------------- */

enum { READERS = 3, PLACES = 64, LOOKS = 40 };

static uint32_t attack_over;
static uint64_t sections;
static uint64_t damage;

/* With sabotage until the damage shows, else for a while in which much was read. */
static bool attack_lasts(uint64_t ms)
{
        if (ms > 30000 || __atomic_load_n(&damage, __ATOMIC_RELAXED))
                return false;
        return sabotage || ms < 1500 || __atomic_load_n(&sections, __ATOMIC_RELAXED) <= 1000;
}

static void attack(void *(*reader)(void *), void (*write_round)(uint64_t round))
{
        pthread_t threads[READERS];
        uint64_t start = now_ms();

        for (int i = 0; i < READERS; i++)
                check_equal(pthread_create(&threads[i], NULL, reader, NULL), 0);
        for (uint64_t round = 0; attack_lasts(now_ms() - start); round++)
                write_round(round);
        __atomic_store_n(&attack_over, 1, __ATOMIC_RELEASE);
        for (int i = 0; i < READERS; i++)
                check_equal(pthread_join(threads[i], NULL), 0);
        check(sabotage || sections > 1000);
        check_equal(damage != 0, sabotage);
}

static void section_ends(bool whole)
{
        __atomic_add_fetch(&sections, 1, __ATOMIC_RELAXED);
        if (!whole)
                __atomic_add_fetch(&damage, 1, __ATOMIC_RELAXED);
}

static bool attack_goes_on(void)
{
        return !__atomic_load_n(&attack_over, __ATOMIC_ACQUIRE);
}

/* Readers against base/rcu: a place, two cells; the cell that is not shown is poisoned. */
static struct {
        uint64_t value __attribute__((aligned(64)));
} cells[2];
static uint32_t shown __attribute__((aligned(64)));

static void *read_cells(void *unused)
{
        while (attack_goes_on()) {
                bool whole = true;

                for (int i = 0; i < 1000; i++) {
                        kmem_rcu_read_lock();
                        uint32_t cell = __atomic_load_n(&shown, __ATOMIC_ACQUIRE);

                        for (int look = 0; look < LOOKS; look++)
                                whole &= __atomic_load_n(&cells[cell].value, __ATOMIC_RELAXED) != 0;
                        kmem_rcu_read_unlock();
                }
                section_ends(whole);
        }
        return unused;
}

static void write_cells(uint64_t round)
{
        uint32_t old = shown;

        if (!round)
                __atomic_store_n(&cells[old].value, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&cells[!old].value, round + 1, __ATOMIC_RELAXED);
        __atomic_store_n(&shown, !old, __ATOMIC_RELEASE);
        kmem_synchronize_rcu();
        __atomic_store_n(&cells[old].value, 0, __ATOMIC_RELAXED);
}

static void attack_cells(void)
{
        cells[0].value = 1;
        /* Readers that count sections by the thousand: few are enough. */
        sections = 1000;
        attack(read_cells, write_cells);
}

static void attack_cells_sabotaged(void)
{
        sabotage = true;
        attack_cells();
}

static void attack_cells_fenced(void)
{
        attack_cells();
        check(rcu.fences);
}

/* Readers of places against kfree_rcu and a thread that takes the freed memory. */
static struct typed *places[PLACES];

static bool looks_whole(const struct typed *object)
{
        bool whole = true;

        for (int look = 0; look < LOOKS; look++)
                whole &= __atomic_load_n(&object->first, __ATOMIC_RELAXED) == MAGIC &&
                         __atomic_load_n(&object->last, __ATOMIC_RELAXED) == MAGIC;
        return whole;
}

static void *read_places(void *unused)
{
        while (attack_goes_on()) {
                bool whole = true;

                kmem_rcu_read_lock();
                for (int i = 0; i < PLACES; i++) {
                        struct typed *object = __atomic_load_n(&places[i], __ATOMIC_ACQUIRE);

                        if (object)
                                whole &= looks_whole(object);
                }
                kmem_rcu_read_unlock();
                section_ends(whole);
        }
        return unused;
}

static struct typed *place_exchange(int place, struct typed *object)
{
        return __atomic_exchange_n(&places[place], object, __ATOMIC_ACQ_REL);
}

static void write_objects(uint64_t round)
{
        void *scribbled[PLACES];

        for (int i = 0; i < PLACES; i++) {
                struct typed *object = kmalloc(sizeof(*object), GFP_KERNEL);

                typed_construct(object);
                object = place_exchange(i, object);
                if (object)
                        kfree_rcu(object);
        }
        for (int i = 0; i < PLACES; i++) {
                scribbled[i] = kmalloc(sizeof(struct typed), GFP_KERNEL);
                memset(scribbled[i], 0xa5, sizeof(struct typed));
        }
        kfree_bulk(PLACES, scribbled);
        if (round % 64 == 0)
                kfree_rcu_barrier();
}

static void attack_objects(void)
{
        attack(read_places, write_objects);
        for (int i = 0; i < PLACES; i++)
                kfree(places[i]);
}

static void attack_objects_sabotaged(void)
{
        sabotage = true;
        attack_objects();
}

/*
 * Readers of places against slabs that come and go. Objects are freed and reused at once, so a
 * reader's object may become another object, but it stays an object.
 */
static struct kmem_cache *attacked;

static void write_pages(uint64_t round)
{
        void *scribbled[PLACES];

        for (int i = 0; i < PLACES; i++) {
                struct typed *object = kmem_cache_alloc(attacked, GFP_KERNEL);

                check(object->first == MAGIC && object->last == MAGIC);
                object = place_exchange(i, object);
                if (object)
                        kmem_cache_free(attacked, object);
        }
        if (round % 4)
                return;
        for (int i = 0; i < PLACES; i++)
                kmem_cache_free(attacked, place_exchange(i, NULL));
        kmem_cache_shrink(attacked);
        for (int i = 0; i < PLACES; i++) {
                scribbled[i] = kmem_pages_alloc(GFP_KERNEL, (unsigned int)i % 4);
                memset(scribbled[i], 0xa5, 4096u << i % 4);
        }
        kfree_bulk(PLACES, scribbled);
}

static void attack_pages(void)
{
        attacked = typed_cache();
        attack(read_places, write_pages);
        for (int i = 0; i < PLACES; i++)
                kmem_cache_free(attacked, places[i]);
        kmem_cache_destroy(attacked);
        check_equal(deferred_pages, 0);
}

static void attack_pages_sabotaged(void)
{
        sabotage = true;
        attack_pages();
}

/* Sections come and go with their threads while grace periods are asked for. */
static void *read_in_threads(void *unused)
{
        while (attack_goes_on()) {
                pthread_t thread;

                check_equal(pthread_create(&thread, NULL, read_once, NULL), 0);
                kmem_rcu_read_lock();
                section_ends(true);
                kmem_rcu_read_unlock();
                check_equal(pthread_join(thread, NULL), 0);
        }
        return unused;
}

static void write_nothing(uint64_t round)
{
        kmem_synchronize_rcu();
        kfree_rcu(kmalloc(50, GFP_KERNEL));
        if (round % 16 == 0) {
                pid_t pid = fork();

                check(pid >= 0);
                if (pid == 0) {
                        forked_child_starts_no_thread_under_qemu();
                        kmem_synchronize_rcu();
                        kfree_rcu_barrier();
                        _exit(0);
                }
                child_wait(pid);
        }
}

static void attack_threads(void)
{
        sections = 1000;
        attack(read_in_threads, write_nothing);
}

static void test_attacks(void **state)
{
        child_passes("attack-cells", NULL);
        child_passes("attack-objects", NULL);
        child_passes("attack-pages", NULL);
        child_passes("attack-pages", "slots=locked,min_partial=0");
        child_passes("attack-pages", "sheaf_capacity=0,cpu_partial=0,min_partial=0");
        child_passes("attack-threads", NULL);
}

static void test_attacks_succeed_without_grace_periods(void **state)
{
        if (THREAD_SANITIZER)
                skip_because("ThreadSanitizer finds the race that this case makes");
        child_passes("attack-cells-sabotaged", NULL);
        child_passes("attack-objects-sabotaged", NULL);
        if (!is_slob())
                child_passes("attack-pages-sabotaged", NULL);
}

static void test_attacks_without_membarrier(void **state)
{
        child_refuse_system_call(SYS_membarrier);
        child_passes("attack-cells-fenced", NULL);
        child_passes("attack-objects", NULL);
        child_passes("attack-pages", "slots=locked");
        child_refuse_system_call(-1);
}

int main(int argc, char **argv)
{
        static const struct child_case cases[] = {
                {"barrier-shows-readers", barrier_shows_readers},
                {"thread-ends-inside", thread_ends_inside},
                {"wait-inside", wait_inside},
                {"leave-twice", leave_twice},
                {"leave-first", leave_first},
                {"registering-forks", registering_forks},
                {"no-memory-for-records", no_memory_for_records},
                {"no-memory-for-more-records", no_memory_for_more_records},
                {"no-memory-to-collect", no_memory_to_collect},
                {"no-memory-for-a-while", no_memory_for_a_while},
                {"barrier-beside-frees", barrier_beside_frees},
                {"barriers-in-a-callback", barriers_in_a_callback},
                {"callback-forks", callback_forks},
                {"domain", domain},
                {"attack-cells", attack_cells},
                {"attack-cells-sabotaged", attack_cells_sabotaged},
                {"attack-cells-fenced", attack_cells_fenced},
                {"attack-objects", attack_objects},
                {"attack-objects-sabotaged", attack_objects_sabotaged},
                {"attack-pages", attack_pages},
                {"attack-pages-sabotaged", attack_pages_sabotaged},
                {"attack-threads", attack_threads},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_sections_nest),
                cmocka_unit_test(test_poll_waits_for_readers),
                cmocka_unit_test(test_synchronize_waits),
                cmocka_unit_test(test_barrier_shows_readers),
                cmocka_unit_test(test_records_are_used_again),
                cmocka_unit_test(test_thread_ends_inside),
                cmocka_unit_test(test_wait_inside_stops),
                cmocka_unit_test(test_leaving_without_a_section_stops),
                cmocka_unit_test(test_fork),
                cmocka_unit_test(test_registering_forks),
                cmocka_unit_test(test_no_memory_for_records),
                cmocka_unit_test(test_kfree_rcu),
                cmocka_unit_test(test_no_memory_to_collect),
                cmocka_unit_test(test_no_memory_for_a_while),
                cmocka_unit_test(test_barrier_waits_for_frees),
                cmocka_unit_test(test_barriers_in_a_callback),
                cmocka_unit_test(test_callbacks),
                cmocka_unit_test(test_callback_forks),
                cmocka_unit_test(test_domain),
                cmocka_unit_test(test_pages_wait_for_readers),
                cmocka_unit_test(test_new_slabs_release_pages),
                cmocka_unit_test(test_destroy_waits),
                cmocka_unit_test(test_attacks),
                cmocka_unit_test(test_attacks_succeed_without_grace_periods),
                cmocka_unit_test(test_attacks_without_membarrier),
        };

        child_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
