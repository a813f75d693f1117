/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of machine/lock.h: a lock that remembers which CPU held it last. Each place that takes a
 * lock has counts of its own, and they are gathered from section sim_locks. There is a single
 * thread, so a lock that is held already would never be dropped: the process ends, for that is an
 * error of the library or the driver.
 */
#ifndef KMEM_MACHINE_LOCK_H
#define KMEM_MACHINE_LOCK_H

#include "lang/atomic.h"

struct lock {
        uint16_t held : 1;
        uint16_t queue : 15; /* number of the lock's record of when it is free (simulator.c); 0: the
                               lock is never waited for */
        uint16_t last;       /* mark of the last holder */
};

KMEM_HIDDEN void sim_lock_is_taken(const struct sim_lock_place *place)
        __attribute__((noreturn, cold));

/* simulator.c: a list lock or a barn's lock on a machine with clocks is taken, after its time, and dropped. */
KMEM_HIDDEN void sim_lock_wait(struct lock *lock, struct sim_lock_place *place);
KMEM_HIDDEN void sim_lock_leave(const struct lock *lock);

/* Locks that CPUs share in every call of some loads; waits for the others are rare. */
static inline bool sim_waited_for(enum sim_lock_kind kind)
{
        return kind == SIM_LOCK_LIST || kind == SIM_LOCK_BARN;
}

static inline bool sim_lock_try(struct lock *lock, struct sim_lock_place *place)
{
        if (unlikely(lock->held))
                return false;
        lock->held = 1;
        place->counts.taken++;
        if (unlikely(sim.waits && sim_waited_for(place->kind)))
                sim_lock_wait(lock, place);
        sim.clock += sim.costs.lock[place->kind];
        if (lock->last != sim.mark) {
                if (lock->last) {
                        bool other_node = sim_other_node(lock->last);

                        place->counts.handed_over++;
                        place->counts.handed_over_node += other_node;
                        sim.clock += sim.costs.handed_over[place->kind] +
                                     other_node * sim.costs.handed_over_node[place->kind];
                }
                lock->last = sim.mark;
        }
        return true;
}

static inline void sim_lock_take(struct lock *lock, struct sim_lock_place *place)
{
        if (unlikely(!sim_lock_try(lock, place)))
                sim_lock_is_taken(place);
}

/* The place of this call; a pointer to it is in the section, so that sizes do not matter there. */
#define sim_here(lock_)                                                                            \
        ({                                                                                         \
                static struct sim_lock_place sim_place_ = {                                        \
                        .lock = #lock_, .file = __FILE__, .line = __LINE__};                       \
                static struct sim_lock_place *const sim_link_                                      \
                        __attribute__((section("sim_locks"), used, aligned(8))) = &sim_place_;     \
                                                                                                   \
                &sim_place_;                                                                       \
        })

#define lock_try(lock) sim_lock_try(lock, sim_here(lock))
#define lock_take(lock) sim_lock_take(lock, sim_here(lock))

/* The plain function, for code that wants its address. */
static inline void(lock_take)(struct lock *lock)
{
        lock_take(lock);
}

static inline void lock_drop(struct lock *lock)
{
        lock->held = 0;
        if (unlikely(lock->queue))
                sim_lock_leave(lock);
}

static inline void lock_drop_unslept(struct lock *lock)
{
        lock_drop(lock);
}

static inline void lock_reset(struct lock *lock)
{
        lock->held = 0;
}

static inline bool lock_is_held(const struct lock *lock)
{
        return lock->held;
}

#endif
