/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What other threads see of a thread's stores, and when.
 *
 * MEMORY_SC: at once, everything. MEMORY_TSO: x86 as its manuals and Sewell et al., "x86-TSO: a
 * rigorous and usable programmer's model for x86 multiprocessors" (CACM 2010) describe it. MEMORY_RA: as
 * C11's release, acquire and relaxed accesses and fences allow it (views.h).
 */
#ifndef KMEM_EXPLORE_MEMORY_H
#define KMEM_EXPLORE_MEMORY_H

#include "scenario.h"

enum memory { MEMORY_SC, MEMORY_TSO, MEMORY_RA };

extern enum memory memory;

/*
 * The thread's own stores lie over what all see while it runs. leave() takes them away again, in
 * front of any choice of the search.
 */
void memory_enter(int thread);
void memory_leave(int thread);
/* All stores of a thread become seen: its CPU runs another thread, or fences. */
void memory_flush(int thread);
/* Accesses and fences of that place have no order, under RA: a fault that should be found. */
void memory_weaken(const char *file, unsigned int line);
/* The order at that place. */
int memory_order(const struct place *place, int order);
/* A CPU goes from a thread to another. */
void memory_switch(int before, int thread);
/* The thread gives way to another, or waits: what it did not see it may see from now on. */
void memory_give_way(int thread);
/* Whether the thread has a store that others do not see yet; its place in *@place if not NULL. */
bool memory_waits(int thread);

#endif
