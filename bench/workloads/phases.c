/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * phases: a long-running program whose habits change: each phase uses mostly a single size, and a
 * few of its objects stay for long (sessions, cache entries, configuration). The survivors pin the
 * memory of past phases. So the result, and the peak, depend on reuse for other sizes and on memory
 * that is given back.
 *
 * Sizes: powers of two from 16 bytes to 64 KiB, drawn at random for each phase. Lifetimes: a phase
 * makes 2 MiB of objects (at most 16,384) four times over; every sixteenth of the last round
 * survives for 16 phases. Threads share nothing. Peak: about 4 MiB of contents a thread; the slabs
 * that survivors hold are more.
 */

#define _GNU_SOURCE
#include "workload.h"

enum {
        PHASES = 2000,
        ROUNDS = 4,
        PHASE_BYTES = 2 << 20,
        OBJECTS_MAX = 16384,
        LOG2_BYTES_MIN = 4,
        LOG2_BYTES_MAX = 16,
        SURVIVOR_IN = 16,
        KEPT_PHASES = 16,
};

/* The survivors of a phase. */
struct kept {
        size_t count;
        void *objects[OBJECTS_MAX];
};

static void kept_free(struct worker *worker, struct kept *kept)
{
        while (kept->count)
                block_free(worker, kept->objects[--kept->count]);
}

static void one_phase(struct worker *worker, void **objects, struct kept *kept)
{
        size_t log2_bytes =
                LOG2_BYTES_MIN + random_below(&worker->random, LOG2_BYTES_MAX - LOG2_BYTES_MIN + 1);
        size_t count = PHASE_BYTES >> log2_bytes;

        if (count > OBJECTS_MAX)
                count = OBJECTS_MAX;
        for (int round = 1; round <= ROUNDS; round++) {
                for (size_t i = 0; i < count; i++)
                        objects[i] = block_new(worker, (size_t)1 << log2_bytes);
                for (size_t i = 0; i < count; i++) {
                        if (round == ROUNDS && !random_below(&worker->random, SURVIVOR_IN))
                                kept->objects[kept->count++] = objects[i];
                        else
                                block_free(worker, objects[i]);
                }
        }
}

static void *run(void *argument)
{
        struct worker *worker = argument;
        uint64_t phases = workload_share(worker->workload, PHASES);
        void **objects = table_new(worker->workload, OBJECTS_MAX, sizeof(*objects));
        struct kept *kept = table_new(worker->workload, KEPT_PHASES, sizeof(*kept));

        for (uint64_t phase = 0; phase < phases; phase++) {
                kept_free(worker, &kept[phase % KEPT_PHASES]);
                one_phase(worker, objects, &kept[phase % KEPT_PHASES]);
        }
        for (size_t i = 0; i < KEPT_PHASES; i++)
                kept_free(worker, &kept[i]);
        free(kept);
        free(objects);
        return NULL;
}

int main(int argc, char **argv)
{
        struct workload workload = workload_init("phases", argc, argv, NULL, 0);
        struct worker sum = workload_run(&workload, run);

        return workload_finish(&workload, &sum, NULL, 0);
}
