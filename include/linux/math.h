/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef KMEM_LINUX_MATH_H
#define KMEM_LINUX_MATH_H

#include <linux/compiler.h>
#include <linux/types.h>

/* To multiples of a power of two. */
#define round_down(value, unit) ((value) & ~((__typeof__(value))(unit)-1))
#define round_up(value, unit) round_down((value) + (__typeof__(value))(unit)-1, unit)
#define ALIGN(value, unit) round_up(value, unit)
#define ALIGN_DOWN(value, unit) round_down(value, unit)
#define PTR_ALIGN(pointer, unit) ((__typeof__(pointer))ALIGN((unsigned long)(pointer), (unit)))
#define IS_ALIGNED(value, unit) (((value) & ((__typeof__(value))(unit)-1)) == 0)

/* To multiples of anything. */
#define DIV_ROUND_UP(value, unit) (((value) + (unit)-1) / (unit))
#define DIV_ROUND_CLOSEST(value, unit) (((value) + (unit) / 2) / (unit))
#define rounddown(value, unit) ((value) - (value) % (unit))
#define roundup(value, unit) (DIV_ROUND_UP(value, unit) * (unit))

#define do_div(value, divisor)                                                                     \
        ({                                                                                         \
                u32 kmem_rest_ = (u32)((value) % (divisor));                                       \
                                                                                                   \
                (value) /= (divisor);                                                              \
                kmem_rest_;                                                                        \
        })

#endif
