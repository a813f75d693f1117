/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sizes that are computed from numbers of a file or an argument, which may be wrong. */
#ifndef KMEM_TOOLS_TRACE_CHECKED_H
#define KMEM_TOOLS_TRACE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* Adds @count times @bytes to *@sum. False beyond 64 bits, and then *@sum is unchanged. */
static inline bool checked_add(uint64_t *sum, uint64_t count, uint64_t bytes)
{
        uint64_t all;

        if (__builtin_mul_overflow(count, bytes, &all) || __builtin_add_overflow(all, *sum, &all))
                return false;
        *sum = all;
        return true;
}

#endif
