/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef KMEM_LINUX_LOG2_H
#define KMEM_LINUX_LOG2_H

#include <linux/bitops.h>

/* Constant for constants, so that it can size arrays. */
#define ilog2(value) (63 - __builtin_clzll((unsigned long long)(value)))

static inline bool is_power_of_2(unsigned long value)
{
        return value && !(value & (value - 1));
}

static inline unsigned long roundup_pow_of_two(unsigned long value)
{
        return value <= 1 ? 1 : 1ul << fls_long(value - 1);
}

static inline unsigned long rounddown_pow_of_two(unsigned long value)
{
        return 1ul << (fls_long(value) - 1);
}

/* The least order with 1 << order >= value. */
static inline int order_base_2(unsigned long value)
{
        return value > 1 ? fls_long(value - 1) : 0;
}

#endif
