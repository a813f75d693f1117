/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of lang/atomic.h: plain accesses, because there is a single thread, and counts of the
 * accesses that would be atomic on a real machine. Order has no meaning here. Arguments are
 * evaluated once.
 */
#ifndef KMEM_LANG_ATOMIC_H
#define KMEM_LANG_ATOMIC_H

#include "machine/state.h"

#define load_relaxed(pointer) (*(pointer))
#define load_folded(pointer) (*(pointer))
#define load_acquire(pointer) (*(pointer))

/*
 * A 64-bit word may be a slab's state, and a byte a slab's mark that a node's list has it
 * (sim_move).
 */
#define sim_store(pointer, value)                                                                  \
        ({                                                                                         \
                __typeof__(pointer) sim_at_ = (pointer);                                           \
                                                                                                   \
                if (sizeof(*sim_at_) == sizeof(uint64_t))                                          \
                        sim_touch(sim_at_);                                                        \
                else if (sizeof(*sim_at_) == sizeof(uint8_t))                                      \
                        sim_move(sim_at_);                                                         \
                *sim_at_ = (value);                                                                \
                (void)0;                                                                           \
        })
#define store_relaxed(pointer, value) sim_store(pointer, value)
#define store_release(pointer, value) sim_store(pointer, value)

#define sim_exchange(pointer, value)                                                               \
        ({                                                                                         \
                __typeof__(pointer) sim_at_ = (pointer);                                           \
                __typeof__(*sim_at_) sim_old_ = *sim_at_;                                          \
                                                                                                   \
                sim.counts.exchanges++;                                                            \
                sim.clock += sim.costs.exchange;                                                   \
                sim_touch(sim_at_);                                                                \
                *sim_at_ = (value);                                                                \
                sim_old_;                                                                          \
        })
#define exchange_acquire(pointer, value) sim_exchange(pointer, value)
#define exchange_release(pointer, value) sim_exchange(pointer, value)

#define sim_add(pointer, sign, value)                                                              \
        ({                                                                                         \
                __typeof__(pointer) sim_at_ = (pointer);                                           \
                                                                                                   \
                sim.counts.atomic_adds++;                                                          \
                sim.clock += sim.costs.atomic_add;                                                 \
                sim_touch(sim_at_);                                                                \
                *sim_at_ = (__typeof__(*sim_at_))(*sim_at_ sign(value));                           \
                *sim_at_;                                                                          \
        })
#define add_relaxed(pointer, value) sim_add(pointer, +, value)
#define sub_relaxed(pointer, value) sim_add(pointer, -, value)

#define sim_fetch(pointer, sign, value)                                                            \
        ({                                                                                         \
                __typeof__(pointer) sim_at_ = (pointer);                                           \
                __typeof__(*sim_at_) sim_old_ = *sim_at_;                                          \
                                                                                                   \
                sim.counts.atomic_adds++;                                                          \
                sim.clock += sim.costs.atomic_add;                                                 \
                sim_touch(sim_at_);                                                                \
                *sim_at_ = sim_old_ sign(value);                                                   \
                sim_old_;                                                                          \
        })
#define or_relaxed(pointer, value) sim_fetch(pointer, |, value)
#define and_relaxed(pointer, value) sim_fetch(pointer, &, value)

#define add_owned(pointer, value) store_relaxed(pointer, load_relaxed(pointer) + (value))

#define sim_compare_swap(pointer, expected, desired)                                               \
        ({                                                                                         \
                __typeof__(pointer) sim_at_ = (pointer);                                           \
                __typeof__(expected) sim_expected_ = (expected);                                   \
                bool sim_equal_ = *sim_at_ == *sim_expected_;                                      \
                                                                                                   \
                sim.counts.compare_swaps++;                                                        \
                sim.clock += sim.costs.compare_swap;                                               \
                sim_touch(sim_at_);                                                                \
                if (sim_equal_)                                                                    \
                        *sim_at_ = (desired);                                                      \
                else                                                                               \
                        *sim_expected_ = *sim_at_;                                                 \
                sim_equal_;                                                                        \
        })
#define compare_swap(pointer, expected, desired) sim_compare_swap(pointer, expected, desired)
#define compare_swap_acquire(pointer, expected, desired)                                           \
        sim_compare_swap(pointer, expected, desired)
#define compare_swap_release(pointer, expected, desired)                                           \
        sim_compare_swap(pointer, expected, desired)

#define fence_behind_change() ((void)0)

static inline void cpu_relax(void)
{
}

#endif
