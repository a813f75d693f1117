/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Choices of a bounded search whose continuations have been run to the end (visited.c).
 */
#ifndef KMEM_EXPLORE_VISITED_H
#define KMEM_EXPLORE_VISITED_H

#include "scenario.h"

/* What the continuations of a choice depend on, but for the preemptions in front of it. */
struct visited_key {
        uint64_t
                trace; /* a sum over the steps in front, each with the steps that happen before it */
        int last;      /* the thread of the last step */
        int stays;     /* the thread that another one preempts here; -1: none */
        unsigned int ready;
};

/* A step in front of the choice, and the threads (bits) with a later step that races with it. */
struct visited_race {
        uint16_t number; /* of the thread's steps */
        uint8_t thread;
        uint8_t late;
};

struct visited {
        const struct visited_race *race;
        unsigned int count;
        /* Threads that race with a step of @last behind the choice, which follows its steps in front. */
        unsigned int going_on;
};

/* False if there is no memory for it. */
bool visited_init(void);
void visited_clear(void);
/* With so many preemptions in front, or fewer. */
bool visited_find(const struct visited_key *key, unsigned int used, struct visited *found);
void visited_add(const struct visited_key *key, unsigned int used, const struct visited *visited);

#endif
