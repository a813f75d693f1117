/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * growing: strings, vectors and read buffers that are appended to, with realloc. Many grow side by
 * side, so a block seldom has free room behind it. The result depends on whether realloc copies,
 * grows in place or moves pages.
 *
 * A thread fills 16 arrays in turn, each to its own final size. Half of the
 * arrays grow by half of their size when full, half by a constant 512 bytes.
 * A full array is read through, freed and begun anew.
 *
 * Sizes: from 64 bytes to a final 256 bytes to 4 MiB (with constant steps:
 * 64 KiB), each doubling as likely as the next. Lifetimes: until full. Threads
 * share nothing. Peak: about 11 MiB a thread on average, 50 MiB at most.
 */

#define _GNU_SOURCE
#include "workload.h"

enum {
        ARRAYS = 16,
        APPENDS = 40000000,
        APPEND_WORDS = 8,
        STEP_WORDS = 64,
        FIRST_WORDS = 8,
        LOG2_FINAL_MIN = 8,
        LOG2_FINAL_MAX_FACTOR = 22,
        LOG2_FINAL_MAX_STEP = 16,
};

struct array {
        uint64_t *words; /* word i holds first + i; NULL: to be begun */
        uint64_t first;
        size_t used;  /* words */
        size_t room;  /* words */
        size_t final; /* words; freed when `used` reaches it */
};

static void array_begin(struct worker *worker, struct array *array, int by_factor)
{
        unsigned int high = by_factor ? LOG2_FINAL_MAX_FACTOR : LOG2_FINAL_MAX_STEP;

        *array = (struct array){
                .first = random_next(&worker->random),
                .final = random_doublings(&worker->random, LOG2_FINAL_MIN, high) / sizeof(uint64_t),
        };
        worker->made++;
}

static void array_grow(struct worker *worker, struct array *array, int by_factor)
{
        size_t room = by_factor ? array->room + array->room / 2 : array->room + STEP_WORDS;
        uint64_t *words;

        if (room < FIRST_WORDS)
                room = FIRST_WORDS;
        words = realloc(array->words, room * sizeof(uint64_t));
        if (!words)
                workload_fail(worker->workload, "out of memory", room * sizeof(uint64_t));
        array->words = words;
        array->room = room;
}

static void array_append(struct worker *worker, struct array *array, int by_factor)
{
        for (size_t i = 0; i < APPEND_WORDS; i++) {
                uint64_t word = array->first + array->used;

                if (array->used == array->room)
                        array_grow(worker, array, by_factor);
                array->words[array->used++] = word;
                worker->written += word;
        }
}

static void array_end(struct worker *worker, struct array *array)
{
        for (size_t i = 0; i < array->used; i++) {
                if (array->words[i] != array->first + i)
                        workload_fail(worker->workload, "contents changed",
                                      array->room * sizeof(uint64_t));
                worker->found += array->words[i];
        }
        worker->gone++;
        free(array->words);
        array->words = NULL;
}

static void *run(void *argument)
{
        struct worker *worker = argument;
        struct array arrays[ARRAYS] = {0};
        uint64_t appends = workload_share(worker->workload, APPENDS);

        for (uint64_t n = 0; n < appends; n++) {
                size_t place = n % ARRAYS;
                int by_factor = place % 2 == 0;
                struct array *array = &arrays[place];

                if (!array->words)
                        array_begin(worker, array, by_factor);
                array_append(worker, array, by_factor);
                if (array->used >= array->final)
                        array_end(worker, array);
        }
        for (size_t i = 0; i < ARRAYS; i++) {
                if (arrays[i].words)
                        array_end(worker, &arrays[i]);
        }
        return NULL;
}

int main(int argc, char **argv)
{
        struct workload workload = workload_init("growing", argc, argv, NULL, 0);
        struct worker sum = workload_run(&workload, run);

        return workload_finish(&workload, &sum, NULL, 0);
}
