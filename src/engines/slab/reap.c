/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Giving memory back: by time, on request, and at the end of a cache (S6-60 to S6-62, S8-08).
 */
#include "engines/slab/slab.h"

enum { REAP_NODE_MS = 4000 };

/* Ends up to @count free slabs, the longest idle first. */
static void node_end_free(struct kmem_cache *cache, uint32_t node, uint64_t count)
{
        uint32_t doomed = 0;

        lock_take(&cache->node[node].list_lock);
        while (count--) {
                struct page *slab = node_unlink_free_locked(cache, node);

                if (!slab)
                        break;
                slab->next = doomed;
                doomed = page_number(slab);
        }
        slab_drop_node(cache, node);
        slab_end_all(cache, doomed);
}

/* Drains a part of the shared array, unless it has been used since the last time (S6-61). */
static void reap_shared(struct kmem_cache *cache, uint32_t node)
{
        struct slab_node *data = &slab_data(cache)->node[node];
        struct object_array *shared = data->shared;
        uint32_t doomed = 0;
        uint32_t count;

        if (!shared || !load_relaxed(&shared->available))
                return;
        lock_take(&cache->node[node].list_lock);
        if (shared->touched) {
                shared->touched = false;
        } else {
                count = (shared->limit + 4) / 5;
                if (count > shared->available)
                        count = (shared->available + 1) / 2;
                shared_drain_locked(cache, node, count, &doomed);
        }
        slab_drop_node(cache, node);
        slab_end_all(cache, doomed);
}

/*
 * The number of free slabs to end: 0 if a request touched the free list since the last reaping
 * (S6-60).
 */
static uint64_t free_slabs_due(struct kmem_cache *cache, uint32_t node)
{
        struct slab_node *data = &slab_data(cache)->node[node];
        uint64_t slice = 5 * (uint64_t)cache->objects;
        bool touched;

        lock_take(&cache->node[node].list_lock);
        touched = data->free_touched;
        data->free_touched = false;
        slab_drop_node(cache, node);
        if (touched)
                return 0;
        return (data->free_limit + slice - 1) / slice;
}

/*
 * The node's part of a reaper's round. The caller holds cache_mutex, so the cache stays and no
 * second reaper runs.
 */
void slab_reap(struct kmem_cache *cache, uint64_t now_ms)
{
        uint32_t node = slab_local_node();
        struct slab_node *data = &slab_data(cache)->node[node];
        uint64_t count;

        if (system_nodes() > 1) {
                alien_drain(cache, node, data->reap_alien);
                data->reap_alien = (data->reap_alien + 1) % system_nodes();
        }
        if (now_ms < data->reap_time)
                return;
        data->reap_time = now_ms + REAP_NODE_MS;
        reap_shared(cache, node);
        count = free_slabs_due(cache, node);
        if (count)
                node_end_free(cache, node, count);
}

/* Returns the objects of alien and shared arrays to their slabs. */
static void drain_arrays(struct kmem_cache *cache)
{
        for (uint32_t here = 0; here < system_nodes(); here++)
                for (uint32_t home = 0; home < system_nodes(); home++)
                        alien_drain(cache, here, home);
        for (uint32_t node = 0; node < system_nodes(); node++) {
                uint32_t doomed = 0;

                if (!load_acquire(&slab_data(cache)->node[node].shared))
                        continue;
                lock_take(&cache->node[node].list_lock);
                shared_drain_locked(cache, node, UINT32_MAX, &doomed);
                slab_drop_node(cache, node);
                slab_end_all(cache, doomed);
        }
}

static bool slabs_remain(struct kmem_cache *cache)
{
        bool remain = false;

        for (uint32_t node = 0; node < system_nodes(); node++)
                remain |= load_relaxed(&cache->node[node].slabs) != 0;
        return remain;
}

bool slab_shrink(struct kmem_cache *cache)
{
        drain_arrays(cache);
        for (uint32_t node = 0; node < system_nodes(); node++)
                node_end_free(cache, node, UINT64_MAX);
        return slabs_remain(cache);
}

/* Names the objects of a list of slabs that are still in use, the first few of each slab. */
static uint64_t report_leftovers(struct kmem_cache *cache, const struct page_list *list)
{
        uint64_t inuse = 0;

        for (struct page *slab = page_list_first(list); slab; slab = page_list_next(slab)) {
                unsigned int shown = 0;

                inuse += slab->active;
                for (uint32_t index = 0; index < cache->objects && shown < 8; index++) {
                        if (!slab_is_used(cache, slab, index))
                                continue;
                        message("Object %p @offset=%zu", slab_object(cache, slab, index),
                                slab_first_offset(slab) + (size_t)index * cache->size);
                        shown++;
                }
        }
        return inuse;
}

bool slab_teardown(struct kmem_cache *cache)
{
        uint64_t slabs = 0;
        uint64_t inuse = 0;

        drain_arrays(cache);
        for (uint32_t node = 0; node < system_nodes(); node++)
                node_end_free(cache, node, UINT64_MAX);
        if (!slabs_remain(cache)) {
                slab_data_free(cache);
                return false;
        }
        message("BUG %s: Objects remaining on __kmem_cache_shutdown()", cache->name);
        for (uint32_t node = 0; node < system_nodes(); node++) {
                lock_take(&cache->node[node].list_lock);
                inuse += report_leftovers(cache, &cache->node[node].partial);
                inuse += report_leftovers(cache, &slab_data(cache)->node[node].full);
                slabs += load_relaxed(&cache->node[node].slabs);
                slab_drop_node(cache, node);
        }
        engine_report_leaked(cache, inuse, slabs);
        return true;
}
