/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sizes that saturate instead of wrapping: an allocation of SIZE_MAX bytes fails. */
#ifndef KMEM_LINUX_OVERFLOW_H
#define KMEM_LINUX_OVERFLOW_H

#include <linux/compiler.h>
#include <linux/types.h>

#define check_add_overflow(a, b, result) __builtin_add_overflow(a, b, result)
#define check_sub_overflow(a, b, result) __builtin_sub_overflow(a, b, result)
#define check_mul_overflow(a, b, result) __builtin_mul_overflow(a, b, result)

static inline size_t size_mul(size_t a, size_t b)
{
        size_t bytes;

        return __builtin_mul_overflow(a, b, &bytes) ? SIZE_MAX : bytes;
}

static inline size_t size_add(size_t a, size_t b)
{
        size_t bytes;

        return __builtin_add_overflow(a, b, &bytes) ? SIZE_MAX : bytes;
}

/* SIZE_MAX stays SIZE_MAX: it is a size that was too large before. */
static inline size_t size_sub(size_t a, size_t b)
{
        size_t bytes;

        if (a == SIZE_MAX || b == SIZE_MAX || __builtin_sub_overflow(a, b, &bytes))
                return SIZE_MAX;
        return bytes;
}

#define array_size(count, bytes) size_mul(count, bytes)
#define array3_size(a, b, c) size_mul(size_mul(a, b), c)
#define flex_array_size(pointer, member, count) size_mul(count, sizeof(*(pointer)->member))
/* A struct that ends in an array of @count members. */
#define struct_size(pointer, member, count)                                                        \
        size_add(sizeof(*(pointer)), flex_array_size(pointer, member, count))
#define struct_size_t(type, member, count) struct_size((type *)NULL, member, count)

#endif
