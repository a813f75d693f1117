/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of lang/atomic.h: each access is a scheduling point and then a plain access, since the
 * explorer's threads never run at once. Loads and stores go through the explorer's memory; all
 * others are locked instructions. Orders have no meaning: x86 has no weaker ones. Arguments are
 * evaluated once.
 */
#ifndef KMEM_LANG_ATOMIC_H
#define KMEM_LANG_ATOMIC_H

#include "machine/state.h"
#include "place.h"

#define explore_load(name, pointer)                                                                \
        ({                                                                                         \
                __typeof__(&*(pointer)) explore_at_ = (pointer);                                   \
                const struct place *explore_place_ = PLACE(name "(" #pointer ")");                 \
                                                                                                   \
                explore_point(explore_place_, explore_at_, ACCESS_READ);                           \
                explore_see(explore_place_, explore_at_, sizeof(*explore_at_));                    \
                *explore_at_;                                                                      \
        })
#define load_relaxed(pointer) explore_load("load_relaxed", pointer)
#define load_folded(pointer) (*(pointer))
#define load_acquire(pointer) explore_load("load_acquire", pointer)

#define explore_store(name, pointer, value)                                                        \
        ({                                                                                         \
                __typeof__(&*(pointer)) explore_at_ = (pointer);                                   \
                __typeof__(*explore_at_) explore_new_ = (value);                                   \
                const struct place *explore_place_ = PLACE(name "(" #pointer ")");                 \
                                                                                                   \
                explore_point(explore_place_, explore_at_, ACCESS_WRITE);                          \
                explore_store_bytes(explore_place_, explore_at_, &explore_new_,                    \
                                    sizeof(explore_new_));                                         \
                (void)0;                                                                           \
        })
#define store_relaxed(pointer, value) explore_store("store_relaxed", pointer, value)
#define store_release(pointer, value) explore_store("store_release", pointer, value)

static inline void explore_locked(const struct place *place, volatile void *address, size_t bytes)
{
        explore_point(place, address, ACCESS_LOCKED);
        explore_see(place, address, bytes);
}

/* The word becomes @result, which may name its value before, explore_old_; the value is @returned. */
#define explore_change(name, pointer, value, result, returned)                                     \
        ({                                                                                         \
                __typeof__(&*(pointer)) explore_at_ = (pointer);                                   \
                __typeof__(*explore_at_) explore_value_ = (__typeof__(*explore_at_))(value);       \
                __typeof__(*explore_at_) explore_old_;                                             \
                                                                                                   \
                explore_locked(PLACE(name "(" #pointer ")"), explore_at_, sizeof(*explore_at_));   \
                explore_old_ = *explore_at_;                                                       \
                *explore_at_ = (__typeof__(*explore_at_))(result);                                 \
                (returned);                                                                        \
        })
#define exchange_acquire(pointer, value)                                                           \
        explore_change("exchange", pointer, value, explore_value_, explore_old_)
#define exchange_release(pointer, value) exchange_acquire(pointer, value)
#define add_relaxed(pointer, value)                                                                \
        explore_change("add", pointer, value, explore_old_ + explore_value_, *explore_at_)
#define sub_relaxed(pointer, value)                                                                \
        explore_change("sub", pointer, value, explore_old_ - explore_value_, *explore_at_)
#define or_relaxed(pointer, value)                                                                 \
        explore_change("or", pointer, value, explore_old_ | explore_value_, explore_old_)
#define and_relaxed(pointer, value)                                                                \
        explore_change("and", pointer, value, explore_old_ &explore_value_, explore_old_)

#define add_owned(pointer, value) store_relaxed(pointer, load_relaxed(pointer) + (value))

#define compare_swap(pointer, expected, desired)                                                   \
        ({                                                                                         \
                __typeof__(&*(pointer)) explore_at_ = (pointer);                                   \
                __typeof__(expected) explore_expected_ = (expected);                               \
                __typeof__(*explore_at_) explore_new_ = (desired);                                 \
                bool explore_equal_;                                                               \
                                                                                                   \
                explore_locked(PLACE("compare_swap(" #pointer ")"), explore_at_,                   \
                               sizeof(*explore_at_));                                              \
                explore_equal_ = *explore_at_ == *explore_expected_;                               \
                if (explore_equal_)                                                                \
                        *explore_at_ = explore_new_;                                               \
                else                                                                               \
                        *explore_expected_ = *explore_at_;                                         \
                explore_equal_;                                                                    \
        })
#define compare_swap_acquire(pointer, expected, desired) compare_swap(pointer, expected, desired)
#define compare_swap_release(pointer, expected, desired) compare_swap(pointer, expected, desired)

/* The few accesses with the strongest order are written without names. */
#define __atomic_thread_fence(order) explore_fence(PLACE("fence"))
#define __atomic_add_fetch(pointer, value, order) add_relaxed(pointer, value)
#define __atomic_exchange_n(pointer, value, order) exchange_acquire(pointer, value)
#define __atomic_store_n(pointer, value, order) ((void)exchange_acquire(pointer, value))

#define cpu_relax() explore_yield(PLACE("cpu_relax()"))

#endif
