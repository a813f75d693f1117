/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Which pages of the heap a program would have made resident. A page that the heap has handed out
 * takes no memory until somebody writes to it, and a free page keeps its memory until the heap gives
 * it back to the system. So resident pages are neither the pages in use nor a part of them.
 *
 *  RES-1  A bit is set once an object that covers bytes of its page has been handed out: a program
 *         writes all that it asked for. What the library itself writes to slabs is left out.
 *  RES-2  A bit is cleared when its page goes back to the system (the touched bits of page/zone.h).
 *
 * A single thread, the simulated machine's.
 */
#ifndef KMEM_TOOLS_REPLAY_RESIDENT_H
#define KMEM_TOOLS_REPLAY_RESIDENT_H

#include "page/zone.h"

struct resident {
        uint64_t *words; /* a bit for each page of the heap */
        size_t pages;    /* number of set bits */
        size_t purged;   /* pages that the zones had given back when the bits were right */
};

/* Ends the program without memory. */
void resident_start(struct resident *resident);
void resident_end(struct resident *resident);

/* Takes out the pages that the heap has given back since. */
void resident_forget(struct resident *resident, size_t purged);

/* Adds the pages of bytes [first, last] of the heap. */
void resident_add(struct resident *resident, const void *first, const void *last);

static inline size_t zones_purged(void)
{
        size_t purged = 0;

        for (unsigned int node = 0; node < system_nodes(); node++)
                purged += zones[node].purged_pages;
        return purged;
}

/* An object was handed out; blocks outside the heap are counted elsewhere. */
static inline void resident_note(struct resident *resident, const void *object, uint64_t bytes)
{
        size_t purged = zones_purged();

        if (unlikely(purged != resident->purged))
                resident_forget(resident, purged);
        if (heap_contains(object))
                resident_add(resident, object, (const char *)object + (bytes ? bytes - 1 : 0));
}

#endif
