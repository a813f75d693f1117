/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Fork, also of a process whose heap has not started. All locks are taken before, outermost first,
 * so that the child's copy of everything they protect is consistent; the child resets them. Our
 * handlers are registered before those of the program and its libraries, so that they run last
 * before the fork and first after it: others' handlers may allocate.
 */
#define _GNU_SOURCE
#include "api/rcu.h"

#include "account/group.h"
#include "base/metadata.h"
#include "base/rcu.h"
#include "page/deferred.h"
#include "page/extra.h"
#include "page/large.h"
#include "page/purge.h"
#include "profile/sample.h"
#include "record/record.h"

#include <pthread.h>

/*
 * glibc locks its list of streams after all handlers have run, and a stream's owner may be waiting
 * for us, and a holder of the list for that stream. So the list comes first: the lock counts its
 * owner's claims, and fork takes it again.
 */
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));

static void prepare(void)
{
        if (&_IO_list_lock)
                _IO_list_lock();
        lock_take(&heap_start_lock);
        pools_each_lock(lock_take);
        call_rcu_fork_prepare();
        kfree_rcu_fork_prepare();
        lock_take(&cache_mutex);
        percpu_fork_prepare();
        lock_take(&release_lock);
        lock_take(&deferred_lock);
        rcu_fork_prepare();
        lock_take(&huge_lock);
        lock_take(&purge_lock);
        pages_each_lock(lock_take);
        group_lock_take();
        lock_take(&extra_lock);
        lock_take(&sample_lock);
        lock_take(&metadata_lock);
        record_fork_prepare();
}

static void parent(void)
{
        record_fork_parent();
        lock_drop(&metadata_lock);
        lock_drop(&sample_lock);
        lock_drop(&extra_lock);
        group_lock_drop();
        pages_each_lock(lock_drop);
        lock_drop(&purge_lock);
        lock_drop(&huge_lock);
        rcu_fork_parent();
        lock_drop(&deferred_lock);
        lock_drop(&release_lock);
        percpu_fork_parent();
        lock_drop(&cache_mutex);
        kfree_rcu_fork_parent();
        call_rcu_fork_parent();
        pools_each_lock(lock_drop);
        lock_drop(&heap_start_lock);
        if (&_IO_list_unlock)
                _IO_list_unlock();
}

static void child(void)
{
        lock_reset(&metadata_lock);
        lock_reset(&sample_lock);
        lock_reset(&extra_lock);
        group_lock_drop();
        pages_each_lock(lock_reset);
        lock_reset(&purge_lock);
        lock_reset(&huge_lock);
        rcu_fork_child();
        lock_reset(&deferred_lock);
        lock_reset(&release_lock);
        percpu_fork_child();
        lock_reset(&cache_mutex);
        kfree_rcu_fork_child();
        call_rcu_fork_child();
        pools_each_lock(lock_reset);
        lock_reset(&heap_start_lock);
        if (&_IO_list_resetlock)
                _IO_list_resetlock();
        record_fork_child();
        system_claim_process();
}

/* Once: by the constructor, or by a heap that starts before it. */
void fork_init(void)
{
        static uint32_t registered;
        uint32_t expected = 0;

        if (compare_swap_acquire(&registered, &expected, 1))
                pthread_atfork(prepare, parent, child);
}

static bool any_held;

static void look(struct lock *lock)
{
        any_held |= lock_is_held(lock);
}

/* Under cache_mutex, for any_held. */
static bool page_locks_free_locked(void)
{
        any_held = false;
        pages_each_lock(look);
        return !any_held && !lock_is_held(&huge_lock) && !lock_is_held(&extra_lock) &&
               !lock_is_held(&metadata_lock);
}

bool heap_page_locks_free(void)
{
        bool none_held;

        if (!lock_try(&cache_mutex))
                return false;
        none_held = page_locks_free_locked();
        lock_drop(&cache_mutex);
        return none_held;
}

bool heap_locks_free(void)
{
        bool none_held;

        /* Held for as long as the look takes: no cache whose locks are looked at ends meanwhile. */
        if (!lock_try(&cache_mutex))
                return false;
        none_held = percpu_locks_free() && !lock_is_held(&release_lock) &&
                    !lock_is_held(&deferred_lock) && !lock_is_held(&purge_lock) &&
                    !load_relaxed(&group_lock.held) && !lock_is_held(&sample_lock) &&
                    record_lock_free() && page_locks_free_locked();
        lock_drop(&cache_mutex);
        return none_held;
}
