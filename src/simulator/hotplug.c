/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The caches' reaction to CPUs that come and leave. The slot of a CPU that leaves is flushed as the
 * slot of any CPU that the process loses (percpu_follow_cpus). The arrays that engine slab keeps
 * for each node follow the CPUs of the node here, because only a simulated machine reports at once
 * which CPU came or left.
 */
#include "percpu/percpu.h"
#include "simulator/machine.h"
#include "engines/slab/slab.h"

/* Empties the arrays that engine slab keeps between CPUs, when the node has no CPU left. */
static void slab_drain_node(struct kmem_cache *cache, uint32_t node)
{
        uint32_t doomed = 0;

        lock_take(&cache->node[node].list_lock);
        shared_drain_locked(cache, node, UINT32_MAX, &doomed);
        lock_drop(&cache->node[node].list_lock);
        slab_end_all(cache, doomed);
        for (uint32_t home = 0; home < machine.nodes; home++)
                alien_drain(cache, node, home);
}

static void slab_end_free(struct kmem_cache *cache, uint32_t node)
{
        uint32_t doomed = 0;
        struct page *slab;

        lock_take(&cache->node[node].list_lock);
        while ((slab = node_unlink_free_locked(cache, node))) {
                slab->next = doomed;
                doomed = page_number(slab);
        }
        lock_drop(&cache->node[node].list_lock);
        slab_end_all(cache, doomed);
}

/* The node may keep fewer free slabs, and without a CPU needs no arrays between CPUs (S6-63). */
static void slab_cpu_left(struct kmem_cache *cache, uint32_t node)
{
        slab_data(cache)->node[node].free_limit -= cache->batchcount;
        if (!system_node_cpus(node) && slab_data(cache)->node[node].shared)
                slab_drain_node(cache, node);
        slab_end_free(cache, node);
}

static void each_slab_cache(unsigned int cpu, void (*act)(struct kmem_cache *cache, uint32_t node))
{
        for (uint32_t index = 1; index < slots_index_end(); index++) {
                struct kmem_cache *cache = caches_by_index[index];

                if (cache && cache->engine == &slab_engine)
                        act(cache, sim.node_of[cpu]);
        }
}

/* The node may keep more free slabs again (S6-63). */
static void slab_cpu_came(struct kmem_cache *cache, uint32_t node)
{
        slab_data(cache)->node[node].free_limit += cache->batchcount;
}

void hotplug_came(unsigned int cpu)
{
        lock_take(&cache_mutex);
        percpu_follow_cpus();
        each_slab_cache(cpu, slab_cpu_came);
        lock_drop(&cache_mutex);
}

void hotplug_left(unsigned int cpu)
{
        lock_take(&cache_mutex);
        percpu_follow_cpus();
        each_slab_cache(cpu, slab_cpu_left);
        lock_drop(&cache_mutex);
}
