/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * sparse_buffers: buffers with room for the longest message, while most are short: only the
 * beginning of each is written. Between them are small blocks, for data beside a message. The
 * result depends on whether a buffer gets pages that another buffer wrote before it.
 *
 * buffer=131072|300000|32768  bytes of a buffer, of which 4 KiB are written
 *
 * Rounds of 10,000 buffers and as many blocks of 512 bytes, all freed at the end of a round in the
 * order they were made. Threads share nothing. Peak: 45 MiB written, in all.
 */

#define _GNU_SOURCE
#include "workload.h"

enum {
        ROUNDS = 50,
        BUFFERS = 10000, /* of all threads together */
        WRITTEN_BYTES = 4096,
        SMALL_BYTES = 512,
};

static struct workload_choice choices[] = {
        {"buffer", {"131072", "300000", "32768"}, 0},
};

/* The beginning of a buffer is the block that is written and read. */
static void *buffer_new(struct worker *worker, size_t bytes)
{
        char *buffer = malloc(bytes);

        if (buffer)
                memset(buffer, 1, WRITTEN_BYTES);
        return block_write(worker, buffer, WRITTEN_BYTES);
}

static void *run(void *argument)
{
        struct worker *worker = argument;
        size_t bytes = strtoul(choices[0].words[choices[0].chosen], NULL, 10);
        size_t places = 2 * workload_part(worker->workload, BUFFERS, 1);
        uint64_t rounds = workload_share(worker->workload, ROUNDS);
        void **blocks = table_new(worker->workload, places, sizeof(*blocks));

        while (rounds--) {
                for (size_t i = 0; i < places; i += 2) {
                        blocks[i] = block_new(worker, SMALL_BYTES);
                        blocks[i + 1] = buffer_new(worker, bytes);
                }
                for (size_t i = 0; i < places; i++)
                        block_free(worker, blocks[i]);
        }
        free(blocks);
        return NULL;
}

int main(int argc, char **argv)
{
        struct workload workload = workload_init("sparse_buffers", argc, argv, choices, 1);
        struct worker sum = workload_run(&workload, run);

        return workload_finish(&workload, &sum, choices, 1);
}
