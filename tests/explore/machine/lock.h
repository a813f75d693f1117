/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of machine/lock.h: a lock that knows its holder. A thread that finds it held does not
 * run until it is dropped, so that two threads which wait for each other are seen at once.
 */
#ifndef KMEM_MACHINE_LOCK_H
#define KMEM_MACHINE_LOCK_H

#include "lang/atomic.h"

enum { LOCK_OF_NO_THREAD = UINT32_MAX }; /* taken before the threads begin, or behind their ends */

struct lock {
        uint32_t word; /* 0 free, else 1 + number of the thread that holds it */
};

static inline void explore_lock_have(struct lock *lock, const struct place *place)
{
        lock->word = explore_self() ? explore_self() : LOCK_OF_NO_THREAD;
        explore_changed(place, lock, sizeof(*lock), __ATOMIC_ACQUIRE);
        explore_count_lock(1);
}

static inline bool explore_lock_try(struct lock *lock, const struct place *place)
{
        explore_locked(place, lock, sizeof(*lock), __ATOMIC_ACQUIRE);
        if (lock->word)
                return false;
        explore_lock_have(lock, place);
        return true;
}

static inline void explore_lock_take(struct lock *lock, const struct place *place)
{
        explore_point(place, lock, ACCESS_TAKE);
        explore_see_newest(place, lock, sizeof(*lock), __ATOMIC_ACQUIRE);
        if (lock->word)
                explore_fail("%s: the lock's holder does not run any more (%s:%u)", place->text,
                             place->file, place->line);
        explore_lock_have(lock, place);
}

static inline void explore_lock_drop(struct lock *lock, const struct place *place)
{
        explore_point(place, lock, ACCESS_DROP);
        explore_see_newest(place, lock, sizeof(*lock), __ATOMIC_RELEASE);
        if (!lock->word)
                explore_fail("%s: nobody holds the lock (%s:%u)", place->text, place->file,
                             place->line);
        lock->word = 0;
        explore_changed(place, lock, sizeof(*lock), __ATOMIC_RELEASE);
        explore_count_lock(-1);
}

#define lock_try(lock) explore_lock_try(lock, THIS_PLACE("lock_try(" #lock ")"))
#define lock_take(lock) explore_lock_take(lock, THIS_PLACE("lock_take(" #lock ")"))
#define lock_drop(lock) explore_lock_drop(lock, THIS_PLACE("lock_drop(" #lock ")"))
#define lock_drop_unslept(lock) explore_lock_drop(lock, THIS_PLACE("lock_drop_unslept(" #lock ")"))

/* Plain functions, for code that wants their addresses. */
static inline void(lock_take)(struct lock *lock)
{
        lock_take(lock);
}

static inline void(lock_drop)(struct lock *lock)
{
        lock_drop(lock);
}

static inline void lock_reset(struct lock *lock)
{
        lock->word = 0;
}

static inline bool lock_is_held(const struct lock *lock)
{
        return lock->word != 0;
}

#endif
