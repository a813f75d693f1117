/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The heap's side of vfork. The child runs in its parent's memory as a process of its own. The
 * drop-in, which stands in front of vfork (malloc/vfork.c), calls these functions on the library
 * that owns the heap.
 */
#ifndef KMEM_PROCESS_VFORK_H
#define KMEM_PROCESS_VFORK_H

#include "percpu/area.h"

/* In the parent, before vfork. */
KMEM_HIDDEN enum area_lent vfork_prepare(void);
/* In the child, after vfork. */
KMEM_HIDDEN void vfork_begin_child(void);
/* In the parent when the child is gone; @born: whether there was one. */
KMEM_HIDDEN void vfork_end(enum area_lent lent, bool born);

#endif
