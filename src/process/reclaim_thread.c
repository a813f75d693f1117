/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The reclaim thread. A free that finds none starts it. The thread looks ten times a second
 * (heap/reclaim.c) until there is nothing left to give back and nobody uses the heap, and then
 * ends. An idle process has no reclaim thread and is not woken; a process in use has this thread.
 *
 * THREAD-1  Only the thread `current` looks. Another thread that still runs has been relieved: it
 *           ends at its next look, and `current` does not begin before the kernel has cleared the
 *           other's id.
 * THREAD-2  reclaim_wanted is 0 only if `current` runs and will look at least twice more, if a
 *           thread is being started, or if nobody is ever to be asked. A thread that is about to
 *           end sets it one look before. Its last look sees memory that was freed before that; a
 *           later free starts another thread. The starter clears reclaim_wanted before the start
 *           and not after: a signal handler that forks behind the start makes a child in which it
 *           must stay set.
 *
 * A thread keeps the credentials and the sandbox that its starter had, while the program may give
 * up its own; setuid and its like reach only threads of libc's. So the thread asks to be relieved
 * every two seconds: the next free starts a successor, which has the program's credentials of that
 * moment. If no free comes, the thread ends with its work. A thread made by libc would take locks
 * of libc inside free, and a program with a main thread that ends with pthread_exit would wait for
 * it.
 *
 * start_lock is only tried, and nothing is taken inside it but the metadata of a first start. A
 * caller that stops the thread keeps the lock, so nobody starts another meanwhile.
 */
#define _GNU_SOURCE
#include "heap/reclaim.h"

#include "heap/heap.h"
#include "machine/bare_thread.h"
#include "machine/event.h"
#include "base/options.h"
#include "engines/hardened/hardened.h"
#include "base/rcu.h"
#include "machine/stack.h"
#include "page/reclaim.h"
#include "percpu/area.h"
#include "profile/sample.h"
#include "process/slice.h"

#include <errno.h>
#include <pthread.h>

enum {
        LOOK_MS = 100,
        RELIEF_MS = 2000,
        REFUSED_MS = 1000, /* pause after a refused start */
        STOP_MS = 1000,    /* longest wait for a thread that is to stop */
};

static struct bare_thread threads[2];
static struct lock start_lock;
static uint32_t current;    /* index of the thread that looks, or looked last */
static uint64_t not_before; /* ms; no start earlier */
static bool stop_wanted;    /* set under start_lock; the next look is not made */

static int thread_run(void *argument)
{
        struct bare_thread *self = argument;
        uint32_t index = (uint32_t)(self - threads);
        uint64_t begun = system_time_ms();
        uint64_t last_use = begun;

        area_refuse_this_thread();
        stack_refuse_this_thread();
        system_name_thread("kmem-reclaim");
        /*
         * The starter stores `current` after the start, and nobody relieves the thread before.
         * Acquire, with the release in start_locked.
         */
        while (load_acquire(&current) != index)
                event_pause(1);
        for (;;) {
                uint64_t idle_ms = pages_delay_ms() + 2 * LOOK_MS;
                uint64_t now;
                bool sliced;

                event_pause(LOOK_MS - profile_slice_ms(LOOK_MS));
                /* Acquire, with start_locked of a successor, and end_threads_locked. */
                if (load_acquire(&current) != index || load_acquire(&stop_wanted))
                        return 0;
                /*
                 * THREAD-1. Acquire: the other thread's work comes before. Partner: its end, by the
                 *           kernel.
                 */
                if (load_acquire(&threads[!index].id))
                        continue;
                now = system_time_ms();
                if (system_entered_sandbox())
                        break;
                sliced = profile_slice(LOOK_MS);
                if (reclaim_step(now) || sliced)
                        last_use = now;
                else if (now - last_use > idle_ms + LOOK_MS)
                        break;
                /* THREAD-2 */
                if (now - last_use > idle_ms || now - begun > RELIEF_MS)
                        store_release(&reclaim_wanted, 1);
        }
        store_release(&reclaim_wanted, 1);
        return 0;
}

