/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Counters of the SLUB back end: the kernel's statistics (S9.2), and the costs of each transition
 * of a slab (S1.7). A cache with option stats has a block of them in each slot's record; without it
 * the pointer is NULL and nothing is counted.
 *
 * They count calls that reach the back end. With sheaf_capacity=0 every call does, and the counters
 * mean the kernel's. With sheaves a hit is not counted anywhere: then alloc_* count the objects of
 * refills, and free_* the objects of drains, each chain of a slab's objects as a single free. With
 * sheaf_rule=7.0 the cache is closed while it counts, and *_fastpath are the objects that sheaves
 * gave and took (S13-12).
 */
#ifndef KMEM_ENGINES_SLUB_COUNTERS_H
#define KMEM_ENGINES_SLUB_COUNTERS_H

#include "engines/engine.h"

/* In the order of the kernel's enum (S9.2). */
enum slub_counter {
        ALLOC_FASTPATH,      /* objects popped from the CPU freelist without more ado */
        ALLOC_SLOWPATH,      /* slow path entered; each gives an object or none */
        FREE_FASTPATH,       /* objects freed into the slot's own CPU slab */
        FREE_SLOWPATH,       /* any other chain of frees */
        FREE_FROZEN,         /* chain into a frozen slab */
        FREE_ADD_PARTIAL,    /* slab put on a node list by a free or a CPU partial list's end */
        FREE_REMOVE_PARTIAL, /* slab taken off a node list because a free emptied it */
        ALLOC_FROM_PARTIAL,  /* CPU slab taken from a node list */
        ALLOC_SLAB,          /* new slab */
        ALLOC_REFILL,        /* CPU freelist refilled from the slab's own list */
        ALLOC_NODE_MISMATCH, /* CPU slab deactivated because the caller wished for another node */
        FREE_SLAB,           /* slab freed; not by shrink and destroy, which have no CPU */
        CPUSLAB_FLUSH,       /* CPU slab dropped by a flush or by a race while installing */
        DEACTIVATE_FULL,     /* results of a deactivation (S1-51) */
        DEACTIVATE_EMPTY,    /* a deactivated slab was empty; also counts each freed slab of a CPU
                                partial list */
        DEACTIVATE_TO_HEAD,
        DEACTIVATE_TO_TAIL,
        DEACTIVATE_REMOTE_FREES, /* another CPU had freed into the slab */
        DEACTIVATE_BYPASS,       /* CPU slab found exhausted and left */
        ORDER_FALLBACK,          /* slab of the fallback order */
        CMPXCHG_DOUBLE_CPU_FAIL, /* the CPU slab changed while a free into it took the lock */
        CMPXCHG_DOUBLE_FAIL,     /* compare-and-swap on a slab's state failed */
        CPU_PARTIAL_ALLOC,       /* CPU slab taken from the CPU partial list */
        CPU_PARTIAL_FREE,        /* slab put there by a free */
        CPU_PARTIAL_NODE,        /* slab put there by a refill */
        CPU_PARTIAL_DRAIN,       /* CPU partial list drained because full */
        /* With option sheaf_rule=7.0 (S13-12). */
        SHEAF_FLUSH,         /* object given from a sheaf back to its slab */
        SHEAF_REFILL,        /* object put into a sheaf by a refill */
        SHEAF_ALLOC,         /* new sheaf */
        SHEAF_FREE,          /* sheaf that ended */
        BARN_GET,            /* full sheaf from the barn */
        BARN_GET_FAIL,       /* the barn had none */
        BARN_PUT,            /* full sheaf to the barn */
        BARN_PUT_FAIL,       /* the barn had no room */
        FREE_RCU_SHEAF,      /* object for kfree_rcu put into a sheaf that waits */
        FREE_RCU_SHEAF_FAIL, /* there was no sheaf for it, or it is of another node */
        SLUB_COUNTERS,
};

/* Transitions of the cost table (S1.7), without T1 (no cost here). */
enum slub_transition {
        REFILL_OWN,         /* T2: CPU slab to CPU slab, from its own list */
        EXHAUST,            /* T3: CPU slab to FULL */
        PARTIAL_TO_CPU,     /* T4: CPU partial to CPU slab */
        MISMATCH_TO_NODE,   /* T5: CPU partial to NODE partial, because the caller wished for
                               another node */
        NODE_TO_CPU,        /* T6: NODE partial to CPU slab */
        NODE_TO_PARTIAL,    /* T7: NODE partial to CPU partial */
        NEW_TO_CPU,         /* T8: new slab to CPU slab */
        FREE_TO_CPU,        /* T9: free into another slot's CPU slab */
        FREE_TO_PARTIAL,    /* T10: free into a CPU partial slab */
        EMPTY_PARTIAL,      /* T11: free that empties a CPU partial slab */
        FREE_TO_NODE,       /* T12: free into a NODE partial slab */
        EMPTY_NODE,         /* T13: free that empties a NODE partial slab */
        FULL_TO_PARTIAL,    /* T14: first free of a FULL slab */
        FULL_TO_NODE,       /* T15: first free of a FULL slab, without CPU partial lists */
        OVERFLOW_TO_NODE,   /* T16: a slab of a drained CPU partial list */
        DEACTIVATE_TO_NODE, /* T17: CPU slab to NODE partial */
        DEACTIVATE_OTHER,   /* T18: CPU slab deactivated and full, or freed */
        FLUSH_TO_NODE,      /* T19: a slab of a flushed CPU partial list */
        SHRINK_NODE,        /* T20: a node that is shrunk */
        DEBUG_CALL,         /* T21: an object taken from a debug cache, or given back to it */
        NODE_TO_SHEAF, /* T22: objects of a NODE partial slab to a sheaf or caller, or a hold of
                               list_lock that puts slabs back (cpu_slabs=0) */
        NEW_TO_SHEAF,  /* T23: objects of a new slab to a sheaf or caller */
        SLUB_TRANSITIONS,
};

enum slub_cost {
        COST_TIMES,        /* how often the transition was made, or tried without success */
        COST_SWAPS,        /* compare-and-swaps on slab states, also failed swaps */
        COST_SWAPS_LOCKED, /* swaps under list_lock */
        COST_LIST_LOCKS,   /* list_lock acquisitions */
        SLUB_COSTS,
};

/*
 * A slot's counters; added to atomically, because a thread may move to another CPU in the middle of
 * a slow path.
 */
struct slub_counters {
        uint64_t event[SLUB_COUNTERS];
        uint64_t cost[SLUB_TRANSITIONS][SLUB_COSTS];
} __attribute__((aligned(64)));

static inline void count_events(struct engine_slot *slot, enum slub_counter counter,
                                uint64_t events)
{
        if (unlikely(slot->counters))
                add_relaxed(&slot->counters->event[counter], events);
}

static inline void count_event(struct engine_slot *slot, enum slub_counter counter)
{
        count_events(slot, counter, 1);
}

#endif
