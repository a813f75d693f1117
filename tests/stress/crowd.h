/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Threads for stress: on stacks of their own (so that libc keeps nothing of theirs in the heap),
 * pinned if wanted, each hit by a timer's signals all the time. The handler yields the CPU every
 * other time, so that another thread runs in the middle of whatever was interrupted.
 */
#ifndef TESTS_STRESS_CROWD_H
#define TESTS_STRESS_CROWD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { CROWD_MAX = 256 };

struct crowd_thread {
        void *(*run)(void *argument);
        void *argument;
        int cpu;               /* index of its CPU among the usable CPUs; -1: free */
        unsigned int storm_us; /* a signal every so often, 0: none */
        pthread_t thread;
        unsigned int stack;
        bool running;
};

/*
 * Installs the storm's handler and the watchdog: the process dies when *@progress has not changed
 * for @deadline_s seconds. A busy machine makes no difference to that.
 */
void crowd_init(const uint64_t *progress, unsigned int deadline_s);
unsigned int crowd_cpus(void);
void crowd_start(struct crowd_thread *thread);
void crowd_join(struct crowd_thread *thread);
void crowd_pin_self(int cpu);
/* Signals delivered so far. */
uint64_t crowd_storm_count(void);

#endif
