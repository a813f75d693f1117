/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of machine/event.c: a wait would never end on a single thread, so it ends the process, as
 * does a lock that is held already.
 */
#include "machine/event.h"
#include "machine/lock.h"
#include "machine/message.h"

void event_sleep(struct event *event, uint32_t sequence, unsigned int milliseconds)
{
        (void)event;
        (void)sequence;
        (void)milliseconds;
        message_fatal("simulated: this call waits for another thread, and there is none");
}

void event_wake_waiters(struct event *event, unsigned int count)
{
        (void)event;
        (void)count;
}

void sim_lock_is_taken(const struct sim_lock_place *place)
{
        message_fatal("simulated: %s is held already (%s:%u)", place->lock, place->file,
                      place->line);
}
