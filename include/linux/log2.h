/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Logarithms and powers of two. */
#ifndef KMEM_LINUX_LOG2_H
#define KMEM_LINUX_LOG2_H

#include <linux/bitops.h>

/* Constant for constants, so that it can size arrays. */
#define ilog2(value) (63 - __builtin_clzll((unsigned long long)(value)))

static inline bool is_power_of_2(unsigned long value)
{
        return value && !(value & (value - 1));
}

static inline int __order_base_2(unsigned long value)
{
        return value > 1 ? fls_long(value - 1) : 0;
}

static inline unsigned long __roundup_pow_of_two(unsigned long value)
{
        return 1ul << __order_base_2(value);
}

static inline unsigned long __rounddown_pow_of_two(unsigned long value)
{
        return 1ul << (fls_long(value) - 1);
}

/* The least order with 1 << order >= value. These are constant for constants as well. */
#define order_base_2(value)                                                                        \
        (__builtin_constant_p(value)                                                               \
                 ? ((unsigned long)(value) <= 1 ? 0 : ilog2((unsigned long)(value)-1) + 1)         \
                 : __order_base_2(value))
#define roundup_pow_of_two(value)                                                                  \
        (__builtin_constant_p(value) ? 1ul << order_base_2(value) : __roundup_pow_of_two(value))
#define rounddown_pow_of_two(value)                                                                \
        (__builtin_constant_p(value) ? 1ul << ilog2((unsigned long)(value))                        \
                                     : __rounddown_pow_of_two(value))

#endif
