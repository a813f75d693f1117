/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The arguments of `drawn`, with their limits and defaults. The head of drawn.c says what each is.
 * They are set before the first thread starts.
 */
#ifndef KMEM_BENCH_DRAWN_WORDS_H
#define KMEM_BENCH_DRAWN_WORDS_H

#include "drawn_sizes.h"
#include "workload.h"

enum {
        DRAWN_BYTES_MIN = 8,
        DRAWN_BYTES_MAX = 16 << 20,
        LIVE_BYTES_MAX = 1 << 30,
        GENERATIONS_MAX = 10000,
        BATCH_MAX = 1024,
        BURST_MAX = 1 << 20,
        READS_MAX = 64,
};

enum lives { LIVES_STACK, LIVES_QUEUE, LIVES_RANDOM, LIVES_PHASES, LIVES_SCATTERED };
enum handover { HANDOVER_NONE, HANDOVER_PAIRS, HANDOVER_RING, HANDOVER_RANDOM, HANDOVER_ONEWAY };
enum touch { TOUCH_FIRST, TOUCH_PAGES, TOUCH_ALL };

static struct workload_choice choices[] = {
        {"sizes",
         {"constant", "uniform", "power", "doublings", "python3", "redis", "node", "gcc", "sqlite"},
         SIZES_POWER},
        {"lives", {"stack", "queue", "random", "phases", "scattered"}, LIVES_RANDOM},
        {"handover", {"none", "pairs", "ring", "random", "oneway"}, HANDOVER_NONE},
        {"touch", {"first", "pages", "all"}, TOUCH_PAGES},
        {"inherit", {"no", "yes"}, 1},
};
enum choice { SIZES, LIVES, HANDOVER, TOUCH, INHERIT, NR_CHOICES };

static struct workload_number numbers[] = {
        {"least", DRAWN_BYTES_MIN, DRAWN_BYTES_MAX, 16},
        {"most", DRAWN_BYTES_MIN, DRAWN_BYTES_MAX, 1024},
        {"live", 0, LIVE_BYTES_MAX, 4 << 20},
        {"burst", 1, BURST_MAX, 1},
        {"generations", 1, GENERATIONS_MAX, 1},
        {"handed", 0, 100, 100},
        {"batch", 1, BATCH_MAX, 16},
        {"reads", 0, READS_MAX, 0},
        {"realloc", 0, 100, 0},
        {"calloc", 0, 100, 0},
        {"aligned", 0, 100, 0},
};
enum number {
        LEAST,
        MOST,
        LIVE,
        BURST,
        GENERATIONS,
        HANDED,
        BATCH,
        READS,
        REALLOC,
        CALLOC,
        ALIGNED,
        NR_NUMBERS
};

static inline unsigned int chosen(enum choice choice)
{
        return choices[choice].chosen;
}

static inline uint64_t number(enum number which)
{
        return numbers[which].value;
}

#endif
