/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * pipeline: threads that only allocate and threads that only free: readers that parse messages for
 * workers, a logger's callers and its writer. No thread ever reuses memory that it freed itself, so
 * memory has to find its way back from the consumers' caches to the producers.
 *
 * Half of the threads, rounded down but at least 1, are producers, the others consumers (at least
 * 1: threads=1 is run as 1 + 1). Objects go over in groups of 256 through a single queue.
 *
 * Sizes: 16 bytes to 1 KiB, each doubling as likely as the next (mean 250). Lifetimes: until a
 * consumer comes to the group, at most 8 groups, and 1 more for each thread, later. Peak: under 1
 * MiB, and 64 KiB a thread.
 */

#define _GNU_SOURCE
#include "handover.h"
#include "workload.h"

enum {
        GROUPS = 120000,
        OBJECTS = 256,
        LOG2_BYTES_MIN = 4,
        LOG2_BYTES_MAX = 10,
};

struct group {
        void *objects[OBJECTS];
};

static struct handover queue;

static void *produce(void *argument)
{
        struct worker *worker = argument;
        uint64_t groups = workload_share(worker->workload, GROUPS);

        while (groups--) {
                struct group *group = malloc(sizeof(*group));

                if (!group)
                        workload_fail(worker->workload, "out of memory", sizeof(*group));
                for (size_t i = 0; i < OBJECTS; i++)
                        group->objects[i] =
                                block_new(worker, random_doublings(&worker->random, LOG2_BYTES_MIN,
                                                                   LOG2_BYTES_MAX));
                handover_put(&queue, group);
        }
        return NULL;
}

/* Ends at the first NULL. */
static void *consume(void *argument)
{
        struct worker *worker = argument;
        struct group *group;

        while ((group = handover_take(&queue))) {
                for (size_t i = 0; i < OBJECTS; i++)
                        block_free(worker, group->objects[i]);
                free(group);
        }
        return NULL;
}

int main(int argc, char **argv)
{
        static struct worker consumers[WORKLOAD_THREADS_MAX];
        static pthread_t threads[WORKLOAD_THREADS_MAX];
        struct workload workload = workload_init("pipeline", argc, argv, NULL, 0);
        struct workload producing = workload;
        struct worker sum;
        unsigned int nr_consumers;

        producing.threads = workload.threads > 1 ? workload.threads / 2 : 1;
        nr_consumers = workload.threads > 1 ? workload.threads - producing.threads : 1;
        handover_init(&queue);
        for (unsigned int i = 0; i < nr_consumers; i++) {
                worker_init(&consumers[i], &workload, i);
                thread_start(&workload, &threads[i], consume, &consumers[i]);
        }
        sum = workload_run(&producing, produce);
        for (unsigned int i = 0; i < nr_consumers; i++)
                handover_put(&queue, NULL);
        for (unsigned int i = 0; i < nr_consumers; i++) {
                pthread_join(threads[i], NULL);
                worker_add(&sum, &consumers[i]);
        }
        return workload_finish(&workload, &sum, NULL, 0);
}
