/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The figures of caches in the registry (registry/registry.h): made with the registry, with
 * the cache, or with what a slot keeps for it. Between, back ends write those that change; attributes are written here. Without
 * a registry, or room in it, the pointers are NULL and nothing is written.
 */
#ifndef KMEM_PERCPU_FIGURES_H
#define KMEM_PERCPU_FIGURES_H

#include "engines/engine.h"
#include "profile/sample.h"

/* Under cache_mutex. */
KMEM_HIDDEN void figures_add_cache(struct kmem_cache *cache);
KMEM_HIDDEN void figures_drop_cache(struct kmem_cache *cache);
/*
 * After a change of attributes, when the cache is complete, or destroyed with objects left: then nobody is
 * to see it any more. Under cache_mutex.
 */
KMEM_HIDDEN void figures_show_cache(struct kmem_cache *cache);
/* Under slots_lock. */
KMEM_HIDDEN void figures_add_slot(struct kmem_cache *cache, struct engine_slot *slot, uint32_t id);
KMEM_HIDDEN void figures_drop_slot(struct engine_slot *slot);

KMEM_HIDDEN void figures_act(void);

/*
 * At the beginning of slow paths, those of large blocks too, before figures are written: makes the
 * registry when it is due, leaves that of the parent, honours requests, or ends a profile whose lease is
 * over. No lock of the heap is
 * held but those in front of cache_mutex, that, and drain_mutex.
 */
static inline void figures_poll(void)
{
        if (unlikely(load_relaxed(&registry->asked) != load_relaxed(registry_seen)) ||
            unlikely(load_relaxed(&profile_lease_ends_ms)))
                figures_act();
}

#endif
