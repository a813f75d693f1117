/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Spin locks. A thread can be preempted while it holds a lock, so waiters soon give their processor
 * away. There are no interrupts: the variants that keep them away are plain locks.
 */
#ifndef KMEM_LINUX_SPINLOCK_H
#define KMEM_LINUX_SPINLOCK_H

#include <linux/bug.h>
#include <linux/cleanup.h>
#include <linux/compiler.h>
#include <linux/types.h>

#include <sched.h>

typedef struct spinlock {
        u32 held;
} spinlock_t;

typedef spinlock_t raw_spinlock_t;

#define __SPIN_LOCK_UNLOCKED(name)                                                                 \
        {                                                                                          \
                0                                                                                  \
        }
#define DEFINE_SPINLOCK(name) spinlock_t name = __SPIN_LOCK_UNLOCKED(name)
#define DEFINE_RAW_SPINLOCK(name) DEFINE_SPINLOCK(name)

static inline void spin_lock_init(spinlock_t *lock)
{
        lock->held = 0;
}

static inline int spin_trylock(spinlock_t *lock)
{
        return !__atomic_exchange_n(&lock->held, 1, __ATOMIC_ACQUIRE);
}

static inline void spin_lock(spinlock_t *lock)
{
        unsigned int round;

        for (round = 1; !spin_trylock(lock); round++)
                while (__atomic_load_n(&lock->held, __ATOMIC_RELAXED))
                        if (round++ % 64 == 0)
                                sched_yield();
}

static inline void spin_unlock(spinlock_t *lock)
{
        __atomic_store_n(&lock->held, 0, __ATOMIC_RELEASE);
}

static inline int spin_is_locked(spinlock_t *lock)
{
        return __atomic_load_n(&lock->held, __ATOMIC_RELAXED) != 0;
}

#define assert_spin_locked(lock) BUG_ON(!spin_is_locked(lock))
#define lockdep_assert_held(lock) ((void)(lock))
#define lockdep_is_held(lock) ((void)(lock), 1)

#define spin_lock_nested(lock, subclass) spin_lock(lock)
#define spin_lock_bh(lock) spin_lock(lock)
#define spin_unlock_bh(lock) spin_unlock(lock)
#define spin_lock_irq(lock) spin_lock(lock)
#define spin_unlock_irq(lock) spin_unlock(lock)
#define spin_lock_irqsave(lock, flags)                                                             \
        do {                                                                                       \
                (flags) = 0;                                                                       \
                spin_lock(lock);                                                                   \
        } while (0)
#define spin_unlock_irqrestore(lock, flags)                                                        \
        do {                                                                                       \
                (void)(flags);                                                                     \
                spin_unlock(lock);                                                                 \
        } while (0)
#define raw_spin_lock_init(lock) spin_lock_init(lock)
#define raw_spin_lock(lock) spin_lock(lock)
#define raw_spin_unlock(lock) spin_unlock(lock)
#define raw_spin_lock_irqsave(lock, flags) spin_lock_irqsave(lock, flags)
#define raw_spin_unlock_irqrestore(lock, flags) spin_unlock_irqrestore(lock, flags)

#define preempt_disable() barrier()
#define preempt_enable() barrier()

DEFINE_LOCK_GUARD_1(spinlock, spinlock_t, spin_lock(_T->lock), spin_unlock(_T->lock))
DEFINE_LOCK_GUARD_1(spinlock_bh, spinlock_t, spin_lock_bh(_T->lock), spin_unlock_bh(_T->lock))
DEFINE_LOCK_GUARD_1(spinlock_irq, spinlock_t, spin_lock_irq(_T->lock), spin_unlock_irq(_T->lock))
DEFINE_LOCK_GUARD_1(spinlock_irqsave, spinlock_t, spin_lock_irqsave(_T->lock, _T->flags),
                    spin_unlock_irqrestore(_T->lock, _T->flags), unsigned long flags)
DEFINE_LOCK_GUARD_1(raw_spinlock, raw_spinlock_t, raw_spin_lock(_T->lock),
                    raw_spin_unlock(_T->lock))

#endif
