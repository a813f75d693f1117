/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Rounding and division. */
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

/* To multiples of anything. DIV_ROUND_UP is constant for constants; the others evaluate once. */
#define DIV_ROUND_UP(value, unit) (((value) + (unit)-1) / (unit))
#define rounddown(value, unit)                                                                     \
        ({                                                                                         \
                __typeof__(value) kmem_value_ = (value);                                           \
                                                                                                   \
                kmem_value_ - kmem_value_ % (unit);                                                \
        })
#undef roundup /* of <sys/param.h> */
#define roundup(value, unit)                                                                       \
        ({                                                                                         \
                __typeof__(unit) kmem_unit_ = (unit);                                              \
                                                                                                   \
                ((value) + (kmem_unit_ - 1)) / kmem_unit_ *kmem_unit_;                             \
        })
/* Halves away from 0. Signs count only if both types are signed: otherwise -1 is above 0. */
#define DIV_ROUND_CLOSEST(value, unit)                                                             \
        ({                                                                                         \
                __typeof__(value) kmem_value_ = (value);                                           \
                __typeof__(unit) kmem_unit_ = (unit);                                              \
                                                                                                   \
                ((__typeof__(value))-1 > 0 || (__typeof__(unit))-1 > 0 ||                          \
                 (kmem_value_ > 0) == (kmem_unit_ > 0))                                            \
                        ? (kmem_value_ + kmem_unit_ / 2) / kmem_unit_                              \
                        : (kmem_value_ - kmem_unit_ / 2) / kmem_unit_;                             \
        })

#define do_div(value, divisor)                                                                     \
        ({                                                                                         \
                u32 kmem_divisor_ = (divisor);                                                     \
                u32 kmem_rest_ = (u32)((value) % kmem_divisor_);                                   \
                                                                                                   \
                (value) /= kmem_divisor_;                                                          \
                kmem_rest_;                                                                        \
        })

#endif
