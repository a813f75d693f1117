/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef KMEM_ENGINES_DEBUG_TRACES_H
#define KMEM_ENGINES_DEBUG_TRACES_H

#include "engines/engine.h"

/*
 * The text of alloc_traces, or with @of_free of free_traces, of a cache with flag U, without its
 * last newline and with marks in the places of function names (machine/stack.h). As many entries as
 * fit into @bytes once they are named, the entries with the most objects first. Returns its length;
 * 0 without memory. Takes each node's list_lock.
 */
KMEM_HIDDEN size_t debug_traces(struct kmem_cache *cache, bool of_free, char *text, size_t bytes);

#endif
