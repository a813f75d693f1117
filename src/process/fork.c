/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Fork, also of a process with a heap that has not started. All locks are taken before the fork,
 * outermost first, so that the child's copy of everything they protect is consistent; the child
 * resets them. Our handlers are registered before the handlers of the program and its libraries, so
 * that they run last before the fork and first after it: the other handlers may allocate.
 *
 * A signal handler may fork in the middle of a call of ours; handlers that have a debugger look at
 * a crash do. In a process with one thread, the interrupted call holds all locks that are held
 * then. They are left to it: it goes on when the handler returns, in the parent and in the child.
 */
#define _GNU_SOURCE
#include "process/fork.h"

#include "heap/pool_locks.h"
#include "heap/rcu.h"
#include "heap/reclaim.h"

#include "account/group.h"
#include "engines/hardened/hardened.h"
#include "base/metadata.h"
#include "base/rcu.h"
#include "machine/code_map.h"
#include "page/deferred.h"
#include "page/extra.h"
#include "page/large.h"
#include "page/purge.h"
#include "percpu/area.h"
#include "profile/sample.h"
#include "record/record.h"

#include <pthread.h>

/*
 * glibc locks its list of streams after all handlers have run. A thread that holds the list may
 * wait for a stream, and the stream's owner may wait for one of our locks. So the list comes first:
 * its lock counts its owner's claims, and fork takes it again.
 */
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));

enum { OWN_LOCKS_MAX = 16 }; /* more than any call holds */

/* For a process with a single thread. */
static struct {
        struct lock *locks[OWN_LOCKS_MAX]; /* locks that the interrupted call holds */
        unsigned int count;
        bool group_lock;
        unsigned int forks; /* forks under way: a handler may interrupt a fork, and fork itself */
} own;

static struct lock look_lock; /* of heap_page_locks_free */

/*
 * Whether the process has a single thread. Threads that libc does not know are not counted, except
 * the reclaim thread.
 */
static bool is_alone(void)
{
        return !reclaim_thread_is_there() && system_threads_asked() == THREADS_ONE;
}

static bool leave_to_interrupted(struct lock *lock)
{
        if (!own.forks || own.count == OWN_LOCKS_MAX || !lock_is_held(lock))
                return false;
        own.locks[own.count++] = lock;
        return true;
}

static void take(struct lock *lock)
{
        if (!leave_to_interrupted(lock))
                lock_take(lock);
}

static void take_pool(struct lock *lock)
{
        if (!leave_to_interrupted(lock))
                pool_lock_take(lock);
}

static bool is_own(const struct lock *lock)
{
        for (unsigned int i = 0; i < own.count; i++)
                if (own.locks[i] == lock)
                        return true;
        return false;
}

static void drop(struct lock *lock)
{
        if (!is_own(lock))
                lock_drop(lock);
}

static void reset(struct lock *lock)
{
        if (!is_own(lock))
                lock_reset(lock);
}

static void prepare(void)
{
        bool alone = is_alone();

        if (alone && own.forks++)
                return;
        /* In a process with a single thread glibc does not lock the list either. */
        if (!alone && &_IO_list_lock)
                _IO_list_lock();
        take(&heap_start_lock);
        pools_each_lock(take);
        call_rcu_fork_each_lock(take);
        kfree_rcu_fork_take(take);
        take(&cache_mutex);
        percpu_fork_take(take);
        take(&release_lock);
        take(&deferred_lock);
        rcu_fork_take(take);
        take(&hardened_open_lock);
        hardened_each_lock(take_pool, take);
        take(&huge_lock);
        take(&purge_lock);
        pages_each_lock(take);
        own.group_lock = own.forks && load_relaxed(&group_lock.held);
        if (!own.group_lock)
                group_lock_take();
        take(&extra_lock);
        take(&sample_lock);
        take(&guard_lock);
        take(&metadata_lock);
        record_fork(own.count != 0);
        record_fork_each_lock(take);
}

/* Releases all that prepare() took, in the reverse order. */
static void release_all(void (*release)(struct lock *lock))
{
        record_fork_each_lock(release);
        release(&metadata_lock);
        release(&guard_lock);
        release(&sample_lock);
        release(&extra_lock);
        if (!own.group_lock)
                group_lock_drop();
        pages_each_lock(release);
        release(&purge_lock);
        release(&huge_lock);
        hardened_each_lock(release, release);
        release(&hardened_open_lock);
        rcu_fork_release(release);
        release(&deferred_lock);
        release(&release_lock);
        percpu_fork_release(release);
        release(&cache_mutex);
        kfree_rcu_fork_release(release);
        call_rcu_fork_each_lock(release);
        pools_each_lock(release);
        release(&heap_start_lock);
        /* With several threads it is 0, and another thread that forks reads it already. */
        if (own.count)
                own.count = 0;
}

/* The last step: until then a handler's fork leaves the locks to the interrupted fork. */
static void one_fork_less(void)
{
        if (own.forks)
                own.forks--;
}

static void parent(void)
{
        if (own.forks <= 1)
                release_all(drop);
        if (own.forks == 0 && &_IO_list_unlock)
                _IO_list_unlock();
        one_fork_less();
}

static void child(void)
{
        if (own.forks <= 1) {
                rcu_fork_child();
                percpu_fork_child();
                call_rcu_fork_child();
                guards_fork_child();
                code_map_fork_child();
                release_all(reset);
                hardened_fork_child();
        }
        if (own.forks == 0 && &_IO_list_resetlock)
                _IO_list_resetlock();
        record_fork_child(own.forks > 1);
        lock_reset(&look_lock);
        area_fork_child();
        system_claim_process(true);
        one_fork_less();
}

/* Registers the handlers once: called by the constructor, or by a heap that starts before it. */
void fork_init(void)
{
        static uint32_t registered;
        uint32_t expected = 0;

        /* Only the first caller goes on; nothing else is ordered by it. */
        if (compare_swap_acquire(&registered, &expected, 1))
                pthread_atfork(prepare, parent, child);
}

static bool any_held; /* under look_lock */

static void look(struct lock *lock)
{
        any_held |= lock_is_held(lock);
}

/*
 * Looks without cache_mutex, which a trim of a large heap holds for longer than anybody waits for
 * these locks.
 */
bool heap_page_locks_free(void)
{
        bool none_held;

        if (!lock_try(&look_lock))
                return false;
        any_held = false;
        pages_each_lock(look);
        none_held = !any_held && !lock_is_held(&huge_lock) && !lock_is_held(&extra_lock) &&
                    !lock_is_held(&metadata_lock);
        lock_drop(&look_lock);
        return none_held;
}

bool heap_await(bool (*locks_free)(void))
{
        for (int round = 0; round < 100; round++) {
                if (locks_free())
                        return true;
                system_sleep_ns(1000000);
        }
        return false;
}

bool heap_locks_free(void)
{
        bool none_held;

        /* Held during the whole look, so that no cache ends while its locks are looked at. */
        if (!lock_try(&cache_mutex))
                return false;
        none_held = percpu_locks_free() && !lock_is_held(&release_lock) &&
                    !lock_is_held(&deferred_lock) && !lock_is_held(&purge_lock) &&
                    !load_relaxed(&group_lock.held) && !lock_is_held(&sample_lock) &&
                    !lock_is_held(&guard_lock) && record_lock_free() && heap_page_locks_free();
        lock_drop(&cache_mutex);
        return none_held;
}
