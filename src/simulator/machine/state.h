/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The state that simulated atomics, locks and slots read and write: the CPU that runs, and the
 * counts. There is a single thread, so everything here is plain.
 */
#ifndef KMEM_SIMULATOR_MACHINE_STATE_H
#define KMEM_SIMULATOR_MACHINE_STATE_H

#include "lang/compiler.h"
#include "simulator/simulator.h"

struct slot;

/* 1 << 5 bytes are a page descriptor; only its first word is a shared word. */
enum { SIM_WORD_SHIFT = 5 };

struct sim_state {
        struct slot *slot; /* the CPU's slot; shared_slot until it is made */
        uint32_t cpu;
        uint16_t mark; /* cpu + 1, stored where this CPU was the last to change something; 0: no CPU
                          was */
        uint16_t node;
        uintptr_t words;      /* address of the first page descriptor, 0 before there are any */
        size_t words_bytes;   /* address space of all of them */
        uint16_t *words_last; /* for each descriptor the mark of the CPU that changed its word
                                 last */
        uint64_t nanoseconds;
        uint64_t clock; /* the CPU's clock in picoseconds; stands still while all costs are 0 */
        bool waits;     /* there are costs, so list locks are waited for */
        struct sim_costs costs;
        struct sim_counts counts; /* without locks: each place that takes a lock counts for
                                     itself */
        uint16_t node_of[SIM_CPUS_MAX];
};
extern KMEM_HIDDEN struct sim_state sim;

static inline bool sim_other_node(uint16_t mark)
{
        return sim.node_of[mark - 1] != sim.node;
}

/* The current CPU changes a shared word. */
static inline void sim_touch(const void *word)
{
        uintptr_t offset = (uintptr_t)word - sim.words;
        uint16_t *last;

        if (offset >= sim.words_bytes)
                return;
        last = &sim.words_last[offset >> SIM_WORD_SHIFT];
        if (*last == sim.mark)
                return;
        if (*last) {
                bool other_node = sim_other_node(*last);

                sim.counts.remote_words++;
                sim.counts.remote_words_node += other_node;
                sim.clock += sim.costs.remote_word + other_node * sim.costs.remote_word_node;
        }
        *last = sim.mark;
}

/* The only descriptor byte that is stored atomically tells whether a node's list has the slab. */
static inline void sim_move(const void *byte)
{
        if ((uintptr_t)byte - sim.words >= sim.words_bytes)
                return;
        sim.counts.list_moves++;
        sim.clock += sim.costs.list_move;
}

#endif
