/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Allocations that fail on request: everything the library takes from the page layer, the metadata
 * arena and the operating system. Link with the --wrap options that tests/unit/meson.build lists
 * for this file.
 *
 * Points are counted in the order in which they are reached, whichever thread does. A request of
 * the arena that maps memory is two points: the request, and the mapping under it.
 */
#ifndef KMEM_TESTS_FAILURE_WRAP_H
#define KMEM_TESTS_FAILURE_WRAP_H

#include <stdbool.h>
#include <stddef.h>

/*
 * From now on the @n-th point fails, 1 the first; with @rest all behind it too. The first failure
 * writes a line to standard error.
 */
void failure_arm(size_t n, bool rest);
/* Nothing fails any more. */
void failure_disarm(void);
/* Between these two nothing fails and nothing is counted: for a test's own looks at the heap. */
void failure_hold(void);
void failure_go_on(void);
/* Points reached since the last failure_arm, and how many of them failed. */
size_t failure_points(void);
size_t failures_injected(void);

/* Bytes mapped or reserved from the operating system at this moment. */
size_t failure_mapped_bytes(void);

/*
 * The environment variable FAIL_START=N arms before the first allocation of the process, so that
 * the start of the heap fails too; FAIL_START_REST adds @rest.
 */

#endif
