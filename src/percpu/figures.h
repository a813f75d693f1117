/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The figures of caches in the registry (registry/registry.h). Their records are made together with
 * the registry, the cache, or the slot's record for it. Back ends write the figures that change;
 * this file writes the attributes. Without a registry, or room in it, the pointers are NULL and
 * nothing is written.
 */
#ifndef KMEM_PERCPU_FIGURES_H
#define KMEM_PERCPU_FIGURES_H

#include "engines/engine.h"
#include "profile/sample.h"

/* Under cache_mutex. */
KMEM_HIDDEN void figures_add_cache(struct kmem_cache *cache);
KMEM_HIDDEN void figures_drop_cache(struct kmem_cache *cache);
/*
 * Writes the attributes: after a change, when the cache is complete, or when it was destroyed with
 * objects left; then its record vanishes from view. Under cache_mutex.
 */
KMEM_HIDDEN void figures_show_cache(struct kmem_cache *cache);
/* Under slots_lock. */
KMEM_HIDDEN void figures_add_slot(struct kmem_cache *cache, struct engine_slot *slot, uint32_t id);
KMEM_HIDDEN void figures_drop_slot(struct engine_slot *slot);

/* The watch over option soft_limit (heap/soft_limit.c), or NULL; constant after the start. */
extern KMEM_HIDDEN void (*memory_watch)(void);

KMEM_HIDDEN void figures_act(void);

static inline void figures_act_if(bool asked)
{
        if (unlikely(asked))
                figures_act();
        if (unlikely(memory_watch))
                memory_watch();
}

/*
 * Called at the beginning of slow paths, also of large blocks, before figures are written. Makes
 * the registry when it is due, leaves the parent's registry, honours requests, ends a profile with
 * a lease that is over, or gives memory back before a limit. The caller may hold cache_mutex, the
 * locks in front of it, and drain_mutex, but no other lock of the heap.
 */
static inline void figures_poll(void)
{
        figures_act_if(registry_is_asked() || load_relaxed(&profile_lease_ends_ms));
}

/*
 * figures_poll for calls that a program makes all the time: a lease is looked at by others, as each look
 * reads the clock.
 */
static inline void figures_poll_often(void)
{
        figures_act_if(registry_is_asked());
}

/* Whether figures_poll would do something. */
static inline bool figures_are_asked(void)
{
        return registry_is_asked() || load_relaxed(&profile_lease_ends_ms) || memory_watch;
}

#endif
