/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The parts of the program that replays a trace on the simulated machine: steps.c makes a list of
 * steps of a trace, run.c takes them, figures.c says what the heap is like at the end and moments.c
 * what it was like on the way.
 */
#ifndef KMEM_TOOLS_REPLAY_H
#define KMEM_TOOLS_REPLAY_H

#include "api/heap.h"
#include "lab/trace.h"
#include "slob/statistics.h"

/* What objects come from, by the number in a step. */
enum { SOURCE_SIZES, SOURCE_LARGE_SIZES, SOURCE_PAGES, SOURCES_FIXED };

struct source {
        struct kmem_cache *cache; /* NULL: kmalloc or pages */
        char name[CACHE_NAME_BYTES];
        uint32_t object_bytes; /* the most that the trace asks for */
        uint32_t given;        /* the recorded stride */
        bool uncached;         /* never served by a sheaf: every call takes a slow path */
        bool large;            /* has pages of its own, and does not count as allocated bytes */
};

/* One event, with objects named by place: a place is used again when its object is gone. */
struct step {
        uint64_t time;  /* ns since the trace began */
        uint64_t bytes; /* that the object was asked for */
        uint32_t place : 31;
        uint32_t frees : 1;
        uint16_t cpu;
        uint16_t source;
};

struct replay {
        uint64_t steps_count;
        struct step *steps;
        uint32_t places; /* objects that live at once, at most */
        uint32_t source_count;
        struct source *sources;
        uint32_t trace_cpus;
        /* Of one copy. */
        uint64_t allocations;
        uint64_t frees;
        uint64_t implied_frees; /* of `frees` */
        uint64_t orphans;       /* left out: what they free was allocated before the trace began */
};

struct plan {
        unsigned int cpus;
        unsigned int nodes;
        unsigned int repeat;  /* copies of the trace that run at once */
        unsigned int moments; /* on the way, at which the heap is looked at */
        const char *options;
};

/* The heap on the way. */
struct moment {
        uint64_t steps; /* taken so far, counted by one copy */
        uint64_t time;  /* ns since the trace began */
        size_t pages;
        size_t large_pages;
        uint64_t asked_bytes; /* as in struct outcome */
        uint64_t asked_large_bytes;
        /* Of engine slob; fragments and free bytes are summed up over its lists. */
        struct slob_counts slob;
        struct slob_list_figures lists;
};

/* What was met on the way. */
struct outcome {
        struct moment *moments; /* plan->moments of them, or as many as there are steps */
        size_t moment_count;
        struct sim_counts counts; /* of the steps alone */
        uint64_t slow_calls;
        size_t base_pages;    /* that the heap uses before anything is allocated */
        uint64_t asked_bytes; /* of the objects that live at the end, large ones left out */
        uint64_t asked_large_bytes;
        size_t peak_pages; /* first time it was reached, and what lived then: */
        uint64_t peak_asked_bytes;
        uint64_t peak_allocated_bytes; /* with engine slob's headers, as spec 7.6 counts */
        size_t peak_large_pages;
        uint64_t peak_event; /* record number, counted by one copy */
        double cpu_seconds;  /* of the steps; for people, in no document */
};

/* Prints a line and ends the program. */
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* Memory is never missing. */
void *need(void *memory);

/* Makes steps, and the caches that they need. The machine has been started. */
void replay_prepare(struct replay *replay, const struct trace *trace);
void replay_run(const struct replay *replay, const struct plan *plan, struct outcome *outcome);
/* Writes the document to standard output. */
void replay_print(const struct replay *replay, const struct plan *plan,
                  const struct outcome *outcome, const struct trace *trace);

/* Looks at the heap; takes no lock, so that the counts stay those of the steps alone. */
void moment_note(struct moment *moment);
/* The part of the document; nothing if no moments were wanted. */
void moments_print(const struct outcome *outcome);

/* Pages in use for objects. */
size_t used_pages(void);
/* Pages of large blocks, and of big objects of engine slob. */
size_t large_pages(void);

#endif
