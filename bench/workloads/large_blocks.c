/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * large_blocks: images, matrices, file and network buffers: blocks that most allocators take
 * straight from the system or keep apart. A word in every 4 KiB is written. So the result depends
 * on whether pages are kept, or given back and faulted in anew.
 *
 * Sizes: 64 KiB to 25 MiB, each doubling as likely as the next. Lifetimes:
 * geometric, 16 replacements on average. Threads share nothing.
 * Peak: 16 blocks, on average 90 MiB of contents in all (at least 2 blocks a thread).
 */

#define _GNU_SOURCE
#include "workload.h"

enum {
        LIVE = 16, /* blocks of all threads together */
        LIVE_MIN = 2,
        REPLACEMENTS = 8000,
        LOG2_BYTES_MIN = 16,
        LOG2_BYTES_MAX = 25,
        BYTES_MAX = 25 << 20,
};

static size_t large_bytes(uint64_t *random)
{
        size_t bytes;

        do
                bytes = random_doublings(random, LOG2_BYTES_MIN, LOG2_BYTES_MAX);
        while (bytes > BYTES_MAX);
        return bytes;
}

static void *run(void *argument)
{
        struct worker *worker = argument;
        size_t live = workload_part(worker->workload, LIVE, LIVE_MIN);
        uint64_t replacements = workload_share(worker->workload, REPLACEMENTS);
        void **blocks = table_new(worker->workload, live, sizeof(*blocks));

        places_replace(worker, blocks, live, replacements, large_bytes);
        places_free(worker, blocks, live);
        return NULL;
}

int main(int argc, char **argv)
{
        struct workload workload = workload_init("large_blocks", argc, argv, NULL, 0);
        struct worker sum = workload_run(&workload, run);

        return workload_finish(&workload, &sum, NULL, 0);
}