static void start_locked(void)
{
        const intptr_t offsets[] = {
                (char *)&errno - (char *)thread_pointer(),
                (char *)&rcu_this_reader - (char *)thread_pointer(),
                /*
                 * In a static program the second offset lies below all thread variables of the
                 * program.
                 */
                area_offset(),
                area_thread_offset(),
        };
        uint32_t next = !current;

        /* Acquire: the previous thread of this index has left its stack. Partner: the kernel. */
        if (load_acquire(&threads[next].id))
                return;
        /* It frees blocks of kfree_rcu. From now on this thread, too, takes the locks of hardened pools. */
        hardened_share();
        /* THREAD-2 */
        store_release(&reclaim_wanted, 0);
        if (!bare_thread_start(&threads[next], thread_run, &threads[next], offsets,
                               array_size(offsets))) {
                not_before = system_time_ms() + REFUSED_MS;
                store_release(&reclaim_wanted, 1);
                return;
        }
        /* Release, with thread_run: the new thread begins, the old thread is relieved. */
        store_release(&current, next);
}

/* The kernel, which is asked if libc does not say (musl), is asked seldom. */
static bool has_threads(void)
{
        enum threads known = system_threads();

        if (known == THREADS_UNKNOWN && system_time_ms() >= load_relaxed(&not_before)) {
                known = system_threads_asked();
                if (known != THREADS_MANY)
                        store_relaxed(&not_before, system_time_ms() + LOOK_MS);
        }
        return known == THREADS_MANY;
}

/*
 * Called by frees, in any thread, and in children of vfork, which share the library's memory but
 * not its threads.
 */
static void thread_start(void)
{
        /*
         * The caller is the reclaim thread itself. A successor must have the program's credentials,
         * not those of this thread.
         */
        if (thread_pointer() == (void *)threads[load_relaxed(&current)].pointer)
                return;
        if (options.reclaim_thread == RECLAIM_AUTO && !load_relaxed(&profile_slices) &&
            !has_threads())
                return;
        if (system_time_ms() < load_relaxed(&not_before) || !lock_try(&start_lock))
                return;
        if (system_entered_sandbox() || !system_is_own_process())
                store_relaxed(&not_before, system_time_ms() + REFUSED_MS);
        else
                start_locked();
        lock_drop(&start_lock);
}

static void end_threads_locked(uint32_t first, uint32_t second)
{
        uint64_t begun = system_time_ms();

        store_release(&stop_wanted, true);
        do
                event_pause(1);
        while ((system_has_thread(first) || system_has_thread(second)) &&
               system_time_ms() - begun < STOP_MS);
}

bool reclaim_thread_stop(void)
{
        uint32_t first;
        uint32_t second;

        /*
         * The lock is held by another thread of the program, or by code that a signal interrupted.
         */
        if (system_entered_sandbox() || !system_is_own_process() || !lock_try(&start_lock))
                return false;
        first = load_acquire(&threads[0].id);
        second = load_acquire(&threads[1].id);
        if (first || second)
                end_threads_locked(first, second);
        return true;
}

void reclaim_thread_allow(void)
{
        if (stop_wanted) {
                store_release(&stop_wanted, false);
                /* THREAD-2 */
                store_release(&reclaim_wanted, 1);
        }
        lock_drop(&start_lock);
}

bool reclaim_thread_is_there(void)
{
        return load_acquire(&threads[0].id) || load_acquire(&threads[1].id) ||
               lock_is_held(&start_lock);
}

/*
 * A process that ends needs no thread. Under valgrind, where the thread ends before the last frees,
 * a successor would make valgrind fail.
 */
static __attribute__((destructor)) void refuse_threads(void)
{
        store_relaxed(&not_before, UINT64_MAX);
}

/* The child has none of the threads, and no slice that one of them makes. */
static void fork_child(void)
{
        threads[0].id = 0;
        threads[1].id = 0;
        store_relaxed(&profile_in_slice, false);
        not_before = 0;
        stop_wanted = false;
        lock_reset(&start_lock);
        store_release(&reclaim_wanted, 1);
}

void reclaim_thread_init(void)
{
        /* A program with more rights than its caller may give them up at any time. */
        if (options.reclaim_thread == RECLAIM_OFF ||
            (options.reclaim_thread == RECLAIM_AUTO && system_is_privileged()))
                return;
        reclaim_start = thread_start;
        if (pthread_atfork(NULL, NULL, fork_child) == 0)
                store_release(&reclaim_wanted, 1);
}
