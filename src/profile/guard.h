/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Sampled guards: a few allocations get pages of their own with unreadable pages on both sides, and
 * stay unreadable for a while after their free. A touch beyond the object, or after its free, is a
 * fault, and the report names the object and the stacks of its allocation and free
 * (docs/debugging.md). As samples of a heap profile, they lie outside the heap, so that every free
 * of such an object leaves its fast path.
 *
 * A place in the region:
 *
 *      | guard | pages of the object ... | guards up to the next place |
 *
 * The object ends where its pages end, as far as its alignment lets it, or begins where they begin.
 * The bytes that its alignment leaves, up to SLACK_BYTES on either side, are filled, and are checked
 * at the free.
 *
 *  GUARD-1  A place is unused, live, ending or freed. Its thread owns it between two of these states:
 *           from the take until it is live, and while it is ending. Both ends of that time are under
 *           guard_lock, so of two frees the second finds nothing.
 *  GUARD-2  The pages of a place can be touched only while it is live or ending.
 *  GUARD-3  Freed places are reused in the order of their frees, and none before QUARANTINE_LEAST
 *           places were freed after it, unless the region has no other place.
 *  GUARD-4  Live guards have at most 1/GUARD_SHARE of the heap's pages, or GUARD_PAGES_LEAST, and
 *           those of a call stack at most an eighth of that: neither long-lived objects nor a single
 *           site can take all places for good.
 *
 * guard_lock has the place of sample_lock. No lock is held while a stack is walked. The handler of
 * a fault reads places without the lock: the thread that faults holds its object, or has freed it
 * before, and a place that is reused meanwhile gives at worst a report on its next object.
 */
#ifndef KMEM_PROFILE_GUARD_H
#define KMEM_PROFILE_GUARD_H

#include "base/depot.h"
#include "engines/caches.h"

enum {
        GUARD_RATE_MOST = 1 << 30,
        GUARD_DEFAULT_RATE = 1000, /* of kmem run --guards */
};

enum guard_state { GUARD_UNUSED, GUARD_LIVE, GUARD_ENDING, GUARD_FREED };

struct guard_step {
        const struct stack *stack; /* NULL: it could not be walked */
        uint32_t thread;
};

struct guard {
        uintptr_t address; /* of the object; under guard_lock, as state and next */
        size_t bytes;      /* that the program asked for */
        size_t page_bytes; /* of the pages that can be touched */
        uint32_t state;
        uint32_t next;
        uint64_t birth; /* of the cache */
        uint32_t index;
        bool mapped; /* its guards are mappings of their own (system_close) */
        bool told;   /* a fault here was reported */
        struct guard_step allocated;
        struct guard_step freed;
        char cache[CACHE_NAME_BYTES];
};

/* Sums since the process began, or was forked; relaxed. */
struct guard_figures {
        uint64_t made;
        uint64_t live;
        uint64_t missed; /* for want of a place, of memory or of mappings */
        uint64_t faults; /* reports */
};
extern KMEM_HIDDEN struct guard_figures guard_figures;

extern KMEM_HIDDEN struct lock guard_lock;
/* One in how many allocations new caches guard; 0: none. Under cache_mutex. */
extern KMEM_HIDDEN uint32_t guard_rate_of_new;
/* The region; 0 bytes before the first use. Set once, base first. */
extern KMEM_HIDDEN uintptr_t guard_base;
extern KMEM_HIDDEN size_t guard_region_bytes;

static inline bool in_guard_region(const void *address)
{
        /* Acquire: read before the base. */
        size_t bytes = load_acquire(&guard_region_bytes);

        return unlikely((uintptr_t)address - guard_base < bytes);
}

/*
 * The lowest rate of a cache, 0 if no cache has guards: slow paths open the gate of their slot by it
 * (percpu/marks.h). Written under cache_mutex; relaxed.
 */
extern KMEM_HIDDEN uint32_t guard_gate_rate;
/* A cache gets this rate. Under cache_mutex. */
KMEM_HIDDEN void guard_note_rate(uint32_t rate);

/* Makes the region and watches for faults; false without memory. Under cache_mutex. */
KMEM_HIDDEN bool guards_init(void);
/* Shows the figures in a registry that was just made. */
KMEM_HIDDEN void guards_show(void);
KMEM_HIDDEN void guards_fork_child(void);

/* A guarded object of the cache; NULL if there is no place or no memory for it. */
KMEM_HIDDEN void *guard_alloc(struct kmem_cache *cache);
/*
 * The object was handed out for a request of @bytes, aligned to @align: moves it to the end of its
 * pages again. Before the program has seen its address.
 */
KMEM_HIDDEN void *guard_fit(void *object, size_t bytes, size_t align);
/* Bytes of the object that begins at an address in the region; 0 if none does. */
KMEM_HIDDEN size_t guard_bytes(const void *address);
/* Its cache; NULL if none begins there, or the cache is gone. */
KMEM_HIDDEN struct kmem_cache *guard_cache(const void *address);
/*
 * Ends the guard that begins at an address in the region; false if none does, after a report of the
 * object that was there. *cache is the cache that is to guard its next object (percpu/marks.h), or
 * NULL.
 */
KMEM_HIDDEN bool guard_free(void *address, struct kmem_cache **cache);

/* guard_report.c */

enum guard_fault {
        GUARD_OVERFLOW,
        GUARD_UNDERFLOW,
        GUARD_USE_AFTER_FREE,
        GUARD_FREED_TWICE,
        GUARD_FREED_INSIDE,
        GUARD_NO_OBJECT,
};

struct guard_event {
        enum guard_fault fault;
        const struct guard *guard; /* NULL: there is none */
        uintptr_t address;         /* that was touched, or freed */
        const char *access;        /* "a write" and the like */
        size_t distance;           /* bytes from the object, or into it */
        uintptr_t instruction;     /* 0: the caller's stack is walked */
};

/* Says what happened, on standard error and in the file of faults. */
KMEM_HIDDEN void guard_report(const struct guard_event *event);
/* A thread that reported at the fork is not in the child, and its report never ends there. */
KMEM_HIDDEN void guard_report_fork_child(void);

#endif
