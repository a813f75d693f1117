/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The two system calls of an event: sleep and wake (event.h). */
#define _GNU_SOURCE
#include "machine/event.h"

#include "machine/syscall.h"

#include <limits.h>
#include <linux/futex.h>
#include <time.h>

void event_sleep(struct event *event, uint32_t sequence, unsigned int milliseconds)
{
        struct timespec timeout = {
                .tv_sec = milliseconds / 1000,
                .tv_nsec = (long)(milliseconds % 1000) * 1000000,
        };

        /*
         * The kernel compares and sleeps in a single step: a wake-up since the announcement is
         * seen.
         */
        system_call6(SYS_futex, (long)&event->sequence, FUTEX_WAIT_PRIVATE, sequence,
                     (long)&timeout, 0, 0);
        event_retreat(event);
}

void event_wake_waiters(struct event *event, unsigned int count)
{
        /* Release: a thread that sees the new number sees the change that was made before. */
        __atomic_add_fetch(&event->sequence, 1, __ATOMIC_RELEASE);
        system_call(SYS_futex, (long)&event->sequence, FUTEX_WAKE_PRIVATE,
                    (long)(count < INT_MAX ? count : INT_MAX));
}
