/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A four-byte mutex over futex. All zero is unlocked, so zeroed memory is a valid lock and a
 * forked child may simply store zero.
 *
 * Never taken on the fast path. Lock order of the whole library, outermost first:
 *   locks of memory pools > free_lock, lists of kfree_rcu and kmem_call_rcu (api) > cache_mutex
 *   > drain_mutex (percpu) > slot cache lock > alien lock (slab) > list_lock (slub, slab)
 *   > slot lock (locked slots) > barn lock > slob_lock > release_lock, deferred_lock (page)
 *   > RCU's poll_lock > locks of hardened blocks > huge lock > purge lock > zone locks, ascending > frontier lock > group lock
 *   > extra lock > metadata lock
 */
#ifndef KMEM_MACHINE_LOCK_H
#define KMEM_MACHINE_LOCK_H

#include "lang/atomic.h"

struct lock {
        uint32_t word; /* 0 free, 1 held, 2 held and a thread may sleep on it */
};

KMEM_HIDDEN void lock_wait(struct lock *lock);
KMEM_HIDDEN void lock_wake(struct lock *lock);

static inline bool lock_try(struct lock *lock)
{
        uint32_t expected = 0;

        /* Acquire: pairs with the release in lock_drop. */
        return compare_swap_acquire(&lock->word, &expected, 1);
}

static inline void lock_take(struct lock *lock)
{
        if (unlikely(!lock_try(lock)))
                lock_wait(lock);
}

static inline void lock_drop(struct lock *lock)
{
        /* Release: pairs with the acquires in lock_try and lock_wait. */
        if (unlikely(exchange_release(&lock->word, 0) == 2))
                lock_wake(lock);
}

/*
 * Drops a lock that nobody takes by lock_take, so that nobody sleeps on it: waiters use lock_try. A plain store, which
 * is half the price of a pair.
 */
static inline void lock_drop_unslept(struct lock *lock)
{
        /* Release: pairs with the acquire in lock_try. */
        store_release(&lock->word, 0);
}

/* In a forked child: the thread that held the lock does not exist. */
static inline void lock_reset(struct lock *lock)
{
        store_relaxed(&lock->word, 0);
}

/*
 * For functions named *_locked: a thread holds the lock (a lock of a single word cannot tell
 * which).
 */
static inline bool lock_is_held(const struct lock *lock)
{
        return load_relaxed(&lock->word) != 0;
}

#endif
