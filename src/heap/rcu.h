/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The interface of kfree_rcu and kmem_call_rcu for the other calls. */
#ifndef KMEM_HEAP_RCU_H
#define KMEM_HEAP_RCU_H

#include "heap/heap.h"

/* kfree_rcu.c */

/*
 * Frees the block after a grace period. @head, or NULL, lies in the block, and links it if there is
 * no memory to note it elsewhere.
 */
KMEM_HIDDEN void kfree_rcu_add(void *block, struct kmem_rcu_head *head);
/* Returns when all blocks that were added before have been freed. */
KMEM_HIDDEN void kfree_rcu_wait(void);
/*
 * Lets the sheaves that collect blocks wait for a grace period although they are not full: of a
 * cache, or of all with NULL (S13-11).
 */
KMEM_HIDDEN void kfree_rcu_close_sheaves(struct kmem_cache *cache);
/* Frees blocks whose grace period is over; never waits. No lock may be held. */
KMEM_HIDDEN void kfree_rcu_release(void);

/* rcu.c */

/* Waits for a grace period. */
KMEM_HIDDEN void rcu_synchronize(void);
/* Calls @func(@head) after a grace period, on a thread of the library's or in rcu_barrier. */
KMEM_HIDDEN void rcu_call(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head));
/* Returns when all functions that were given before have returned. */
KMEM_HIDDEN void rcu_barrier(void);
/* Stops the process if the thread is inside a read section: @call would wait for itself. */
KMEM_HIDDEN void check_may_wait(const char *call);

/* For fork: locks of both files, outside the locks of the layers below. */
KMEM_HIDDEN void kfree_rcu_fork_take(void (*take)(struct lock *lock));
KMEM_HIDDEN void kfree_rcu_fork_release(void (*release)(struct lock *lock));
KMEM_HIDDEN void call_rcu_fork_each_lock(void (*change)(struct lock *lock));
/* Under the locks of the three functions above. */
KMEM_HIDDEN void call_rcu_fork_child(void);

#endif
