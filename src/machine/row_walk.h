/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A walk of the stack by rows (frame_row.h) that it keeps, for x86-64 and AArch64. Of the shared
 * libraries alone, like unwind.c, which uses it.
 */
#ifndef KMEM_MACHINE_ROW_WALK_H
#define KMEM_MACHINE_ROW_WALK_H

#include "lang/compiler.h"

enum { ROW_WALK_UNKNOWN = -1 };

/* Once, before the first walk, without a lock held: room for rows. Without it they are made each time. */
KMEM_HIDDEN void row_walk_prepare(void);

/*
 * As stack_walk (stack.h), whose frames it finds, from the caller on, and more behind code without
 * rows that has a frame pointer. ROW_WALK_UNKNOWN if a frame needs the compiler's unwinder, and on
 * other machines. lasting_find comes first: before it no rows are kept.
 */
KMEM_HIDDEN int row_walk(void **frames, int room, uintptr_t own, uintptr_t own_end);

#endif
