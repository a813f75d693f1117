/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The parts of the program that replays a trace on the simulated machine: run.c takes its steps,
 * figures.c writes the counts, moments.c the states of the heap on the way.
 */
#ifndef KMEM_TOOLS_REPLAY_REPLAY_H
#define KMEM_TOOLS_REPLAY_REPLAY_H

#include "tools/replay/heap.h"

#include "engines/slob/statistics.h"

struct plan {
        unsigned int cpus;
        unsigned int nodes;
        unsigned int repeat;  /* copies of the trace that run at once */
        unsigned int moments; /* how many times on the way the heap is looked at */
        const char *options;
};

/* The heap at a moment on the way. */
struct moment {
        uint64_t steps; /* taken so far, counted by a single copy */
        uint64_t time;  /* ns since the trace began */
        size_t pages;
        size_t large_pages;
        uint64_t asked_bytes; /* as in struct outcome */
        uint64_t asked_large_bytes;
        /* Of engine slob; fragments and free bytes are summed up over its lists. */
        struct slob_counts slob;
        struct slob_list_figures lists;
};

/* The results of a replay. */
struct outcome {
        struct moment *moments; /* plan->moments of them, or as many as there are steps */
        size_t moment_count;
        struct sim_counts counts; /* of the steps alone */
        uint64_t slow_calls;
        struct asked asked; /* at the end */
        size_t peak_pages;  /* when it was reached first; the next figures are of that time: */
        uint64_t peak_asked_bytes;
        uint64_t peak_allocated_bytes; /* with engine slob's headers, as S7.6 counts */
        size_t peak_large_pages;
        uint64_t peak_event;        /* record number, counted by a single copy */
        size_t peak_resident_pages; /* that a program would have made resident, at a time of their
                                       own (resident.h) */
        size_t peak_record_bytes;   /* of the library's records, at a time of their own */
        double cpu_seconds;         /* of the steps; for people, in no document */
};

void replay_run(const struct replay *replay, const struct plan *plan, struct outcome *outcome);
/* Writes the document to standard output. */
void replay_print(const struct replay *replay, const struct plan *plan,
                  const struct outcome *outcome, const struct trace *trace);

/* Looks at the heap; takes no lock, so that the counts are of the steps alone. */
void moment_note(struct moment *moment);
/* Prints the moments' part of the document; nothing if no moments were wanted. */
void moments_print(const struct outcome *outcome);

#endif
