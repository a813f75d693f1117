/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The heap follows its process through forks (fork.c has the order of the locks).
 */
#ifndef KMEM_PROCESS_FORK_H
#define KMEM_PROCESS_FORK_H

#include "lang/compiler.h"

#include <stdbool.h>

KMEM_HIDDEN void fork_init(void);
/* Whether nobody holds a lock that the reports at the end of the process take. */
KMEM_HIDDEN bool heap_locks_free(void);
/* Whether nobody holds a lock that pages_fit_limit takes. */
KMEM_HIDDEN bool heap_page_locks_free(void);
/*
 * Waits until one of these two functions says yes, a tenth of a second at most. For calls of libc
 * that may come from a signal handler which interrupted a slow path. The interrupted path's locks
 * stay held until the handler returns; other threads soon release theirs.
 */
KMEM_HIDDEN bool heap_await(bool (*locks_free)(void));

#endif
