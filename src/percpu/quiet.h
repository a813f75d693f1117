/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What slots keep and nobody uses, for the reclaim thread (heap/reclaim.c).
 */
#ifndef KMEM_PERCPU_QUIET_H
#define KMEM_PERCPU_QUIET_H

#include "percpu/slot.h"

/*
 * Looks at all that slots keep, and takes away, by one drain, what has not been used since the last
 * look. False if there was nothing to take and nothing has changed. Under cache_mutex.
 */
KMEM_HIDDEN bool percpu_take_quiet(void);

/*
 * A number that changes whenever objects of the cache leave the back end or come back to it, or a
 * slot gives up a slab. While it stays, so do the cache's slabs. Under cache_mutex.
 */
KMEM_HIDDEN uint64_t percpu_activity(struct kmem_cache *cache);

#endif
