/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * thread_per_request: a server that starts a thread for each connection or job: threads come and
 * go, each with little work. The result depends on the allocator's setup for a new thread, and on
 * the fate of a thread's caches when it ends.
 *
 * The main thread makes a request, starts a thread for it, and later frees the
 * reply; `threads` requests are under way at a time, and the oldest is waited for.
 *
 * Sizes: request and reply 64 bytes to 4 KiB, 100 objects of 16 to 512 bytes
 * between them, each doubling as likely as the next. Lifetimes: the thread
 * frees the request and its objects, the reply outlives it. Peak: 60 KiB at
 * most a request under way, and the threads' stacks.
 */

#define _GNU_SOURCE
#include "workload.h"

#include <stdbool.h>

enum {
        REQUESTS = 80000,
        OBJECTS = 100,
        LOG2_OBJECT_MIN = 4,
        LOG2_OBJECT_MAX = 9,
        LOG2_MESSAGE_MIN = 6,
        LOG2_MESSAGE_MAX = 12,
};

/* A request under way. Until it ends, worker and message belong to its thread, else to main. */
struct request {
        struct worker worker;
        void *message; /* the request, then the reply */
        pthread_t thread;
        bool under_way; /* always main's */
};

static void *serve(void *argument)
{
        struct request *request = argument;
        struct worker *worker = &request->worker;
        void *objects[OBJECTS];

        for (size_t i = 0; i < OBJECTS; i++)
                objects[i] = block_new(worker, random_doublings(&worker->random, LOG2_OBJECT_MIN,
                                                                LOG2_OBJECT_MAX));
        block_free(worker, request->message);
        request->message = block_new(
                worker, random_doublings(&worker->random, LOG2_MESSAGE_MIN, LOG2_MESSAGE_MAX));
        for (size_t i = 0; i < OBJECTS; i++)
                block_free(worker, objects[i]);
        return NULL;
}

static void request_finish(struct worker *sum, struct request *request)
{
        if (!request->under_way)
                return;
        pthread_join(request->thread, NULL);
        worker_add(sum, &request->worker);
        block_free(sum, request->message);
        request->under_way = false;
}

int main(int argc, char **argv)
{
        static struct request requests[WORKLOAD_THREADS_MAX];
        struct workload workload = workload_init("thread_per_request", argc, argv, NULL, 0);
        double nr_requests = REQUESTS * workload.scale;
        unsigned int number = 0;
        struct worker sum;

        workload_refuse_progress(&workload);
        worker_init(&sum, &workload, 0);
        for (; number < nr_requests; number++) {
                struct request *request = &requests[number % workload.threads];

                request_finish(&sum, request);
                worker_init(&request->worker, &workload, number + 1);
                request->message = block_new(
                        &sum, random_doublings(&sum.random, LOG2_MESSAGE_MIN, LOG2_MESSAGE_MAX));
                request->under_way = true;
                thread_start(&workload, &request->thread, serve, request);
        }
        for (unsigned int i = 0; i < workload.threads; i++)
                request_finish(&sum, &requests[(number + i) % workload.threads]);
        return workload_finish(&workload, &sum, NULL, 0);
}
