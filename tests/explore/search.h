/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The search through the schedules of a scenario; its figures, and the schedule that fails.
 */
#ifndef KMEM_EXPLORE_SEARCH_H
#define KMEM_EXPLORE_SEARCH_H

#include "scenario.h"

enum { TURNS_MAX = 64, STEPS_MAX = 1 << 16 };

/* A choice of the schedule that is not the default: at that step the thread runs. */
struct turn {
        uint32_t step;
        uint32_t thread;
};

struct schedule {
        unsigned int count;
        struct turn turn[TURNS_MAX];
};

/* A step that was made, by which thread. */
struct step {
        const struct place *place;
        uint32_t thread;
};

/* In memory that all processes of a search share. A single one of them runs at a time. */
struct search {
        uint64_t executions;
        uint64_t points;  /* scheduling points passed */
        uint64_t choices; /* those with more than one thread to choose from */
        bool late;        /* the time was over before the search was */
        bool failed;
        bool grew; /* a word was found shared that was not known as such */
        char reason[512];
        unsigned int steps;
        struct schedule schedule; /* of the execution that runs, or that failed */
        struct step step[STEPS_MAX];
};
extern struct search *search;

/* False if there is no memory for it. */
bool search_init(void);
/*
 * Runs every schedule with up to @preemptions, until one fails or time is over (ms of the monotonic
 * clock; 0: never). The counts of @search are of the last pass, which knew all shared words.
 */
void search_all(const struct scenario *scenario, unsigned int preemptions, uint64_t deadline);
/* Runs a single schedule. */
void search_replay(const struct scenario *scenario, const struct schedule *schedule);
/* Leaves out every turn of the schedule that it fails without. */
void search_shrink(const struct scenario *scenario, struct schedule *schedule);

#endif
