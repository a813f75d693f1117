/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The locks of memory pools. All pools share a few locks, by address, so that fork can take the
 * locks of pools that only the program knows.
 */
#ifndef KMEM_HEAP_POOL_LOCKS_H
#define KMEM_HEAP_POOL_LOCKS_H

#include "lang/compiler.h"
#include "machine/lock.h"

KMEM_HIDDEN struct lock *pool_lock(const void *pool);
KMEM_HIDDEN void pools_each_lock(void (*change)(struct lock *lock));

#endif
