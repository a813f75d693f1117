/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A look of the reclaim thread, and malloc_trim, which does all its steps at once.
 *
 * A look takes memory that nobody has used since the last look, from the slots outwards to the
 * system:
 *
 *   1. blocks of kfree_rcu and pages that have waited for their grace period
 *   2. sheaves and slabs in slots that have not changed (percpu/quiet.c), by one drain
 *   3. sheaves in barns below their low-water marks
 *   4. empty slabs of caches that neither took objects from the back end nor gave any back; after
 *      purge_delay without a change also free pages inside their other slabs (engines/slub/purge.c)
 *   5. pages that have been free for purge_delay
 *
 * A cache in use keeps its slabs as they are, because a walk over their list costs its users the
 * time that list_lock is held.
 *
 * cache_mutex is held while all slots are looked at, and then for each cache anew, and dropped
 * between the pieces of a long list that is purged.
 */
#include "heap/reclaim.h"

#include "engines/hardened/hardened.h"

#include "heap/heap.h"
#include "heap/rcu.h"
#include "machine/event.h"
#include "machine/message.h"
#include "base/options.h"
#include "machine/probe.h"
#include "base/rcu.h"
#include "page/deferred.h"
#include "page/huge.h"
#include "percpu/area.h"
#include "percpu/drain.h"
#include "percpu/quiet.h"

#include <errno.h>

enum {
        PURGE_SLABS = 256, /* in one hold of cache_mutex: a millisecond or so */
        REGAIN_MS = 100,   /* that a request which would fail waits for cache_mutex */
};

/* Purges inside the slabs of a cache; cache_mutex is held throughout. */
static size_t cache_purge(struct kmem_cache *cache)
{
        size_t bytes = 0;

        for (unsigned int node = 0; cache->engine->purge && node < system_nodes(); node++)
                while (!cache->engine->purge(cache, node, PURGE_SLABS, &bytes))
                        ;
        return bytes;
}

static size_t caches_trim_locked(void)
{
        struct list *node;
        size_t bytes = 0;

        percpu_flush_all();
        list_for_each (node, &cache_list) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);

                cache->engine->shrink(cache);
                bytes += cache_purge(cache);
        }
        return bytes;
}

/* What lies behind the caches: hardened pools, and free pages except for @keep bytes. */
static size_t trim_behind_caches(size_t keep)
{
        size_t bytes = hardened_is_on() && !area_thread_is_ours() ? hardened_trim() : 0;

        return bytes + pages_purge_all(keep);
}

size_t heap_trim_locked(void)
{
        size_t bytes = caches_trim_locked();

        return bytes + trim_behind_caches(0);
}

size_t heap_trim(size_t keep)
{
        size_t bytes;

        lock_take(&cache_mutex);
        percpu_follow_cpus_seldom();
        bytes = caches_trim_locked();
        lock_drop(&cache_mutex);
        return bytes + trim_behind_caches(keep);
}

/* Changes with each way of objects to or from the back ends, and with what rests. Under cache_mutex. */
static uint64_t activity_of_all(void)
{
        struct list *node;
        uint64_t activity = 0;

        list_for_each (node, &cache_list) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);

                activity = activity * 31 + percpu_activity(cache) + percpu_resting(cache);
        }
        return activity;
}

static bool regain_locked(void)
{
        size_t before = pages_free_count();
        struct list *node;
        size_t huge_bytes;

        percpu_flush_all();
        list_for_each (node, &cache_list) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);

                if (!cache->engine->checks_at_end)
                        cache->engine->shrink(cache);
        }
        huge_bytes = huge_kept_drop(UINT64_MAX);
        return huge_bytes || pages_free_count() > before;
}

bool heap_regain(void)
{
        /* Under cache_mutex: what all caches had done when the last try brought nothing. */
        static uint64_t fruitless;
        int saved_errno = errno;
        bool gained;

        /* The holder may be a report of another thread, or a call of this one that makes a cache. */
        for (unsigned int waited = 0; !lock_try(&cache_mutex); waited++) {
                if (waited == REGAIN_MS)
                        return true;
                event_pause(1);
        }
        gained = activity_of_all() != fruitless && regain_locked();
        if (!gained)
                fruitless = activity_of_all();
        lock_drop(&cache_mutex);
        errno = saved_errno;
        return gained;
}

size_t heap_held_bytes(void)
{
        return (pages_held() << PAGE_SHIFT) + huge_held_bytes() +
               load_relaxed(&hardened_figures.slab_bytes) +
               load_relaxed(&hardened_figures.large_bytes);
}

/* The rest after a step of a cache: nothing, a step at a later look, or another step at once. */
enum step { STEP_DONE, STEP_LATER, STEP_AGAIN };

/*
 * Makes the next step of a cache if it is quiet: its empty slabs go, and after purge_delay pages
 * inside the others, up to PURGE_SLABS slabs at a time.
 */
static enum step cache_step_locked(struct kmem_cache *cache, uint64_t now_ms)
{
        struct cache_quiet *quiet = &cache->quiet;
        uint64_t activity = percpu_activity(cache);
        size_t bytes = 0;

        debug_check(lock_is_held(&cache_mutex));
        /*
         * The reclaim thread may be the caller, and it cannot report the faults that the checks
         * find.
         */
        if (cache->engine->checks_at_end)
                return STEP_DONE;
        if (activity != quiet->activity) {
                *quiet = (struct cache_quiet){.activity = activity, .since_ms = now_ms};
                return STEP_LATER;
        }
        if (quiet->stage == QUIET_NEW) {
                cache->engine->shrink(cache);
                quiet->stage = cache->engine->purge ? QUIET_SHRUNK : QUIET_PURGED;
                return STEP_AGAIN;
        }
        if (quiet->stage == QUIET_PURGED)
                return STEP_DONE;
        if (now_ms - quiet->since_ms < options.purge_delay)
                return STEP_LATER;
        if (cache->engine->purge(cache, quiet->node, PURGE_SLABS, &bytes) &&
            ++quiet->node == system_nodes())
                quiet->stage = QUIET_PURGED;
        return STEP_AGAIN;
}

/* Makes all steps that are due for the newest cache older than *birth; false if there is none. */
static bool cache_steps(uint64_t *birth, uint64_t now_ms, bool *any)
{
        enum step step = STEP_AGAIN;
        uint64_t before = *birth;
        bool first = true;

        while (step == STEP_AGAIN) {
                struct kmem_cache *cache;

                lock_take(&cache_mutex);
                cache = cache_before_locked(before);
                /* The cache of the last round was destroyed, and this is another cache. */
                if (!cache || (!first && cache->birth != *birth)) {
                        lock_drop(&cache_mutex);
                        return cache != NULL;
                }
                *birth = cache->birth;
                if (first)
                        percpu_drain_surplus(cache);
                first = false;
                step = cache_step_locked(cache, now_ms);
                lock_drop(&cache_mutex);
                *any |= step != STEP_DONE;
        }
        return true;
}

bool reclaim_step(uint64_t now_ms)
{
        uint64_t birth = 0;
        size_t purged;
        bool any;

        if (rcu_is_alone()) {
                kfree_rcu_release();
                pages_release_deferred();
        }
        lock_take(&cache_mutex);
        any = percpu_take_quiet();
        lock_drop(&cache_mutex);
        while (cache_steps(&birth, now_ms, &any))
                ;
        figures_poll();
        purged = pages_purge_idle();
        PROBE2(reclaim, purged, any);
        return (purged != 0) | any;
}
