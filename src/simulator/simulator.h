/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The simulated machine: the library's own sources, built on CPUs, nodes, pages, time, locks and
 * atomics that exist only as numbers. A single thread drives it: it sets the CPU and the time, and
 * calls kmem.h as programs do. Every CPU has a slot. A call takes the steps on it that it would
 * take on that CPU of a real machine, and their cost there is counted.
 *
 * There is a library for each page size (libkmem-simulator-4k.so, -16k and so on), and a single
 * heap in a process: a second run takes a second process. Two processes that make equal calls in
 * equal order get equal counts and equal tables. Nothing here may be called from a second thread,
 * nor may anything of kmem.h.
 *
 * Objects have real addresses, and their memory is touched only by the driver, constructors,
 * __GFP_ZERO, debug caches, engine slob, and engine slab where it keeps the free list in the slab
 * (S6-12). So a simulated machine with hundreds of GiB of slabs costs only the memory of its
 * metadata.
 *
 * A call that would wait for another thread ends the process with a message.
 */
#ifndef KMEM_SIMULATOR_SIMULATOR_H
#define KMEM_SIMULATOR_SIMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIM_CPUS_MAX 8192u
#define SIM_NODES_MAX 8u

/* A field that is 0 has the value that its comment gives behind the semicolon. */
struct sim_machine {
        unsigned int cpus_online;   /* CPUs 0..n-1 are online at the start; 1 */
        unsigned int cpus_present;  /* at least cpus_online; as many as are online */
        unsigned int cpus_possible; /* at least cpus_present, up to SIM_CPUS_MAX; as many as are
                                       present */
        unsigned int nodes;         /* each has an equal block of CPUs; 1 */
        uint64_t memory_bytes;      /* memory of the machine, for sizing the heap; 64 GiB */
        const char *options;        /* as in KMEM_OPTIONS, which is not read; no option */
};

/*
 * Starts the machine, once a process and before any call of kmem.h, on CPU 0. @machine NULL means
 * all zero. Returns 0, or with a message EINVAL (a field that cannot be), EBUSY (started already),
 * ENOMEM. Wrong options are reported as everywhere, and have their defaults.
 */
int sim_start(const struct sim_machine *machine);

/* Bytes of a page: PAGE in every formula. */
size_t sim_page_bytes(void);

/* The calls that follow are made on this CPU. It must be online, or the process ends. */
void sim_set_cpu(unsigned int cpu);
unsigned int sim_cpu(void);
unsigned int sim_node_of(unsigned int cpu);

/*
 * Time in nanoseconds since the machine was switched on, which only these two functions move; it
 * starts at 1,000 seconds. Nothing happens by itself: work that is due waits for the next call of
 * kmem.h that looks for it. An earlier time than the present ends the process.
 */
uint64_t sim_time(void);
void sim_time_set(uint64_t nanoseconds);
void sim_time_advance(uint64_t nanoseconds);

/*
 * A CPU leaves or comes (S12-01, S12-02, S6-63, S13-11). Everything that the leaving CPU kept of
 * every cache (sheaves, stock, CPU slab, CPU partial list, or the array) goes back to the nodes;
 * the CPU that the calls are made on does the work. Caches made from now on see the new number of
 * CPUs. Returns 0, or with a message EINVAL (not a possible CPU) or EBUSY (the CPU that the calls
 * are made on cannot leave). It is no error if the CPU is in that state already.
 */
int sim_cpu_online(unsigned int cpu, bool online);

/* Writes the table of /proc/slabinfo, with its comment lines, to a file descriptor. */
void sim_slabinfo(int file);

enum sim_lock_kind {
        SIM_LOCK_SLOT,     /* slot cache lock; the kernel's local lock, engine slab: the array */
        SIM_LOCK_LIST,     /* a node's list_lock */
        SIM_LOCK_BARN,     /* a cache's full and empty sheaves */
        SIM_LOCK_ALIEN,    /* engine slab: an alien array */
        SIM_LOCK_SLOB,     /* engine slob: everything */
        SIM_LOCK_PAGE,     /* a node's runs, and the frontier; the kernel's zone lock */
        SIM_LOCK_METADATA, /* the arena of tables and records; the kernel has no counterpart */
        SIM_LOCK_OTHER,    /* set-up, drains, large blocks, grace periods, groups */
        SIM_LOCK_KINDS,
};

