/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Measures how fast the simulated machine goes: events (an object allocated or freed) a second of
 * CPU time.
 *
 *   simulator CPUS [OPTIONS]      OPTIONS as in KMEM_OPTIONS
 *
 * random: 65,536 places; each event fills or empties a place on a random CPU, so objects wander.
 * bursts: CPUs take turns in allocating 32 objects and freeing them. Best of five rounds each.
 */
#include "kmem.h"
#include "simulator/simulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PLACES = 1 << 16, BURST = 32, EVENTS = 1 << 22, ROUNDS = 5, OBJECT_BYTES = 256 };

static struct kmem_cache *cache;
static unsigned int cpus;
static uint64_t random_state = 88172645463325252u;

static uint64_t random_step(void)
{
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        return random_state;
}

static void run_random(void)
{
        static void *places[PLACES];

        for (unsigned int event = 0; event < EVENTS; event++) {
                uint64_t bits = random_step();
                void **place = &places[bits % PLACES];

                sim_set_cpu((unsigned int)(((bits >> 32) * cpus) >> 32));
                sim_time_advance(100);
                if (*place) {
                        kmem_cache_free(cache, *place);
                        *place = NULL;
                } else {
                        *place = kmem_cache_alloc(cache, 0);
                }
        }
}

static void run_bursts(void)
{
        void *objects[BURST];

        for (unsigned int event = 0; event < EVENTS; event += 2 * BURST) {
                sim_set_cpu(event / (2 * BURST) % cpus);
                sim_time_advance(2 * BURST * 100);
                for (unsigned int i = 0; i < BURST; i++)
                        objects[i] = kmem_cache_alloc(cache, 0);
                for (unsigned int i = 0; i < BURST; i++)
                        kmem_cache_free(cache, objects[i]);
        }
}

static void measure(const char *name, void (*run)(void))
{
        double best = 0;

        for (int round = 0; round < ROUNDS; round++) {
                struct timespec from;
                struct timespec to;
                double seconds;

                clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
                run();
                clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
                seconds = (double)(to.tv_sec - from.tv_sec) +
                          (double)(to.tv_nsec - from.tv_nsec) / 1e9;
                if (EVENTS / seconds > best)
                        best = EVENTS / seconds;
        }
        printf("%s: %.1f million events a second\n", name, best / 1e6);
}

int main(int argc, char **argv)
{
        struct sim_machine machine = {.options = argc > 2 ? argv[2] : NULL};
        long wanted = argc > 1 ? strtol(argv[1], NULL, 10) : 0;

        if (argc > 3 || wanted < 1 || wanted > (long)SIM_CPUS_MAX) {
                fprintf(stderr, "usage: %s CPUS [OPTIONS]; expected 1 to %u CPUs\n", argv[0],
                        SIM_CPUS_MAX);
                return 2;
        }
        cpus = (unsigned int)wanted;
        machine.cpus_online = cpus;
        if (sim_start(&machine))
                return 1;
        cache = kmem_cache_create("events", OBJECT_BYTES, 0, 0, NULL);
        if (!cache)
                return 1;
        measure("random", run_random);
        measure("bursts", run_bursts);
        return 0;
}
