/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Stale reads, as C11 allows them: MEMORY_RA (views.c).
 */
#ifndef KMEM_EXPLORE_VIEWS_H
#define KMEM_EXPLORE_VIEWS_H

#include "scenario.h"

/* Orders are the compiler's: __ATOMIC_RELAXED to __ATOMIC_SEQ_CST. */

/* A load: its value may be older than what memory has. */
void views_load(int thread, const struct place *place, const volatile void *address, void *value,
                size_t bytes, int order);
/* The first half of a read-modify-write, and an attempt that fails: the newest value is read. */
void views_read_newest(int thread, const volatile void *address, size_t bytes, int order);
/* The second half: memory has the new value. */
void views_changed(int thread, const struct place *place, const volatile void *address,
                   size_t bytes, int order);
void views_store(int thread, const struct place *place, volatile void *address, const void *value,
                 size_t bytes, int order);
void views_fence(int thread, int order);
/* A full fence of every thread. */
void views_fence_all(void);
/* The thread comes behind another on that CPU, with the fence of the kernel's switch. */
void views_follow(int thread, int before);
/* The thread gives way: what it reads stale from now on counts anew. */
void views_give_way(int thread);

/* The thread's plain accesses until its next step belong to this epoch of it; 1 or more. */
uint32_t views_epoch(int thread);
/* Whether an epoch of the other thread happens before what the thread does now. */
bool views_knows(int thread, int other, uint32_t epoch);

#endif
