/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* In place of percpu/freed.h: the objects of a simulation are not written to. */
#ifndef KMEM_PERCPU_FREED_H
#define KMEM_PERCPU_FREED_H

#include "lang/atomic.h"

static inline bool freed_is_marked(const void *object)
{
        (void)object;
        return false;
}

static inline void freed_mark(void *object)
{
        (void)object;
}

static inline void freed_clear(void *object)
{
        (void)object;
}

#endif
