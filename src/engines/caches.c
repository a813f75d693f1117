/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The table of all caches by index, and which indexes are in use (caches.h). */
#include "engines/caches.h"

struct lock cache_mutex;
KMEM_SPARSE struct kmem_cache *caches_by_index[CACHES_MAX];

/*
 * A bit for each index that a cache has, or the hidden pair of a closed cache; under cache_mutex.
 */
static uint64_t index_taken[CACHES_MAX / 64];

uint32_t cache_index_take(void)
{
        for (uint32_t word = 0; word < array_size(index_taken); word++) {
                uint64_t left = ~index_taken[word];

                if (word == 0)
                        left &= ~(uint64_t)1; /* 0 is no index */
                if (left) {
                        index_taken[word] |= left & -left;
                        return word * 64 + (uint32_t)__builtin_ctzll(left);
                }
        }
        return 0;
}

void cache_index_give(uint32_t index)
{
        bit_clear(index_taken, index);
}