struct sim_lock_counts {
        uint64_t taken;            /* acquisitions */
        uint64_t handed_over;      /* acquisitions by another CPU than the last holder: the lock's
                                      line moves */
        uint64_t handed_over_node; /* handed over from a CPU of another node */
        /* Only of locks that are waited for, on a machine with clocks (sim_set_costs). */
        uint64_t waits;      /* acquisitions that had to wait for another CPU */
        uint64_t waits_node; /* of these, from a CPU of another node */
        uint64_t wait_ps;    /* picoseconds */
        uint64_t hold_ps;
};

/* Since the start or the last reset. */
struct sim_counts {
        uint64_t compare_swaps; /* without locks; none fails on a single thread */
        uint64_t atomic_adds;
        uint64_t exchanges;
        uint64_t remote_words;      /* changes to a page descriptor's word (a slab's state) that
                                       another CPU changed last */
        uint64_t remote_words_node; /* the part of remote_words where the other CPU is of another
                                       node */
        uint64_t list_moves;        /* slabs put on or taken off a node's partial list; the
                                       neighbours' descriptors change too */
        uint64_t slow_paths;        /* calls that no sheaf could serve at once */
        uint64_t fences;            /* membarriers: each interrupts all CPUs */
        struct sim_lock_counts locks[SIM_LOCK_KINDS];
};

void sim_counts(struct sim_counts *counts);
/* Sets all counts to 0; the last CPU to touch each word and lock stays known. */
void sim_reset(void);

/*
 * The time of each counted event, in picoseconds. With costs the machine has clocks: each counted
 * event moves the clock of the CPU that calls are made on. The driver keeps every CPU's clock, and
 * sets it before that CPU's calls. A list_lock then remembers when it was dropped last, and a CPU
 * with an earlier clock waits until then, as in a queue. The CPU that asks first gets the lock
 * first, so the driver should always go on with the CPU of the least clock. Other locks never wait.
 */
struct sim_costs {
        uint32_t compare_swap;
        uint32_t atomic_add;
        uint32_t exchange;
        uint32_t remote_word;
        uint32_t remote_word_node; /* added if the other CPU is of another node */
        uint32_t list_move;
        uint32_t lock[SIM_LOCK_KINDS];
        uint32_t handed_over[SIM_LOCK_KINDS];      /* added to an acquisition that took the lock
                                                      over from another CPU */
        uint32_t handed_over_node[SIM_LOCK_KINDS]; /* added to that if the other CPU is of another
                                                      node */
        /*
         * Added to a hand-over that was waited for. A queued lock moves more lines than its own
         * then: the holder fetches the lock's line again to drop it, the first waiter takes it
         * back, and tells the next waiter in that waiter's line, which is read in its turn.
         */
        uint32_t waited[SIM_LOCK_KINDS];
        uint32_t waited_node[SIM_LOCK_KINDS]; /* added to that if the other CPU is of another
                                                 node */
};

/* From here on there are clocks. A later call replaces the costs. */
void sim_set_costs(const struct sim_costs *costs);

/* The clock of the CPU that calls are made on, in picoseconds; it may be set to any time. */
uint64_t sim_clock(void);
void sim_set_clock(uint64_t picoseconds);

/* A place in the sources that takes a lock, as lockstat shows it. */
struct sim_lock_place {
        const char *lock; /* the expression, "&node->list_lock" */
        const char *file;
        unsigned int line;
        enum sim_lock_kind kind;
        struct sim_lock_counts counts;
};

/* Place number @number, from 0 on in no special order; false beyond the last place. */
bool sim_lock_place(size_t number, struct sim_lock_place *place);

#ifdef __cplusplus
}
#endif

#endif
