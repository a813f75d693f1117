/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A slot's third sheaf, with option sheaf_rule=7.0: it collects objects that are freed after a grace
 * period, and waits for it as a whole. Then it is a full sheaf of the barn of the node that it was
 * filled on (S13-09).
 *
 * Until it is full, nobody waits for it: the objects of a sheaf that never fills come back at the
 * next kfree_rcu_barrier, shrink or end of a cache, as in the kernel.
 */
#ifndef KMEM_PERCPU_RCU_SHEAF_H
#define KMEM_PERCPU_RCU_SHEAF_H

#include "percpu/slot.h"

struct rcu_sheaf {
        struct rcu_sheaf *next;
        struct kmem_cache *cache;
        struct sheaf *sheaf;
        uint64_t snapshot; /* the grace period it waits for (heap/kfree_rcu.c) */
        unsigned int node;
};

/*
 * Collects an object of the cache. False if the slot's sheaf was full already, or if the caller must
 * free the object in another way: it is of another node, or there is no slot, sheaf or memory.
 * *full receives the record whose sheaf is full now or was, for rcu_sheaf_take_full, or NULL.
 */
KMEM_HIDDEN bool rcu_sheaf_add(struct kmem_cache *cache, void *object, struct slot_cache **full);
/* The full sheaf of a record; NULL if another thread has taken it meanwhile. */
KMEM_HIDDEN struct rcu_sheaf *rcu_sheaf_take_full(struct slot_cache *record);
/* Takes the sheaves of all slots, of a cache or, with NULL, of all; they are linked through next. */
KMEM_HIDDEN struct rcu_sheaf *rcu_sheaves_take(struct kmem_cache *cache);
/* After its grace period. No lock of the slots may be held. */
KMEM_HIDDEN void rcu_sheaf_end(struct rcu_sheaf *waiting);

#endif
