/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Threads that allocate, check and free until they are told to stop. */
#ifndef CHURNERS_H
#define CHURNERS_H

#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

#define CHURNERS_MAX 8

struct churners {
        atomic_bool stop;
        atomic_uint started;
        unsigned int count;
        pthread_t threads[CHURNERS_MAX];
};

static inline void *churners_thread(void *argument)
{
        struct churners *churners = argument;
        struct churn churn;

        churn_init(&churn, 1000 + atomic_fetch_add(&churners->started, 1));
        while (!atomic_load(&churners->stop))
                churn_run(&churn, 100);
        churn_end(&churn);
        return NULL;
}

/* Starts the threads and returns when all of them run. */
static inline void churners_start(struct churners *churners, unsigned int count)
{
        check(count <= CHURNERS_MAX);
        memset(churners, 0, sizeof(*churners));
        churners->count = count;
        for (unsigned int i = 0; i < count; i++)
                check(pthread_create(&churners->threads[i], NULL, churners_thread, churners) == 0);
        while (atomic_load(&churners->started) < count)
                sched_yield();
}

static inline void churners_stop(struct churners *churners)
{
        atomic_store(&churners->stop, 1);
        for (unsigned int i = 0; i < churners->count; i++)
                check(pthread_join(churners->threads[i], NULL) == 0);
}

#endif
