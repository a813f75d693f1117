/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Sizes that are computed of numbers which somebody else wrote: of a file, or of an argument.
 */
#ifndef KMEM_TOOLS_TRACE_CHECKED_H
#define KMEM_TOOLS_TRACE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* Adds @count things of @bytes each to *@sum; false, with *@sum as it was, beyond 64 bits. */
static inline bool checked_add(uint64_t *sum, uint64_t count, uint64_t bytes)
{
        uint64_t all;

        if (__builtin_mul_overflow(count, bytes, &all) || __builtin_add_overflow(all, *sum, &all))
                return false;
        *sum = all;
        return true;
}

#endif
