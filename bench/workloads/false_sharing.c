/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * false_sharing: threads that write busily to small objects of their own. If the allocator gives
 * two threads objects in a common cache line, the line moves between their CPUs again and again.
 * Hyperthreads of a core share its first cache: there false sharing costs little, and this program
 * may show no difference.
 *
 * mode=active   each thread allocates its objects itself: the allocator shares a
 *               line if it serves several threads from the same place
 * mode=passive  thread 0 allocates an object for each thread, which writes to it,
 *               frees it and goes on with objects of its own: the allocator makes
 *               sharing last if the next allocation gets the freed, shared line
 *
 * Sizes: 24 bytes. Lifetimes: 400 writes. A thread has one object at a time, and all threads
 * together use 4,000 between two meetings, at which new objects are given. Peak: two objects a
 * thread.
 */

#define _GNU_SOURCE
#include "workload.h"

enum {
        OBJECT_BYTES = 24, /* a counter between the tokens */
        COUNTER_AT = 8,
        MEETINGS = 3000, /* at scale 1, however many threads */
        OBJECTS = 4000,  /* of all threads together between two meetings */
        WRITES = 400,
};

enum mode { ACTIVE, PASSIVE };

static struct workload_choice choices[] = {{"mode", {"active", "passive"}, ACTIVE}};
static pthread_barrier_t meeting;
static void *given[WORKLOAD_THREADS_MAX]; /* made before a meeting, taken after it */

static void object_use(struct worker *worker, void *object)
{
        volatile uint64_t *counter = (volatile uint64_t *)((char *)object + COUNTER_AT);

        *counter = 0;
        /* Reads that a write waits for would time how soon a processor forwards its last write. */
        for (unsigned int i = 0; i < WRITES; i++) {
                if (*counter != i)
                        workload_fail(worker->workload, "contents changed", OBJECT_BYTES);
                *counter = i + 1;
        }
        block_free(worker, object);
}

static void *run(void *argument)
{
        struct worker *worker = argument;
        const struct workload *workload = worker->workload;
        size_t objects = workload_part(workload, OBJECTS, 1);
        double meetings = MEETINGS * workload->scale;

        for (double m = 0; m < meetings; m++) {
                if (choices[0].chosen == PASSIVE && worker->index == 0) {
                        for (unsigned int i = 0; i < workload->threads; i++)
                                given[i] = block_new(worker, OBJECT_BYTES);
                }
                pthread_barrier_wait(&meeting);
                if (choices[0].chosen == PASSIVE)
                        object_use(worker, given[worker->index]);
                for (size_t i = 0; i < objects; i++)
                        object_use(worker, block_new(worker, OBJECT_BYTES));
                /* Thread 0 must not give again before all threads took. */
                pthread_barrier_wait(&meeting);
        }
        return NULL;
}

int main(int argc, char **argv)
{
        struct workload workload = workload_init("false_sharing", argc, argv, choices, 1);
        struct worker sum;

        pthread_barrier_init(&meeting, NULL, workload.threads);
        sum = workload_run(&workload, run);
        return workload_finish(&workload, &sum, choices, 1);
}
