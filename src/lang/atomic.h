/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Atomic accesses with their memory order in the name. Every use names its partner at the
 * place of use. Relaxed is for hints and for words that a lock or a restartable sequence
 * already orders.
 */
#ifndef KMEM_LANG_ATOMIC_H
#define KMEM_LANG_ATOMIC_H

#include "lang/compiler.h"

#define load_relaxed(pointer) __atomic_load_n(pointer, __ATOMIC_RELAXED)
/*
 * A load of a word on the fast path that another thread may change: the compiler may make it a part of
 * the instruction that needs it, as it may not with an atomic load. ThreadSanitizer sees an atomic one.
 */
#ifdef __SANITIZE_THREAD__
#define load_folded(pointer) load_relaxed(pointer)
#else
#define load_folded(pointer) (*(pointer))
#endif
#define load_acquire(pointer) __atomic_load_n(pointer, __ATOMIC_ACQUIRE)
#define store_relaxed(pointer, value) __atomic_store_n(pointer, value, __ATOMIC_RELAXED)
#define store_release(pointer, value) __atomic_store_n(pointer, value, __ATOMIC_RELEASE)
#define exchange_acquire(pointer, value) __atomic_exchange_n(pointer, value, __ATOMIC_ACQUIRE)
#define exchange_release(pointer, value) __atomic_exchange_n(pointer, value, __ATOMIC_RELEASE)
#define add_relaxed(pointer, value) __atomic_add_fetch(pointer, value, __ATOMIC_RELAXED)
#define sub_relaxed(pointer, value) __atomic_sub_fetch(pointer, value, __ATOMIC_RELAXED)
/* Both return the value before. */
#define or_relaxed(pointer, value) __atomic_fetch_or(pointer, value, __ATOMIC_RELAXED)
#define and_relaxed(pointer, value) __atomic_fetch_and(pointer, value, __ATOMIC_RELAXED)

/*
 * Adds to a counter that a single writer at a time changes (its lock is held): a plain add, atomic
 * only so that readers without the lock never see it torn.
 */
#define add_owned(pointer, value) store_relaxed(pointer, load_relaxed(pointer) + (value))

/* Compare and swap; on failure *expected holds the value found (acquire). */
#define compare_swap_acquire(pointer, expected, desired)                                           \
        __atomic_compare_exchange_n(pointer, expected, desired, false, __ATOMIC_ACQUIRE,           \
                                    __ATOMIC_ACQUIRE)
#define compare_swap_release(pointer, expected, desired)                                           \
        __atomic_compare_exchange_n(pointer, expected, desired, false, __ATOMIC_RELEASE,           \
                                    __ATOMIC_RELAXED)
#define compare_swap(pointer, expected, desired)                                                   \
        __atomic_compare_exchange_n(pointer, expected, desired, false, __ATOMIC_ACQ_REL,           \
                                    __ATOMIC_ACQUIRE)

/*
 * A full fence between a read-modify-write of the thread and what follows it. On x86-64 the
 * read-modify-write is one, and only the compiler must be told.
 */
#if defined(__x86_64__)
#define fence_behind_change() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#else
#define fence_behind_change() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
}

#endif
