/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The locks of memory pools, found by the pool's address. */
#include "heap/pool_locks.h"

#include <stdint.h>

enum { LOCK_BITS = 4 };

static struct lock pool_locks[1 << LOCK_BITS];

struct lock *pool_lock(const void *pool)
{
        /* The top bits of a multiplication by 2^64 / golden ratio: pools often lie a page apart. */
        return &pool_locks[(uint64_t)(uintptr_t)pool * 0x9e3779b97f4a7c15 >> (64 - LOCK_BITS)];
}

void pools_each_lock(void (*change)(struct lock *lock))
{
        for (unsigned int i = 0; i < 1 << LOCK_BITS; i++)
                change(&pool_locks[i]);
}
