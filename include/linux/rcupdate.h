/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The kernel's names for libkmem's RCU; kfree_rcu and kvfree_rcu are in kmem.h. */
#ifndef KMEM_LINUX_RCUPDATE_H
#define KMEM_LINUX_RCUPDATE_H

#include <linux/cleanup.h>
#include <linux/compiler.h>
#include <linux/types.h>

#include <kmem.h>

static inline void rcu_read_lock(void)
{
        kmem_rcu_read_lock();
}

static inline void rcu_read_unlock(void)
{
        kmem_rcu_read_unlock();
}

static inline int rcu_read_lock_held(void)
{
        return kmem_rcu_read_lock_held();
}

DEFINE_LOCK_GUARD_0(rcu, rcu_read_lock(), rcu_read_unlock())

#define rcu_read_lock_bh() rcu_read_lock()
#define rcu_read_unlock_bh() rcu_read_unlock()
#define rcu_read_lock_sched() rcu_read_lock()
#define rcu_read_unlock_sched() rcu_read_unlock()

static inline void synchronize_rcu(void)
{
        kmem_synchronize_rcu();
}

static inline void synchronize_rcu_expedited(void)
{
        kmem_synchronize_rcu();
}

static inline void call_rcu(struct rcu_head *head, rcu_callback_t func)
{
        kmem_call_rcu(head, func);
}

static inline void rcu_barrier(void)
{
        kmem_rcu_barrier();
}

/* Waits for kfree_rcu too, as kmem_cache_destroy does by itself. */
static inline void kvfree_rcu_barrier(void)
{
        kfree_rcu_barrier();
}

#define kfree_rcu_mightsleep(pointer) kfree_rcu(pointer)
#define kvfree_rcu_mightsleep(pointer) kfree_rcu(pointer)

/* Publishing: a thread that finds the pointer sees the writes before it. */
#define rcu_assign_pointer(place, pointer)                                                         \
        do {                                                                                       \
                __typeof__(place) kmem_published_ = (pointer);                                     \
                                                                                                   \
                __atomic_store_n(&(place), kmem_published_, __ATOMIC_RELEASE);                     \
        } while (0)
#define RCU_INIT_POINTER(place, pointer) WRITE_ONCE(place, pointer)
#define RCU_INITIALIZER(pointer) (pointer)

/* Acquire is more than the dependency asks for; on x86-64 it costs nothing. */
#define rcu_dereference(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define rcu_dereference_raw(place) rcu_dereference(place)
#define rcu_dereference_bh(place) rcu_dereference(place)
#define rcu_dereference_check(place, condition) rcu_dereference(place)
#define rcu_dereference_protected(place, condition) READ_ONCE(place)
#define rcu_access_pointer(place) READ_ONCE(place)
#define rcu_pointer_handoff(pointer) (pointer)
#define rcu_replace_pointer(place, pointer, condition)                                             \
        ({                                                                                         \
                __typeof__(place) kmem_replaced_ = rcu_dereference_protected(place, condition);    \
                                                                                                   \
                rcu_assign_pointer(place, pointer);                                                \
                kmem_replaced_;                                                                    \
        })

#endif
