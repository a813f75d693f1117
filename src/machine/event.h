/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Waiting for an act of another thread, over futex. All zero is an event for which no thread waits.
 *
 * A waiter announces itself, checks its condition once more, and sleeps; a caller of event_wake
 * changes the condition first. The waiter fences behind its announcement, and the waker before it looks.
 * So either the check finds the change, or the waker finds the waiter. A sequentially consistent addition
 * would not do: C11 lets the check's loads, which are weaker, pass it, as processors of AArch64 do.
 */
#ifndef KMEM_MACHINE_EVENT_H
#define KMEM_MACHINE_EVENT_H

#include "lang/atomic.h"

struct event {
        uint32_t sequence; /* grows with each wake-up that found a waiter */
        uint32_t waiters;  /* threads between event_announce and the end of event_sleep */
};

/*
 * Returns the number that event_sleep takes. Every announcement is followed by a sleep or a
 * retreat.
 */
static inline uint32_t event_announce(struct event *event)
{
        add_relaxed(&event->waiters, 1); /* relaxed: the fence orders it */
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        /* Acquire: the caller's check comes after it; partner of the addition in event_wake. */
        return load_acquire(&event->sequence);
}

/* The condition has come true before the sleep. */
static inline void event_retreat(struct event *event)
{
        sub_relaxed(&event->waiters, 1);
}

/*
 * Sleeps until a wake-up after the announcement, a signal, or for @milliseconds. It does not tell
 * why it returned: the caller checks again. Keeps errno.
 */
KMEM_HIDDEN void event_sleep(struct event *event, uint32_t sequence, unsigned int milliseconds);

KMEM_HIDDEN void event_wake_waiters(struct event *event, unsigned int count);

/* Wakes up to @count sleepers; nearly free if there are none. Keeps errno. */
static inline void event_wake(struct event *event, unsigned int count)
{
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        /* Relaxed: the fence above orders it after the change. */
        if (unlikely(load_relaxed(&event->waiters)))
                event_wake_waiters(event, count);
}

/* Gives the processor away for about that long. Keeps errno. */
static inline void event_pause(unsigned int milliseconds)
{
        struct event nobody = {0};

        event_sleep(&nobody, event_announce(&nobody), milliseconds);
}

#endif
