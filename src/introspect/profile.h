/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Switching sampling on and off: by option profile_interval from the start, or from outside by the request
 * of that name.
 *
 *  LEASE-1  A value from outside is a lease. Every request renews it, and PROFILE_LEASE_MS after the last
 *           one the next slow path, or the reclaim thread, sets both values back to the program's options.
 *           So a profiler that is killed leaves nothing on, and a forked child of a profiled process ends
 *           its copy of the lease by itself.
 */
#ifndef KMEM_INTROSPECT_PROFILE_H
#define KMEM_INTROSPECT_PROFILE_H

#include "lang/compiler.h"

#include <stdint.h>

#define PROFILE_INTERVAL_MOST ((uint64_t)1 << 40)

/*
 * Bytes between samples, 0: none are taken from now on. 0, or ERANGE or ENOMEM, and then nothing has
 * changed. Under cache_mutex.
 */
KMEM_HIDDEN int profile_set_locked(uint64_t interval);
/* Percent of the time without sheaves, from the next period on; 0 or ERANGE. Under cache_mutex. */
KMEM_HIDDEN int profile_slices_set_locked(uint64_t percent);
/*
 * After a request: renews the lease if a value is other than the program's option, else there is none. Under
 * cache_mutex.
 */
KMEM_HIDDEN void profile_renew_locked(void);
/* Sets both back if the lease is over and cache_mutex can be had. */
KMEM_HIDDEN void profile_lease_over(void);
/* As the options say that ask for a profile, when the heap has started. */
KMEM_HIDDEN void profile_init(void);

#endif
