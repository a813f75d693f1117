/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The parts of the program that replays a trace on the simulated machine: run.c takes its steps,
 * figures.c writes what happened.
 */
#ifndef KMEM_TOOLS_REPLAY_H
#define KMEM_TOOLS_REPLAY_H

#include "tools/replay/heap.h"

struct plan {
        unsigned int cpus;
        unsigned int nodes;
        unsigned int repeat; /* copies of the trace that run at once */
        const char *options;
};

/* What was met on the way. */
struct outcome {
        struct sim_counts counts; /* of the steps alone */
        uint64_t slow_calls;
        size_t base_pages;  /* that the heap uses before anything is allocated */
        struct asked asked; /* at the end */
        size_t peak_pages;  /* first time it was reached, and what lived then: */
        uint64_t peak_asked_bytes;
        uint64_t peak_allocated_bytes; /* with engine slob's headers, as spec 7.6 counts */
        size_t peak_large_pages;
        uint64_t peak_event; /* record number, counted by one copy */
        double cpu_seconds;  /* of the steps; for people, in no document */
};

void replay_run(const struct replay *replay, const struct plan *plan, struct outcome *outcome);
/* Writes the document to standard output. */
void replay_print(const struct replay *replay, const struct plan *plan,
                  const struct outcome *outcome, const struct trace *trace);

#endif
