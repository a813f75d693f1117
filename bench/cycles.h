/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The common part of the programs that time operations: the counter of cycles, and the rounds that
 * the kmem command asks for.
 *
 * The program prints "hz" and the rate of the counter. For each line of standard input it runs a
 * round of its tests, prints "NAME CYCLES" for each, and "done". So a command can take the rounds
 * of several programs in turn. The programs end with their input.
 */
#ifndef KMEM_BENCH_CYCLES_H
#define KMEM_BENCH_CYCLES_H

#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* Makes the compiler believe that the object is used. */
static inline void keep(void *object)
{
        __asm__ volatile("" : : "r"(object) : "memory");
}

static inline uint64_t now_ns(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Reads the time stamp counter when all earlier instructions have finished, before later ones. */
static inline uint64_t now_cycles(void)
{
#if defined(__x86_64__)
        uint32_t low, high;

        __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
        return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
        uint64_t ticks;

        __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks) : : "memory");
        return ticks;
#else
#error "no cycle counter for this processor"
#endif
}

/* Counter ticks in a second, over a tenth of a second of CLOCK_MONOTONIC. */
static inline double cycles_per_second(void)
{
        uint64_t ns = now_ns();
        uint64_t cycles = now_cycles();
        uint64_t end_ns;

        do
                end_ns = now_ns();
        while (end_ns - ns < 100000000u);
        cycles = now_cycles() - cycles;
        return (double)cycles * 1e9 / (double)(end_ns - ns);
}

static inline void run_rounds(void (*run_round)(void))
{
        char command;

        dprintf(STDOUT_FILENO, "hz %.0f\n", cycles_per_second());
        while (read(STDIN_FILENO, &command, 1) == 1) {
                if (command != '\n')
                        continue;
                run_round();
                dprintf(STDOUT_FILENO, "done\n");
        }
}

#endif
