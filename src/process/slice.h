/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Slices of time without sheaves (docs/decisions/0016-profiles.md). A pair of calls that never
 * leaves a sheaf was decided once, when its object came there. In a slice every allocation comes
 * from the back end and is decided on its own. The count of a slice, multiplied by the whole time
 * and divided by the time of the slices, estimates each site's allocations, as far as the program
 * does the same in slices as outside.
 */
#ifndef KMEM_PROCESS_SLICE_H
#define KMEM_PROCESS_SLICE_H

#include "lang/compiler.h"

#include <stdbool.h>

/*
 * The length of a slice: profile_slices percent of a period, but at least a millisecond; 0: no
 * slices. The caller waits so much less between two slices.
 */
KMEM_HIDDEN unsigned int profile_slice_ms(unsigned int period_ms);
/*
 * Makes a slice if the profile asks for slices; false if there was none. Called by one thread, once
 * a period, without locks.
 */
KMEM_HIDDEN bool profile_slice(unsigned int period_ms);

#endif
