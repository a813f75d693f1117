/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * batches: stages that build many objects, use them, and drop all of them: a
 * compiler's pass, a query's rows, a tree that is torn down. The order of the
 * frees decides how free lists look when the next batch comes.
 *
 * order=forward|reverse|random  how a batch is freed: as made, newest first, or shuffled
 * handed=no|yes                 by the thread that made it, or by the next thread in
 *                               a ring (with one thread: through the queue to itself)
 *
 * Sizes: 16 bytes to 1 KiB, each doubling as likely as the next (mean 250). Lifetimes: a batch of
 * 4,096 objects. Peak: 1 MiB a thread, with handed=yes up to 2 MiB, as a thread is never more than
 * a batch ahead of its own frees.
 */

#define _GNU_SOURCE
#include "handover.h"
#include "workload.h"

#include <assert.h>

enum {
        BATCHES = 10000,
        OBJECTS = 4096,
        LOG2_BYTES_MIN = 4,
        LOG2_BYTES_MAX = 10,
};

enum order { FORWARD, REVERSE, RANDOM };

struct batch {
        void *objects[OBJECTS];
};

static struct workload_choice choices[] = {
        {"order", {"forward", "reverse", "random"}, FORWARD},
        {"handed", {"no", "yes"}, 0},
};

/* The queue that leads to each thread. */
static struct handover rings[WORKLOAD_THREADS_MAX];

static struct batch *batch_new(struct worker *worker)
{
        struct batch *batch = table_new(worker->workload, 1, sizeof(*batch));

        for (size_t i = 0; i < OBJECTS; i++)
                batch->objects[i] = block_new(
                        worker, random_doublings(&worker->random, LOG2_BYTES_MIN, LOG2_BYTES_MAX));
        return batch;
}

static void batch_shuffle(struct batch *batch, uint64_t *random)
{
        for (size_t i = OBJECTS - 1; i > 0; i--) {
                size_t other = random_below(random, i + 1);
                void *object = batch->objects[i];

                batch->objects[i] = batch->objects[other];
                batch->objects[other] = object;
        }
}

static void batch_free(struct worker *worker, struct batch *batch, enum order order)
{
        if (order == RANDOM)
                batch_shuffle(batch, &worker->random);
        for (size_t i = 0; i < OBJECTS; i++)
                block_free(worker, batch->objects[order == REVERSE ? OBJECTS - 1 - i : i]);
        free(batch);
}

/*
 * Nobody waits for ever. A thread has put at most a batch more than it took, so not all queues can
 * be full (they hold more), nor can all be empty while every thread waits to take.
 */
static_assert(HANDOVER_CAPACITY > 1, "a ring of full queues would stand still");

static void *run(void *argument)
{
        struct worker *worker = argument;
        enum order order = choices[0].chosen;
        struct handover *mine = &rings[worker->index];
        struct handover *next = &rings[(worker->index + 1) % worker->workload->threads];
        uint64_t batches = workload_share(worker->workload, BATCHES);

        while (batches--) {
                struct batch *batch = batch_new(worker);

                if (choices[1].chosen) {
                        handover_put(next, batch);
                        batch = handover_take(mine);
                }
                batch_free(worker, batch, order);
        }
        return NULL;
}

int main(int argc, char **argv)
{
        struct workload workload = workload_init("batches", argc, argv, choices, 2);
        struct worker sum;

        for (unsigned int i = 0; i < workload.threads; i++)
                handover_init(&rings[i]);
        sum = workload_run(&workload, run);
        return workload_finish(&workload, &sum, choices, 2);
}
