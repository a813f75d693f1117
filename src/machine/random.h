/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Random numbers for decisions that no caller may bet on. They repeat in every run with equal
 * calls.
 */
#ifndef KMEM_MACHINE_RANDOM_H
#define KMEM_MACHINE_RANDOM_H

/* In angle brackets, so that the simulator's is found where that comes first. */
#include <lang/atomic.h>

#include <stdint.h>

/*
 * The next number of a sequence (Knuth's multiplier for 64 bits; the low bits repeat soon, so it
 * returns the upper half). *state may start anywhere. Two callers that race may get equal numbers.
 */
static inline uint32_t random_next(uint64_t *state)
{
        uint64_t next = load_relaxed(state) * 6364136223846793005ull + 1442695040888963407ull;

        store_relaxed(state, next);
        return (uint32_t)(next >> 32);
}

#endif
