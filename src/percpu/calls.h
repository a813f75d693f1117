/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * How many calls the fast path serves. It counts nothing, but each of its calls changes the size of
 * main by one, and only slow paths and drains put another sheaf in main's place. So a slow path
 * that finds the sheaf which the one before has left there knows that there were at least as many calls
 * as its size differs; what went back and forth between them is not seen.
 *
 *  CALLS-1  Nothing depends on these figures. Threads that run in the same slot's slow paths at a
 *           time may spoil a difference, which is bounded by the capacity.
 *  CALLS-2  They are counted where readers see them, and only while there is a registry. Each count
 *           is one instruction where that is to be had, so no thread that is preempted in it stores
 *           an old value later; two CPUs that count for one slot at a time, as a thread that was moved
 *           does, may lose one.
 */
#ifndef KMEM_PERCPU_CALLS_H
#define KMEM_PERCPU_CALLS_H

#include "percpu/slot.h"

static inline void count_here(uint64_t *figure, uint64_t calls)
{
#if defined(__x86_64__)
        __asm__("addq %1, %0" : "+m"(*figure) : "er"(calls));
#else
        add_relaxed(figure, calls);
#endif
}

/*
 * A slow path is about to make this sheaf main, or has found that it stays; NULL: which one stays is
 * not known, as after bulk calls, which are not counted.
 */
static inline void calls_leave(struct slot_cache *record, const struct sheaf *main, uint32_t size)
{
        store_relaxed(&record->left, main);
        store_relaxed(&record->left_size, size);
}

/* A slow path of alloc or free has found this sheaf as main. */
static inline void calls_count(const struct kmem_cache *cache, struct slot_cache *record,
                               const struct sheaf *main)
{
        struct registry_slot *figures = load_acquire(&record->engine.figures);
        uint32_t left = load_relaxed(&record->left_size);
        uint32_t size;

        if (!figures)
                return;
        size = sheaf_peek(cache, main);
        count_here(&figures->slow_calls, 1);
        if (load_relaxed(&record->left) == main)
                count_here(&figures->fast_calls, size > left ? size - left : left - size);
        calls_leave(record, main, size);
}

#endif
