/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A small xorshift generator, so that a failing random test fails again at its next run. */
#ifndef KMEM_TESTS_RANDOM_H
#define KMEM_TESTS_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct random {
        uint64_t state; /* not 0 */
};

static inline uint64_t random_next(struct random *random)
{
        uint64_t x = random->state;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        random->state = x;
        return x * 0x2545f4914f6cdd1du;
}

/* 0 .. limit - 1 */
static inline size_t random_below(struct random *random, size_t limit)
{
        return (size_t)(random_next(random) >> 16) % limit;
}

#endif
