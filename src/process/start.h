/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The start of the heap, with its ties to the process.
 */
#ifndef KMEM_PROCESS_START_H
#define KMEM_PROCESS_START_H

#include "heap/heap.h"

/* Sets the heap up on the first slow path of the process; see heap_ready. */
KMEM_HIDDEN bool process_start_heap(void);

/* False without memory for a heap, or if another library of ours owns it (heap/owner.h). */
static inline bool heap_ready(void)
{
        return heap_is_up() || process_start_heap();
}

#endif
