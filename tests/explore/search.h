/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The search through the schedules of a scenario; its figures, and the schedule that fails.
 */
#ifndef KMEM_EXPLORE_SEARCH_H
#define KMEM_EXPLORE_SEARCH_H

#include "scenario.h"

enum { TURNS_MAX = 64, STEPS_MAX = 1 << 16, REFUSALS_MAX = 4 };

/*
 * A choice of the schedule that is not the default: at that step the thread runs, or a store is
 * delayed; or the thread's request for memory with that number, from 1, is refused, at whatever step.
 */
struct turn {
        uint32_t step;
        uint32_t thread;
        uint32_t delay; /* 0: a thread runs; else the number of the question in front of the step */
        uint32_t refused; /* 0: none */
};

struct schedule {
        unsigned int count;
        struct turn turn[TURNS_MAX];
};

/*
 * A step that was made, by which thread; or a delay of a store, in front of an access; or a refused
 * request.
 */
struct step {
        const struct place *place;
        uint32_t thread;
        const char *delay;          /* NULL: a step; else what became of the store at @place */
        const struct place *access; /* of a delay; NULL: @place is a request, and is refused */
};

/* In memory that all processes of a search share. A single one of them runs at a time. */
struct search {
        uint64_t executions;
        uint64_t points;    /* scheduling points passed */
        uint64_t choices;   /* those with more than one thread to choose from, and delays */
        uint64_t cut_short; /* executions that turned out equal to others */
        uint64_t ends;      /* memories that executions left, and a sum over them */
        uint64_t ends_sum;
        bool late; /* the time was over before the search was */
        bool failed;
        bool grew; /* a word was found shared that was not known as such */
        char reason[512];
        unsigned int steps;
        struct schedule schedule; /* of the execution that runs, or that failed */
        struct step step[STEPS_MAX];
        uint64_t processor_ns; /* of all processes that have ended */
        uint32_t requests
                [THREADS_MAX]; /* for memory: the most that an execution had of each thread */
};
extern struct search *search;

/* Time of the processor that all processes of the search have used. */
uint64_t search_processor_ms(void);
/* Whether @ends are counted. */
extern bool search_notes_ends;

/* False if there is no memory for it. */
bool search_init(void);
/* The bounds of a search: schedules with up to so many preemptions, delays of stores, and refused requests. */
struct bounds {
        unsigned int preemptions;
        unsigned int delays;
        unsigned int refusals;
        uint64_t deadline; /* of search_processor_ms; 0: never */
};

/*
 * Runs every schedule within the bounds, until one fails or time is over. The counts of @search are
 * of the last pass, which knew all shared words.
 */
void search_all(const struct scenario *scenario, const struct bounds *bounds);
/*
 * Runs a schedule of each class of equal ones, with a bound on preemptions or NO_BOUND (reduce.c), until
 * one fails or time is over. Only under sequential consistency, without delays.
 */
void search_classes(const struct scenario *scenario, const struct bounds *bounds);
/* Runs a single schedule. */
void search_replay(const struct scenario *scenario, const struct schedule *schedule);
/* Leaves out every turn of the schedule that it fails without. */
void search_shrink(const struct scenario *scenario, struct schedule *schedule);

/*
 * For memory.c: true if what is unusual becomes of the store at @store in front of the access; @how
 * says it in words. @cost: of the delays that a schedule has.
 */
bool search_delays(const struct place *store, const char *how, const struct place *access,
                   unsigned int cost);
bool search_is_thread_local(const char *address);
/* The running thread's own: its variables and its stack. */
bool search_is_of_thread(const char *address);

#endif
