/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Read-copy-update of our own: read sections that cost a few plain instructions, and grace periods
 * that a caller may wait for or only ask about, so that no free path ever blocks.
 *
 * A thread announces a read section in its record, a word that only it writes: the number of the
 * newest grace period at entry, and the nesting depth. A grace period takes the next number, makes
 * every running thread of the process execute a full barrier (membarrier), and is over when each
 * record has been seen outside a section, or inside a section of that number or later.
 *
 * Invariants:
 *  RCU-1  A record's word is written by its thread alone (and by the forked child for threads
 *         that do not exist there). A single store enters and a single store leaves, so a signal
 *         handler may use read sections wherever it interrupts.
 *  RCU-2  Grace period numbers only grow. The number is published (release) before the barrier;
 *         readers load it (acquire) before they announce themselves.
 *  RCU-3  At the barrier of grace period N every thread is either before its announcement, and
 *         then everything it reads later is newer than the barrier; or after it, and then the
 *         scan that follows sees the announcement (or the end of the section).
 *  RCU-4  A section that the scan lets pass read number N. A caller whose snapshot is N had taken
 *         its data away before it read N - 1, by a read-modify-write that the one which made
 *         N follows: the section cannot see the data any more (acquire of RCU-2).
 *  RCU-5  Leaving is a release, the scan an acquire: all accesses of a finished section come before
 *         all that follows the grace period.
 *
 * Where the kernel refuses membarrier, readers execute a full fence after the announcement, and the
 * starter executes a fence in place of the barrier: RCU-3 holds as in Dekker's algorithm. The
 * choice is made before the first reader exists.
 *
 * Records live in metadata, are never unmapped, and are used again by later threads; so a scan
 * needs no lock against threads that come and go. A thread gets its record with its first read
 * section and gives it back by a pthread key; threads that never read have neither.
 *
 * Other implementations: a domain (rcu_set_domain) adds its own grace periods to ours; a grace
 * period is over when both are.
 */
#ifndef KMEM_BASE_RCU_H
#define KMEM_BASE_RCU_H

#include "machine/lock.h"

enum {
        RCU_NESTING_BITS = 16,
        RCU_NESTING_MASK = (1 << RCU_NESTING_BITS) - 1,
};

struct rcu_reader {
        uint64_t word;           /* number of a grace period << 16 | nesting; 0 outside (RCU-1) */
        struct rcu_reader *next; /* constant once on the list */
        uint32_t used;           /* 1: belongs to a thread */
} __attribute__((aligned(CACHE_LINE)));

/* Data that readers look at; written rarely. */
struct rcu_global {
        uint64_t number;  /* of the newest grace period, 1 or more (RCU-2) */
        uint32_t started; /* 1: the way to fence is chosen; release */
        uint32_t fences;  /* no membarrier: readers fence; constant once started */
};
extern KMEM_HIDDEN struct rcu_global rcu;

extern KMEM_HIDDEN __thread struct rcu_reader *rcu_this_reader
        __attribute__((tls_model("initial-exec")));

/* The calling thread's record, made at its first read section. */
KMEM_HIDDEN struct rcu_reader *rcu_register(void);

/*
 * Whether there is no second implementation. Only libc's own threads may ask a second
 * implementation.
 */
KMEM_HIDDEN bool rcu_is_alone(void);

static inline void rcu_enter(void)
{
        struct rcu_reader *reader = rcu_this_reader;
        uint64_t word;

        if (unlikely(!reader))
                reader = rcu_register();
        word = load_relaxed(&reader->word); /* relaxed: only this thread writes it */
        if (word) {
                store_relaxed(&reader->word, word + 1);
                return;
        }
        /* Acquire: RCU-4. Partner: the release in rcu_start_locked. */
        word = load_acquire(&rcu.number) << RCU_NESTING_BITS | 1;
        store_relaxed(&reader->word, word);
        if (unlikely(rcu.fences))
                __atomic_thread_fence(__ATOMIC_SEQ_CST);
        else
                __atomic_signal_fence(__ATOMIC_SEQ_CST); /* only the compiler's order; the starter's
                                                            membarrier does the rest */
}

/* The calling thread left a read section that it was not in. */
KMEM_HIDDEN void rcu_unbalanced(void) __attribute__((noreturn, cold));

/* Only after rcu_enter by the same thread: ends the process otherwise. */
static inline void rcu_leave(void)
{
        struct rcu_reader *reader = rcu_this_reader;
        uint64_t word = reader ? load_relaxed(&reader->word) : 0;

        if (unlikely(!word))
                rcu_unbalanced();
        /* Release: RCU-5. Partner: the acquire in the scan. */
        store_release(&reader->word, (word & RCU_NESTING_MASK) == 1 ? 0 : word - 1);
}

/* Whether the calling thread is inside a read section: then it must not wait for a grace period. */
static inline bool rcu_is_reading(void)
{
        return rcu_this_reader && load_relaxed(&rcu_this_reader->word) != 0;
}

/*
 * The number of a grace period that begins after this call: when it is over, no reader sees data
 * any more that the caller took away before.
 */
KMEM_HIDDEN uint64_t rcu_snapshot(void);
/*
 * Whether that grace period is over. Starts a grace period and looks at the readers, but never
 * waits: any slow path may ask, also with locks of its own held.
 */
KMEM_HIDDEN bool rcu_poll(uint64_t snapshot);
/*
 * rcu_poll for slow paths that ask often: after a "no" it asks again only when the coarse clock
 * has moved, so that a long read section costs them a single comparison. *@refused_ms starts as 0.
 */
KMEM_HIDDEN bool rcu_poll_seldom(uint64_t snapshot, uint64_t *refused_ms);
/* Waits until rcu_poll says so. Not inside a read section. */
KMEM_HIDDEN void rcu_wait(uint64_t snapshot);

/*
 * A second kind of grace period beside ours. @request: asks for a grace period that begins now, and
 * calls rcu_domain_done(number) at its end, from any thread. It is called with locks held, so it
 * must neither wait nor allocate. A process has a single domain, never taken away; false if there
 * is a domain already.
 */
KMEM_HIDDEN bool rcu_set_domain(void (*request)(uint64_t number));
KMEM_HIDDEN void rcu_domain_done(uint64_t number);

/* For fork. The child keeps the calling thread's sections only; under the locks. */
KMEM_HIDDEN void rcu_fork_take(void (*take)(struct lock *lock));
KMEM_HIDDEN void rcu_fork_release(void (*release)(struct lock *lock));
KMEM_HIDDEN void rcu_fork_child(void);

#endif
