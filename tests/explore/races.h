/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Races of plain accesses, as C11 defines them: MEMORY_RA (races.c).
 */
#ifndef KMEM_EXPLORE_RACES_H
#define KMEM_EXPLORE_RACES_H

#include "scenario.h"

/* The bytes hold nothing that a thread wrote: the system gave them, or takes them back. */
void races_forget(const volatile void *start, size_t bytes);
/* The running thread's next access is atomic, at that address; its plain accesses there are a part of it. */
void races_at_atomic(const volatile void *address);
/* An atomic access: it may race with plain ones only. */
void races_atomic(const volatile void *address, size_t bytes, bool writes);

#endif
