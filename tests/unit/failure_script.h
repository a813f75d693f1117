/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Some of every call, checked step by step: whatever is said to have failed has changed nothing,
 * whatever is said to have succeeded is there. Leaves nothing behind, failures or not.
 */
#ifndef KMEM_TESTS_FAILURE_SCRIPT_H
#define KMEM_TESTS_FAILURE_SCRIPT_H

#include <stdbool.h>

/* Once in each process before the first run: threads and records that are made once for good. */
void failure_script_prepare(void);

/* True if no call failed. */
bool failure_script_run(void);

#endif
