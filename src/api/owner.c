/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "api/owner.h"

const struct heap_operations kmem_heap_owner = {
        .cache_create = kmem_cache_create_args,
        .cache_destroy = kmem_cache_destroy,
        .cache_shrink = kmem_cache_shrink,
        .cache_alloc = kmem_cache_alloc,
        .cache_free = kmem_cache_free,
        .cache_alloc_bulk = kmem_cache_alloc_bulk,
        .cache_free_bulk = kmem_cache_free_bulk,
        .block_alloc = block_alloc,
        .block_alloc_aligned = block_alloc_aligned,
        .block_alloc_accounted = block_alloc_accounted,
        .block_bytes = block_usable_bytes,
        .size_roundup = kmalloc_size_roundup,
        .block_free = block_free_slow,
        .block_resize = block_resize,
        .rcu_read_lock = kmem_rcu_read_lock,
        .rcu_read_unlock = kmem_rcu_read_unlock,
        .rcu_read_lock_held = kmem_rcu_read_lock_held,
        .synchronize_rcu = kmem_synchronize_rcu,
        .call_rcu = kmem_call_rcu,
        .rcu_barrier = kmem_rcu_barrier,
        .rcu_set_domain = kmem_rcu_set_domain,
        .rcu_domain_done = kmem_rcu_domain_done,
        .free_rcu = kmem_free_rcu,
        .free_rcu_barrier = kfree_rcu_barrier,
        .group_create = kmem_group_create,
        .group_destroy = kmem_group_destroy,
        .group_set = kmem_group_set,
        .group_current = kmem_group_current,
        .group_set_limit = kmem_group_set_limit,
        .group_stats = kmem_group_stats,
        .attr_read = kmem_attr_read,
        .attr_write = kmem_attr_write,
        .slabinfo_write = kmem_slabinfo_write,
        .stats_get = kmem_stats_get,
        .cache_info = kmem_cache_info,
        .cache_next = kmem_cache_next,
};

/* The same table under a name that always means this library's. */
extern const struct heap_operations own_operations __attribute__((alias("kmem_heap_owner")));
