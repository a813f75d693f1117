/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The arithmetic of Poisson sampling by bytes (docs/decisions/0016-profiles.md): with an interval
 * of I bytes an object of s bytes is a sample with probability p = 1 - exp(-s / I), independently
 * of all others, and stands for 1 / p objects. No library of mathematics is linked: seven digits
 * are enough here.
 */
#ifndef KMEM_PROFILE_DRAW_H
#define KMEM_PROFILE_DRAW_H

#include "lang/compiler.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * How many objects of @bytes come before the next sample: 0 with probability p, and so on.
 * UINT32_MAX means that many or more. A run that repeats the calls gets the numbers again.
 */
KMEM_HIDDEN uint32_t draw_gap(uint64_t bytes, uint64_t interval);
/*
 * Whether an object of @bytes is a sample. Numbers repeat as those of draw_gap do, if threads throw their
 * first coins in the same order.
 */
KMEM_HIDDEN bool draw_falls(uint64_t bytes, uint64_t interval);
/* p, above 0. */
KMEM_HIDDEN double sample_probability(uint64_t bytes, uint64_t interval);

#endif
