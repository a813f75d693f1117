/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * mixed: a program that uses every small and middle size at once: records,
 * strings, buffers. Random sizes at random places fragment the heap and reach
 * every size class, so classes, slab sizes and coalescing decide.
 *
 * Sizes: 16 bytes to 32 KiB, each doubling as likely as the next (mean 4.5 KiB).
 * Lifetimes: geometric, 8,192 replacements on average. Threads share nothing.
 * Peak: 8,192 blocks, 35 MiB of contents in all (at least 64 blocks a thread).
 */

#define _GNU_SOURCE
#include "workload.h"

enum {
        LIVE = 8192, /* blocks of all threads together */
        LIVE_MIN = 64,
        REPLACEMENTS = 20000000,
        LOG2_BYTES_MIN = 4,
        LOG2_BYTES_MAX = 15,
};

static size_t mixed_bytes(uint64_t *random)
{
        return random_doublings(random, LOG2_BYTES_MIN, LOG2_BYTES_MAX);
}

static void *run(void *argument)
{
        struct worker *worker = argument;
        size_t live = workload_part(worker->workload, LIVE, LIVE_MIN);
        uint64_t replacements = workload_share(worker->workload, REPLACEMENTS);
        void **blocks = table_new(worker->workload, live, sizeof(*blocks));

        places_replace(worker, blocks, live, replacements, mixed_bytes);
        places_free(worker, blocks, live);
        return NULL;
}

int main(int argc, char **argv)
{
        struct workload workload = workload_init("mixed", argc, argv, NULL, 0);
        struct worker sum = workload_run(&workload, run);

        return workload_finish(&workload, &sum, NULL, 0);
}
