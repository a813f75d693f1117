/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * How many calls the fast path serves. It counts nothing, but each of its calls changes the size of
 * main by 1, and only slow paths and drains put another sheaf in main's place. So a slow path that
 * finds the sheaf which the last slow path left knows how many calls there were at least: the
 * difference of its sizes. Allocations and frees that cancel out are not seen.
 *
 *  CALLS-1  Nothing depends on these figures. Threads that run in the slow paths of a slot at the
 *           same time may spoil a difference, which is bounded by the capacity.
 *  CALLS-2  The figures are counted in the registry, and only while there is a registry. Each count
 *           is a single instruction where the processor has it, so a thread that is preempted in it
 *           stores no old value later. Two CPUs that count for a slot at a time, after a thread was
 *           moved, may lose a count.
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
 * Notes the sheaf that a slow path is about to make main, or leaves there. NULL: it is not known,
 * as after bulk calls, which are not counted.
 */
static inline void calls_leave(struct slot_cache *record, const struct sheaf *main, uint32_t size)
{
        store_relaxed(&record->left, main);
        store_relaxed(&record->left_size, size);
}

/*
 * Counts the calls since calls_leave. A slow path of alloc or free calls it, with the sheaf that it
 * has found as main.
 */
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
