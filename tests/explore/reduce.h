/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Which schedules need be run so that every order of dependent steps is (reduce.c).
 */
#ifndef KMEM_EXPLORE_REDUCE_H
#define KMEM_EXPLORE_REDUCE_H

#include "scenario.h"

/* False if there is no memory for it. */
bool reduce_init(void);
enum { NO_BOUND = INT32_MAX };

/* The next execution is the first of all of those with up to so many preemptions. */
void reduce_start(unsigned int preemptions);
/* Whether there is a bound. */
bool reduce_is_bounded(void);
/* Plans the next execution; false if there is none. */
bool reduce_next(void);

/*
 * In an execution. A thread has come to a point in front of a step that accesses the bytes; 0 bytes: it
 * accesses none. What it does behind that step, up to its next choice, belongs to the step.
 */
void reduce_point(int thread, const volatile void *address, size_t bytes, enum access access);
/* The step under way also does that. */
void reduce_access(const volatile void *address, size_t bytes, bool writes);
/*
 * The step under way is over; the thread of the next one, of those that can run (bits). @stays: the
 * thread of the step can go on, and is the usual one; another is a preemption. -1: every continuation
 * of this execution is equal to one that was run.
 */
int reduce_choose(unsigned int ready, int usual, bool stays);
/* The execution is over. */
void reduce_end(void);

#endif
