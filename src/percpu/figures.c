/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The registry's figures of caches and slots: makes their records, writes attributes into them, and
 * does the work that a request from outside asks for (figures_act).
 */
#include "percpu/figures.h"

#include "engines/hardened/hardened.h"
#include "percpu/area.h"
#include "percpu/percpu.h"
#include "profile/sample.h"

#include <errno.h>
#include <string.h>

void (*memory_watch)(void);

static size_t cache_figures_bytes(void)
{
        return offsetof(struct registry_cache, node) +
               system_nodes() * sizeof(struct registry_node);
}

void figures_add_cache(struct kmem_cache *cache)
{
        cache->figures = registry_alloc(cache_figures_bytes());
}

void figures_drop_cache(struct kmem_cache *cache)
{
        registry_free(cache->figures, cache_figures_bytes());
        cache->figures = NULL;
        for (unsigned int node = 0; node < system_nodes(); node++)
                cache->node[node].figures = NULL;
}

static void show_limits(const struct kmem_cache *cache, struct registry_cache *figures)
{
        bool keeps_empty_slabs = cache->engine->number == ENGINE_SLUB;
        bool has_sheaves = cache->engine->caching == CACHING_SHEAVES;

        store_relaxed(&figures->cpu_partial_most, cache->has_cpu_partial ? UINT32_MAX : 0);
        store_relaxed(&figures->min_partial_most, keeps_empty_slabs ? UINT64_MAX : 0);
        store_relaxed(&figures->sheaf_capacity_most,
                      has_sheaves ? cache->sheaf_room : load_relaxed(&cache->sheaf_capacity));
}

/* Shows the node figures that back ends write when they change: the report writes some of them. */
static void show_nodes(struct kmem_cache *cache)
{
        struct engine_report report = {0};

        cache->engine->report(cache, &report);
        for (unsigned int node = 0; cache->engine->number == ENGINE_SLUB && node < system_nodes();
             node++)
                node_show_slabs(&cache->node[node]);
}

void figures_show_cache(struct kmem_cache *cache)
{
        struct registry_cache *figures = cache->figures;

        if (!figures)
                return;
        /* A child changes a cache before its first slow path (REG-2). */
        if (unlikely(!registry_last_seen()))
                registry_leave();
        /*
         * The cache was destroyed with objects left (S8-08): frees of them still write to the
         * record, so it stays.
         */
        if (!cache->references) {
                store_release(&figures->head.kind, (uint32_t)RECORD_FREE);
                return;
        }
        show_limits(cache, figures);
        store_relaxed(&figures->object_size, cache->object_size);
        store_relaxed(&figures->slab_size, cache->size);
        store_relaxed(&figures->objs_per_slab, cache->objects);
        store_relaxed(&figures->order, cache->order);
        store_relaxed(&figures->pages_per_slab, (uint32_t)pages_of_slab(cache, cache->order));
        store_relaxed(&figures->align, cache->align);
        store_relaxed(&figures->usersize, cache->usersize);
        store_relaxed(&figures->aliases, max_of(cache->references, 1u) - 1);
        store_relaxed(&figures->flags, cache->flags);
        store_relaxed(&figures->cpu_partial, cache->cpu_partial);
        store_relaxed(&figures->sheaf_capacity, load_relaxed(&cache->sheaf_capacity));
        store_relaxed(&figures->min_partial, (uint64_t)cache->min_partial);
        store_relaxed(&figures->failslab, (uint32_t)cache->failslab);
        store_relaxed(&figures->skip_kfence, (uint32_t)cache->skip_kfence);
        store_relaxed(&figures->guard_sampling, load_relaxed(&cache->guard_rate));
        store_relaxed(&figures->remote_node_defrag_ratio, cache->remote_node_defrag_ratio / 10);
        if (cache->engine->caching == CACHING_ARRAY) {
                store_relaxed(&figures->limit, load_relaxed(&cache->sheaf_capacity));
                store_relaxed(&figures->batchcount, load_relaxed(&cache->batchcount));
                store_relaxed(&figures->shared, cache->shared);
        }
        if (load_relaxed(&figures->head.kind) == RECORD_CACHE)
                return;
        figures->birth = cache->birth;
        memcpy(figures->name, cache->name, sizeof(figures->name));
        strncpy(figures->engine, cache->engine->name, sizeof(figures->engine) - 1);
        figures->nodes = system_nodes();
        for (unsigned int node = 0; node < system_nodes(); node++) {
                figures->node[node].number = system_node_number(node);
                /*
                 * Every thread sees the pointer before the values are read, so no change gets lost.
                 * Sequentially consistent, with the fence in node_show_slabs.
                 */
                __atomic_store_n(&cache->node[node].figures, &figures->node[node],
                                 __ATOMIC_SEQ_CST);
        }
        show_nodes(cache);
        registry_publish(figures, RECORD_CACHE, cache_figures_bytes());
}

