/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * line: prints how many nanoseconds a cache line takes from a CPU to another and back, halved: the
 * least of some batches, between the first and the last CPU that the process may use. A virtual
 * machine's CPUs move: within minutes the way may become four times as long, when the host runs them
 * on cores that no longer share a cache.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cycles.h"

enum { BATCHES = 5, TURNS = 4000 };

/* The number of the turn: odd ones are the partner's. Alone on its line, and on the line beside it. */
static struct {
        _Alignas(128) _Atomic uint32_t turn;
} ball;

/* On a CPU together, each turn would take a slice of the scheduler's. */
static void use_cpu(unsigned int cpu)
{
        cpu_set_t only;

        CPU_ZERO(&only);
        CPU_SET(cpu, &only);
        if (sched_setaffinity(0, sizeof(only), &only) == 0)
                return;
        fprintf(stderr, "line: sched_setaffinity to CPU %u: %s\n", cpu, strerror(errno));
        exit(1);
}

/* Waits for every second turn from @first on, and passes the ball on. */
static void play(uint32_t first, uint32_t turns)
{
        for (uint32_t turn = first; turn < first + 2 * turns; turn += 2) {
                while (atomic_load_explicit(&ball.turn, memory_order_acquire) != turn)
                        ;
                atomic_store_explicit(&ball.turn, turn + 1, memory_order_release);
        }
}

static void *partner(void *cpu)
{
        use_cpu(*(const unsigned int *)cpu);
        play(1, BATCHES * TURNS);
        return NULL;
}

int main(void)
{
        unsigned int first = CPU_SETSIZE;
        uint64_t least = UINT64_MAX;
        unsigned int last = 0;
        pthread_t thread;
        cpu_set_t usable;
        int error;

        sched_getaffinity(0, sizeof(usable), &usable);
        for (unsigned int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
                if (!CPU_ISSET(cpu, &usable))
                        continue;
                if (first == CPU_SETSIZE)
                        first = cpu;
                last = cpu;
        }
        if (first == last) {
                fprintf(stderr, "line: the process may use a single CPU; expected two or more\n");
                return 1;
        }
        error = pthread_create(&thread, NULL, partner, &last);
        if (error) {
                fprintf(stderr, "line: pthread_create: %s\n", strerror(error));
                return 1;
        }
        use_cpu(first);
        for (uint32_t batch = 0; batch < BATCHES; batch++) {
                uint64_t start = now_ns();

                play(2 * batch * TURNS, TURNS);
                if (now_ns() - start < least)
                        least = now_ns() - start;
        }
        pthread_join(thread, NULL);
        printf("%.1f\n", (double)least / (2.0 * TURNS));
        return 0;
}
