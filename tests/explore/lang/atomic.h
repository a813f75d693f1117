/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of lang/atomic.h: each access is a scheduling point and then a plain access, since the
 * explorer's threads never run at once. All accesses go through the explorer's memory. Under TSO all but loads and
 * stores are locked instructions, and orders have no meaning. Arguments are evaluated once.
 */
#ifndef KMEM_LANG_ATOMIC_H
#define KMEM_LANG_ATOMIC_H

#include "machine/state.h"
#include "place.h"

#define explore_load(name, pointer, order)                                                         \
        ({                                                                                         \
                __typeof__(&*(pointer)) explore_at_ = (pointer);                                   \
                __typeof__(({ *explore_at_; })) explore_got_;                                      \
                const struct place *explore_place_ = THIS_PLACE(name "(" #pointer ")");            \
                                                                                                   \
                explore_point(explore_place_, explore_at_, ACCESS_READ);                           \
                explore_load_bytes(explore_place_, explore_at_, &explore_got_,                     \
                                   sizeof(explore_got_), order);                                   \
                explore_got_;                                                                      \
        })
#define load_relaxed(pointer) explore_load("load_relaxed", pointer, __ATOMIC_RELAXED)
#define load_folded(pointer)                                                                       \
        ({                                                                                         \
                __typeof__(({ *(pointer); })) explore_got_;                                        \
                                                                                                   \
                explore_load_folded(pointer, &explore_got_, sizeof(explore_got_));                 \
                explore_got_;                                                                      \
        })
#define load_acquire(pointer) explore_load("load_acquire", pointer, __ATOMIC_ACQUIRE)

#define explore_store(name, pointer, value, order)                                                 \
        ({                                                                                         \
                __typeof__(&*(pointer)) explore_at_ = (pointer);                                   \
                __typeof__(*explore_at_) explore_new_ = (value);                                   \
                const struct place *explore_place_ = THIS_PLACE(name "(" #pointer ")");            \
                                                                                                   \
                explore_point(explore_place_, explore_at_, ACCESS_WRITE);                          \
                explore_store_bytes(explore_place_, explore_at_, &explore_new_,                    \
                                    sizeof(explore_new_), order);                                  \
                (void)0;                                                                           \
        })
#define store_relaxed(pointer, value)                                                              \
        explore_store("store_relaxed", pointer, value, __ATOMIC_RELAXED)
#define store_release(pointer, value)                                                              \
        explore_store("store_release", pointer, value, __ATOMIC_RELEASE)

/* In front of a read-modify-write. If it changes the word, explore_changed follows. */
static inline void explore_locked(const struct place *place, volatile void *address, size_t bytes,
                                  int order)
{
        explore_point(place, address, ACCESS_LOCKED);
        explore_see_newest(place, address, bytes, order);
}

/* The word becomes @result, which may name its value before, explore_old_; the value is @returned. */
#define explore_change(name, pointer, value, result, returned, order)                              \
        ({                                                                                         \
                __typeof__(&*(pointer)) explore_at_ = (pointer);                                   \
                __typeof__(*explore_at_) explore_value_ = (__typeof__(*explore_at_))(value);       \
                __typeof__(*explore_at_) explore_old_;                                             \
                const struct place *explore_place_ = THIS_PLACE(name "(" #pointer ")");            \
                                                                                                   \
                explore_locked(explore_place_, explore_at_, sizeof(*explore_at_), order);          \
                explore_old_ = *explore_at_;                                                       \
                *explore_at_ = (__typeof__(*explore_at_))(result);                                 \
                explore_changed(explore_place_, explore_at_, sizeof(*explore_at_), order);         \
                (returned);                                                                        \
        })
#define explore_exchange(name, pointer, value, order)                                              \
        explore_change(name, pointer, value, explore_value_, explore_old_, order)
#define explore_add(name, pointer, value, order)                                                   \
        explore_change(name, pointer, value, explore_old_ + explore_value_, *explore_at_, order)
#define exchange_acquire(pointer, value)                                                           \
        explore_exchange("exchange_acquire", pointer, value, __ATOMIC_ACQUIRE)
#define exchange_release(pointer, value)                                                           \
        explore_exchange("exchange_release", pointer, value, __ATOMIC_RELEASE)
#define add_relaxed(pointer, value) explore_add("add_relaxed", pointer, value, __ATOMIC_RELAXED)
#define sub_relaxed(pointer, value)                                                                \
        explore_change("sub_relaxed", pointer, value, explore_old_ - explore_value_, *explore_at_, \
                       __ATOMIC_RELAXED)
#define or_relaxed(pointer, value)                                                                 \
        explore_change("or_relaxed", pointer, value, explore_old_ | explore_value_, explore_old_,  \
                       __ATOMIC_RELAXED)
#define and_relaxed(pointer, value)                                                                \
        explore_change("and_relaxed", pointer, value, explore_old_ &explore_value_, explore_old_,  \
                       __ATOMIC_RELAXED)

#define add_owned(pointer, value) store_relaxed(pointer, load_relaxed(pointer) + (value))

#define explore_swap(name, pointer, expected, desired, success, failure)                           \
        ({                                                                                         \
                __typeof__(&*(pointer)) explore_at_ = (pointer);                                   \
                __typeof__(expected) explore_expected_ = (expected);                               \
                __typeof__(*explore_at_) explore_new_ = (desired);                                 \
                const struct place *explore_place_ = THIS_PLACE(name "(" #pointer ")");            \
                bool explore_equal_;                                                               \
                                                                                                   \
                explore_point(explore_place_, explore_at_, ACCESS_LOCKED);                         \
                explore_equal_ = *explore_at_ == *explore_expected_;                               \
                explore_see_newest(explore_place_, explore_at_, sizeof(*explore_at_),              \
                                   explore_equal_ ? success : failure);                            \
                explore_equal_ = *explore_at_ == *explore_expected_;                               \
                if (explore_equal_) {                                                              \
                        *explore_at_ = explore_new_;                                               \
                        explore_changed(explore_place_, explore_at_, sizeof(*explore_at_),         \
                                        success);                                                  \
                } else {                                                                           \
                        *explore_expected_ = *explore_at_;                                         \
                }                                                                                  \
                explore_equal_;                                                                    \
        })
#define compare_swap_acquire(pointer, expected, desired)                                           \
        explore_swap("compare_swap_acquire", pointer, expected, desired, __ATOMIC_ACQUIRE,         \
                     __ATOMIC_ACQUIRE)
#define compare_swap_release(pointer, expected, desired)                                           \
        explore_swap("compare_swap_release", pointer, expected, desired, __ATOMIC_RELEASE,         \
                     __ATOMIC_RELAXED)
#define compare_swap(pointer, expected, desired)                                                   \
        explore_swap("compare_swap", pointer, expected, desired, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

/* Accesses with other orders are written without names. */
#define __atomic_thread_fence(order) explore_fence(THIS_PLACE("__atomic_thread_fence()"), order)
#define fence_behind_change() explore_fence_behind_change(THIS_PLACE("fence_behind_change()"))
#define __atomic_add_fetch(pointer, value, order)                                                  \
        explore_add("__atomic_add_fetch", pointer, value, order)
#define __atomic_exchange_n(pointer, value, order)                                                 \
        explore_exchange("__atomic_exchange_n", pointer, value, order)
#define __atomic_store_n(pointer, value, order)                                                    \
        ((void)explore_exchange("__atomic_store_n", pointer, value, __ATOMIC_RELEASE))

#define cpu_relax() explore_yield(THIS_PLACE("cpu_relax()"))

#endif
