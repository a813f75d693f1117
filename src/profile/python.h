/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The functions in Python that a thread runs, for the stacks of samples: to the unwinder they are
 * frames of the interpreter, all alike (docs/decisions/0037-python-frames.md).
 *
 *  PYTHON-1  Only the calling thread's own interpreter state is read, which no other thread changes
 *            while the thread runs C code. Nothing is called in the interpreter but
 *            PyGILState_GetThisThreadState, which reads a key of the thread.
 *  PYTHON-2  No address is read before the kernel has said that its page can be, unless it lies in
 *            the accessible part of the heap, which only grows. So an interpreter with another layout
 *            costs its names and never the process.
 *  PYTHON-3  A name is copied when its function is on a stack, since a function may be gone when a
 *            reader comes. Names are kept once and for good, and their number is bounded.
 */
#ifndef KMEM_PROFILE_PYTHON_H
#define KMEM_PROFILE_PYTHON_H

#include "lang/compiler.h"

enum { PYTHON_FRAMES = 64 }; /* the innermost; the others are left out */

/*
 * Writes what stands in a stack's record for each function in Python (registry.h), the innermost
 * first; returns how many, 0 without an interpreter that is known. May be called wherever malloc
 * may be, without locks.
 */
KMEM_HIDDEN unsigned int python_frames(uintptr_t *frames, unsigned int room);
/* Shows the name of such a frame in the registry; does nothing for other frames. */
KMEM_HIDDEN void python_publish(uintptr_t frame);

#endif
