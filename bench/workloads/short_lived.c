/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * short_lived: parsers, formatters and interpreters: a call makes a few small objects and frees
 * them before it returns. Few objects live at a time, so the result depends on the allocator's
 * fastest path and its cache use.
 *
 * Sizes: 16 to 256 bytes in steps of 8. Lifetimes: a call's 1 to 32 objects are
 * freed at its end, newest first in three calls of four, else oldest first.
 * Threads share nothing. Peak: under 10 KiB live a thread.
 */

#define _GNU_SOURCE
#include "workload.h"

enum {
        CALLS = 15000000,
        OBJECTS_MAX = 32,
        STEP_BYTES = 8,
        BYTES_MAX = 256,
};

static void one_call(struct worker *worker)
{
        void *objects[OBJECTS_MAX];
        size_t steps = (BYTES_MAX - BLOCK_BYTES_MIN) / STEP_BYTES + 1;
        size_t count = 1 + random_below(&worker->random, OBJECTS_MAX);

        for (size_t i = 0; i < count; i++) {
                size_t bytes = BLOCK_BYTES_MIN + STEP_BYTES * random_below(&worker->random, steps);

                objects[i] = block_new(worker, bytes);
        }
        if (random_below(&worker->random, 4)) {
                for (size_t i = count; i-- > 0;)
                        block_free(worker, objects[i]);
        } else {
                for (size_t i = 0; i < count; i++)
                        block_free(worker, objects[i]);
        }
}

static void *run(void *argument)
{
        struct worker *worker = argument;
        uint64_t calls = workload_share(worker->workload, CALLS);

        while (calls--)
                one_call(worker);
        return NULL;
}

int main(int argc, char **argv)
{
        struct workload workload = workload_init("short_lived", argc, argv, NULL, 0);
        struct worker sum = workload_run(&workload, run);

        return workload_finish(&workload, &sum, NULL, 0);
}
