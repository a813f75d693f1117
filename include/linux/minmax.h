/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Comparisons that evaluate each argument once. min and max do not take arguments of different
 * types, as in the kernel.
 */
#ifndef KMEM_LINUX_MINMAX_H
#define KMEM_LINUX_MINMAX_H

#include <linux/compiler.h>

#define KMEM_CHOOSE(a, b, less, type_a, type_b)                                                    \
        ({                                                                                         \
                type_a kmem_a_ = (a);                                                              \
                type_b kmem_b_ = (b);                                                              \
                                                                                                   \
                kmem_a_ less kmem_b_ ? kmem_a_ : kmem_b_;                                          \
        })

#define KMEM_CHOOSE_SAME(a, b, less)                                                               \
        ({                                                                                         \
                __typeof__(a) kmem_x_ = (a);                                                       \
                __typeof__(b) kmem_y_ = (b);                                                       \
                                                                                                   \
                (void)(sizeof(&kmem_x_ == &kmem_y_)); /* warns if the types differ */              \
                kmem_x_ less kmem_y_ ? kmem_x_ : kmem_y_;                                          \
        })

#define min(a, b) KMEM_CHOOSE_SAME((a) + 0, (b) + 0, <)
#define max(a, b) KMEM_CHOOSE_SAME((a) + 0, (b) + 0, >)
#define min3(a, b, c) min(min(a, b), c)
#define max3(a, b, c) max(max(a, b), c)
#define min_t(type, a, b) KMEM_CHOOSE(a, b, <, type, type)
#define max_t(type, a, b) KMEM_CHOOSE(a, b, >, type, type)
#define clamp(value, low, high) min(max(value, low), high)
#define clamp_t(type, value, low, high) min_t(type, max_t(type, value, low), high)
#define clamp_val(value, low, high) clamp_t(__typeof__(value), value, low, high)
#define min_not_zero(a, b)                                                                         \
        ({                                                                                         \
                __typeof__(a) kmem_p_ = (a);                                                       \
                __typeof__(b) kmem_q_ = (b);                                                       \
                                                                                                   \
                kmem_p_ == 0 ? kmem_q_ : (kmem_q_ == 0 ? kmem_p_ : min(kmem_p_, kmem_q_));         \
        })

#define swap(a, b)                                                                                 \
        do {                                                                                       \
                __typeof__(a) kmem_old_ = (a);                                                     \
                                                                                                   \
                (a) = (b);                                                                         \
                (b) = kmem_old_;                                                                   \
        } while (0)

#endif
