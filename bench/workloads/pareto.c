/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * pareto: an index or in-memory table: many small objects live, a few bigger
 * ones among them, and each update replaces an object at a random place. The
 * live set is far larger than the CPU caches, so how densely objects lie and
 * how many lines an operation touches decide.
 *
 * Sizes: bounded Pareto with shape 1 from 16 bytes to 1 KiB (half are under
 * 32 bytes, mean 68). Lifetimes: geometric, 400,000 replacements on average.
 * Threads share nothing. Peak: 400,000 objects, 26 MiB of contents in all.
 */

#define _GNU_SOURCE
#include "workload.h"

enum {
        LIVE = 400000, /* objects of all threads together */
        REPLACEMENTS = 18000000,
        BYTES_MAX = 1024,
};

/* The quantile function of the bounded distribution: low / (1 - u (1 - low / high)). */
static size_t pareto_bytes(uint64_t *random)
{
        double u = (double)(random_next(random) >> 11) * 0x1p-53;

        return (size_t)(BLOCK_BYTES_MIN / (1 - u * (1 - (double)BLOCK_BYTES_MIN / BYTES_MAX)));
}

static void *run(void *argument)
{
        struct worker *worker = argument;
        size_t live = workload_part(worker->workload, LIVE, 1);
        uint64_t replacements = workload_share(worker->workload, REPLACEMENTS);
        void **objects = table_new(worker->workload, live, sizeof(*objects));

        for (size_t i = 0; i < live; i++)
                objects[i] = block_new(worker, pareto_bytes(&worker->random));
        places_replace(worker, objects, live, replacements, pareto_bytes);
        places_free(worker, objects, live);
        return NULL;
}

int main(int argc, char **argv)
{
        struct workload workload = workload_init("pareto", argc, argv, NULL, 0);
        struct worker sum = workload_run(&workload, run);

        return workload_finish(&workload, &sum, NULL, 0);
}
