/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Atomic counters. Orders as in the kernel: read and set and operations without result are relaxed,
 * operations that return something are full barriers, suffixes say otherwise. In a file that
 * includes <stdatomic.h> too, in either order, atomic_fetch_add and its kind are C's macros, and the
 * kernel's functions have their names in brackets: (atomic_fetch_add)(1, &count).
 */
#ifndef KMEM_LINUX_ATOMIC_H
#define KMEM_LINUX_ATOMIC_H

#include <linux/compiler.h>
#include <linux/types.h>

#define ATOMIC_INIT(value)                                                                         \
        {                                                                                          \
                (value)                                                                            \
        }
#define ATOMIC64_INIT(value)                                                                       \
        {                                                                                          \
                (value)                                                                            \
        }
#define ATOMIC_LONG_INIT(value)                                                                    \
        {                                                                                          \
                (value)                                                                            \
        }

#define KMEM_DEFINE_ATOMIC_OPERATION(prefix, type, number, name, fetch)                            \
        static inline void prefix##_##name(number value, type *counter)                            \
        {                                                                                          \
                fetch(&counter->counter, value, __ATOMIC_RELAXED);                                 \
        }                                                                                          \
        /* In brackets, a name is not <stdatomic.h>'s macro. */                                    \
        static inline number(prefix##_fetch_##name)(number value, type * counter)                  \
        {                                                                                          \
                return fetch(&counter->counter, value, __ATOMIC_SEQ_CST);                          \
        }

/* A change by @change, and whether the result is 0. */
#define KMEM_DEFINE_ATOMIC_CHANGE(prefix, type, number, name, change)                              \
        static inline void prefix##_##name(type *counter)                                          \
        {                                                                                          \
                __atomic_fetch_add(&counter->counter, change, __ATOMIC_RELAXED);                   \
        }                                                                                          \
        static inline number prefix##_##name##_return(type *counter)                               \
        {                                                                                          \
                return __atomic_add_fetch(&counter->counter, change, __ATOMIC_SEQ_CST);            \
        }                                                                                          \
        static inline bool prefix##_##name##_and_test(type *counter)                               \
        {                                                                                          \
                return prefix##_##name##_return(counter) == 0;                                     \
        }

#define KMEM_DEFINE_ATOMIC_ACCESS(prefix, type, number)                                            \
        static inline number prefix##_read(const type *counter)                                    \
        {                                                                                          \
                return __atomic_load_n(&counter->counter, __ATOMIC_RELAXED);                       \
        }                                                                                          \
        static inline number prefix##_read_acquire(const type *counter)                            \
        {                                                                                          \
                return __atomic_load_n(&counter->counter, __ATOMIC_ACQUIRE);                       \
        }                                                                                          \
        static inline void prefix##_set(type *counter, number value)                               \
        {                                                                                          \
                __atomic_store_n(&counter->counter, value, __ATOMIC_RELAXED);                      \
        }                                                                                          \
        static inline void prefix##_set_release(type *counter, number value)                       \
        {                                                                                          \
                __atomic_store_n(&counter->counter, value, __ATOMIC_RELEASE);                      \
        }                                                                                          \
        static inline number prefix##_xchg(type *counter, number value)                            \
        {                                                                                          \
                return __atomic_exchange_n(&counter->counter, value, __ATOMIC_SEQ_CST);            \
        }                                                                                          \
        static inline number prefix##_cmpxchg(type *counter, number expected, number value)        \
        {                                                                                          \
                __typeof__(counter->counter) old = expected;                                       \
                                                                                                   \
                __atomic_compare_exchange_n(&counter->counter, &old, value, false,                 \
                                            __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);                   \
                return old;                                                                        \
        }                                                                                          \
        static inline bool prefix##_try_cmpxchg(type *counter, number *expected, number value)     \
        {                                                                                          \
                __typeof__(counter->counter) old = *expected;                                      \
                                                                                                   \
                if (__atomic_compare_exchange_n(&counter->counter, &old, value, false,             \
                                                __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))               \
                        return true;                                                               \
                *expected = old;                                                                   \
                return false;                                                                      \
        }                                                                                          \
        static inline number prefix##_add_return(number value, type *counter)                      \
        {                                                                                          \
                return __atomic_add_fetch(&counter->counter, value, __ATOMIC_SEQ_CST);             \
        }                                                                                          \
        static inline number prefix##_sub_return(number value, type *counter)                      \
        {                                                                                          \
                return __atomic_sub_fetch(&counter->counter, value, __ATOMIC_SEQ_CST);             \
        }                                                                                          \
        static inline bool prefix##_sub_and_test(number value, type *counter)                      \
        {                                                                                          \
                return prefix##_sub_return(value, counter) == 0;                                   \
        }                                                                                          \
        /* Adds unless the value is @unless; returns the value before. */                          \
        static inline number prefix##_fetch_add_unless(type *counter, number value, number unless) \
        {                                                                                          \
                number old = prefix##_read(counter);                                               \
                                                                                                   \
                while (old != unless && !prefix##_try_cmpxchg(counter, &old, old + value))         \
                        ;                                                                          \
                return old;                                                                        \
        }                                                                                          \
        static inline bool prefix##_add_unless(type *counter, number value, number unless)         \
        {                                                                                          \
                return prefix##_fetch_add_unless(counter, value, unless) != unless;                \
        }                                                                                          \
        static inline bool prefix##_inc_not_zero(type *counter)                                    \
        {                                                                                          \
                return prefix##_add_unless(counter, 1, 0);                                         \
        }

#define KMEM_DEFINE_ATOMIC(prefix, type, number)                                                   \
        KMEM_DEFINE_ATOMIC_ACCESS(prefix, type, number)                                            \
        KMEM_DEFINE_ATOMIC_CHANGE(prefix, type, number, inc, 1)                                    \
        KMEM_DEFINE_ATOMIC_CHANGE(prefix, type, number, dec, -1)                                   \
        KMEM_DEFINE_ATOMIC_OPERATION(prefix, type, number, add, __atomic_fetch_add)                \
        KMEM_DEFINE_ATOMIC_OPERATION(prefix, type, number, sub, __atomic_fetch_sub)                \
        KMEM_DEFINE_ATOMIC_OPERATION(prefix, type, number, and, __atomic_fetch_and)                \
        KMEM_DEFINE_ATOMIC_OPERATION(prefix, type, number, or, __atomic_fetch_or)                  \
        KMEM_DEFINE_ATOMIC_OPERATION(prefix, type, number, xor, __atomic_fetch_xor)

KMEM_DEFINE_ATOMIC(atomic, atomic_t, int)
KMEM_DEFINE_ATOMIC(atomic64, atomic64_t, s64)
KMEM_DEFINE_ATOMIC(atomic_long, atomic_long_t, long) /* as wide as s64, which is long long */

#define xchg(pointer, value) __atomic_exchange_n(pointer, value, __ATOMIC_SEQ_CST)
#define cmpxchg(pointer, old, value)                                                               \
        ({                                                                                         \
                __typeof__(*(pointer)) kmem_expected_ = (old);                                     \
                                                                                                   \
                __atomic_compare_exchange_n(pointer, &kmem_expected_, value, false,                \
                                            __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);                   \
                kmem_expected_;                                                                    \
        })
#define try_cmpxchg(pointer, expected, value)                                                      \
        __atomic_compare_exchange_n(pointer, expected, value, false, __ATOMIC_SEQ_CST,             \
                                    __ATOMIC_RELAXED)

#endif