void figures_add_slot(struct kmem_cache *cache, struct engine_slot *slot, uint32_t id)
{
        struct registry_slot *figures = slot->figures;

        /* Acquire: partner of start_cache, which comes to this slot too when it is not seen yet. */
        if (!load_acquire(&cache->figures))
                return;
        if (!figures)
                figures = registry_alloc(sizeof(*figures));
        if (!figures)
                return;
        figures->birth = cache->birth;
        figures->slot = id;
        /* Back ends change `taken` under this lock, or show it after each change, as `given`. */
        lock_take(&slot->lock);
        __atomic_store_n(&slot->figures, figures, __ATOMIC_SEQ_CST);
        registry_show(&figures->taken, &slot->taken);
        lock_drop(&slot->lock);
        registry_show(&figures->given, &slot->given);
        registry_publish(figures, RECORD_SLOT, sizeof(*figures));
}

void figures_drop_slot(struct engine_slot *slot)
{
        registry_free(slot->figures, sizeof(*slot->figures));
        slot->figures = NULL;
}

static void start_cache(struct kmem_cache *cache)
{
        if (!cache->figures)
                __atomic_store_n(&cache->figures, registry_alloc(cache_figures_bytes()),
                                 __ATOMIC_SEQ_CST);
        if (!cache->figures)
                return;
        figures_show_cache(cache);
        slots_each_record(cache, figures_add_slot);
}

/*
 * Makes the registry, unless another thread holds cache_mutex; that may also be the caller. Then
 * the next slow path does it.
 */
static void start(void)
{
        if (!lock_try(&cache_mutex))
                return;
        if (!registry_is_made() && registry_make()) {
                /*
                 * A thread that has changed a figure looks for the registry behind a fence
                 * (registry_show): it finds this one, or its change is found here.
                 */
                __atomic_thread_fence(__ATOMIC_SEQ_CST);
                store_relaxed(&registry_head()->profile_interval, load_relaxed(&profile_interval));
                store_relaxed(&registry_head()->profile_since_ms, load_relaxed(&profile_since_ms));
                store_relaxed(&registry_head()->profile_slices, load_relaxed(&profile_slices));
                store_relaxed(&registry_head()->profile_lease_ms, (uint64_t)PROFILE_LEASE_MS);
                guards_show();
                pages_show();
                if (hardened_is_on())
                        hardened_show();
                for (uint32_t index = 1; index < slots_index_end(); index++)
                        if (caches_by_index[index])
                                start_cache(caches_by_index[index]);
        }
        lock_drop(&cache_mutex);
}

static bool lease_is_over(void)
{
        uint64_t ends = load_relaxed(&profile_lease_ends_ms);

        return ends && system_time_ms() >= ends;
}

void figures_act(void)
{
        int saved_errno = errno;
        bool ours = area_thread_is_ours();

        /*
         * A bare thread of ours opens no file, and cannot say that fences are refused. A registry
         * made by a child of vfork would have the child's number, and vanish when the child ends.
         */
        if (!registry_is_made()) {
                if (!ours && !system_is_lent() && registry_is_due())
                        start();
        } else if (!registry_last_seen()) {
                registry_leave();
        } else if (registry_is_asked() && registry_honour && (!ours || slots_can_drain())) {
                registry_honour();
        }
        /* Profiles end after the requests, because a request may renew the lease. */
        if (unlikely(lease_is_over()) && (!ours || slots_can_drain()))
                profile_end_lease();
        errno = saved_errno;
}
