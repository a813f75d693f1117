/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Taking sheaves away from slots of other CPUs, and what fork does to slots.
 */
#ifndef KMEM_PERCPU_DRAIN_H
#define KMEM_PERCPU_DRAIN_H

#include "percpu/slot.h"

/* Set in a forked child until its first slow path has collected the other slots' sheaves. */
extern KMEM_HIDDEN bool slots_orphaned;

KMEM_HIDDEN void collect_orphans(void);

static inline void percpu_after_fork(void)
{
        if (unlikely(load_relaxed(&slots_orphaned)))
                collect_orphans();
}

#endif
