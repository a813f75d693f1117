/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Slices of time without sheaves (docs/decisions/0016-profiles.md). A pair of calls that never leaves a
 * sheaf was decided once, when its object came there. In a slice every allocation comes from the back
 * end and is decided on its own, so what is counted then, times the whole time by that of the
 * slices, estimates each site's allocations, as far as the program runs in them as it does outside.
 */
#ifndef KMEM_PROCESS_SLICE_H
#define KMEM_PROCESS_SLICE_H

#include "lang/compiler.h"

#include <stdbool.h>

/*
 * How long a slice is: profile_slices percent of a period, a millisecond at least; 0: there is to be
 * none. Who makes one a period waits so much less before it.
 */
KMEM_HIDDEN unsigned int profile_slice_ms(unsigned int period_ms);
/*
 * A slice, if there are to be any. False if there was none. Called by one thread, once a period, without
 * locks.
 */
KMEM_HIDDEN bool profile_slice(unsigned int period_ms);

#endif
