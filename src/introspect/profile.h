/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Switches sampling on and off: by option profile_interval from the start, or by a request from
 * outside.
 *
 *  LEASE-1  A value from outside is a lease. Every request renews it. PROFILE_LEASE_MS after the
 *           last request the next slow path, or the reclaim thread, sets both values back to the
 *           program's options. So a profiler that is killed leaves nothing on, and a forked child
 *           of a profiled process ends its copy of the lease by itself.
 */
#ifndef KMEM_INTROSPECT_PROFILE_H
#define KMEM_INTROSPECT_PROFILE_H

#include "lang/compiler.h"

#include <stdint.h>

#define PROFILE_INTERVAL_MOST ((uint64_t)1 << 40)

/*
 * Sets the bytes between samples; 0: no samples from now on. Returns 0, or ERANGE or ENOMEM, and
 * then nothing has changed. Under cache_mutex.
 */
KMEM_HIDDEN int profile_set_locked(uint64_t interval);
/*
 * Sets the percent of the time without sheaves, from the next period on; 0 or ERANGE. Under
 * cache_mutex.
 */
KMEM_HIDDEN int profile_slices_set_locked(uint64_t percent);
/*
 * After a request: begins or renews the lease if a value differs from the program's option, else
 * ends it. Under cache_mutex.
 */
KMEM_HIDDEN void profile_renew_locked(void);
/* Sets both values back if the lease is over and cache_mutex can be had. */
KMEM_HIDDEN void profile_lease_over(void);
/* Starts the profile that the options ask for, when the heap has started. */
KMEM_HIDDEN void profile_init(void);

#endif
