/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Switching sampling on and off: by option profile_interval from the start, or from outside by the request
 * of that name.
 */
#ifndef KMEM_INTROSPECT_PROFILE_H
#define KMEM_INTROSPECT_PROFILE_H

#include "base/compiler.h"

#include <stdint.h>

#define PROFILE_INTERVAL_MOST ((uint64_t)1 << 40)

/*
 * Bytes between samples, 0: none are taken from now on. 0, or ERANGE or ENOMEM, and then nothing has
 * changed. Under cache_mutex.
 */
KMEM_HIDDEN int profile_set_locked(uint64_t interval);
/* Percent of the time without sheaves, from the next period on; 0 or ERANGE. Under cache_mutex. */
KMEM_HIDDEN int profile_slices_set_locked(uint64_t percent);
/* As the options say that ask for a profile, when the heap has started. */
KMEM_HIDDEN void profile_init(void);

#endif
