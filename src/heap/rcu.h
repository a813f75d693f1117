/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the rest of the calls needs of kfree_rcu and kmem_call_rcu.
 */
#ifndef KMEM_API_RCU_H
#define KMEM_API_RCU_H

#include "heap/heap.h"

/* kfree_rcu.c: frees blocks whose grace period is over; never waits. No lock may be held. */
KMEM_HIDDEN void kfree_rcu_release(void);
/* Stops the process if the thread is inside a read section: @call would wait for itself. */
KMEM_HIDDEN void check_may_wait(const char *call);

/* For fork: locks of both files, outside those of the layers below. */
KMEM_HIDDEN void kfree_rcu_fork_take(void (*take)(struct lock *lock));
KMEM_HIDDEN void kfree_rcu_fork_release(void (*release)(struct lock *lock));
KMEM_HIDDEN void call_rcu_fork_each_lock(void (*change)(struct lock *lock));
/* Under them. */
KMEM_HIDDEN void call_rcu_fork_child(void);

#endif
