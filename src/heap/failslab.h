/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Faults on purpose: with option failslab, requests of caches that have attribute failslab fail, by
 * the rule of the kernel's fault injection. A program can test there how it bears a lack of memory.
 *
 *  FAULT-1  Without the option nothing fails, and the attribute only keeps a cache from being
 *           merged.
 *  FAULT-2  With the option, caches with the attribute are closed (cache_is_closed), so each of
 *           their requests takes a slow path, which asks here; the fast path knows nothing of it.
 *  FAULT-3  A request with __GFP_NOFAIL does not fail, nor does a request of a cache without the
 *           attribute.
 *
 * All caches share the counts, which are relaxed: of several requests at once any may fail.
 */
#ifndef KMEM_HEAP_FAILSLAB_H
#define KMEM_HEAP_FAILSLAB_H

#include "base/options.h"
#include "engines/engine.h"
#include "kmem.h"

static inline bool failslab_is_on(void)
{
        return unlikely(options.failslab.probability != 0);
}

/* Whether a request of the cache is to fail; a bulk call is one request. */
KMEM_HIDDEN bool failslab_fails(const struct kmem_cache *cache, gfp_t flags);

#endif
