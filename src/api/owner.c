/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Passes calls to the heap's owner: to this library's heap if it is up, else through the table of
 * the library that owns the heap. The table of this library is here too.
 */
#include "api/owner.h"

#include "engines/hardened/often.h"
#include "heap/pool_locks.h"
#include "heap/reclaim.h"
#include "introspect/slabinfo.h"
#include "introspect/totals.h"
#include "record/record.h"

void *owner_block_alloc_first(enum class_table table, size_t size, bool zero, const void *site)
{
        if (heap_ready())
                return block_alloc(table, size, zero, site);
        return heap_is_foreign() ? bound.calls->block_alloc(table, size, zero, site) : NULL;
}

size_t owner_block_bytes(const void *block)
{
        if (!heap_ready())
                return heap_is_foreign() ? bound.calls->block_bytes(block) : 0;
        return block_bytes(block);
}

size_t owner_block_usable_bytes(const void *block, const char *call)
{
        if (!heap_ready())
                return heap_is_foreign() ? bound.calls->block_bytes(block) : 0;
        return block_usable_bytes(block, call);
}

/* For the table: the other library asks for realloc, too. */
static size_t bytes_for_other(const void *block)
{
        return heap_ready() ? block_usable_bytes(block, NULL) : 0;
}

void *owner_block_resize(enum class_table table, void *block, size_t old, size_t size,
                         const void *site)
{
        return heap_is_foreign() ? bound.calls->block_resize(table, block, old, size, site)
                                 : block_resize(table, block, old, size, site);
}

bool owner_belongs_to_libc(const void *block)
{
        return heap_is_foreign() ? bound.calls->belongs_to_libc(block) : belongs_to_libc(block);
}

void owner_report_bad_free(const char *call, void *block, const char *wrong)
{
        if (heap_is_foreign())
                bound.calls->report_bad_free(call, block, wrong);
        else
                report_bad_free(call, block, wrong);
}

void owner_block_free_at(void *block, const char *call, const void *site)
{
        if (heap_is_foreign() && block)
                bound.calls->block_free(block, call);
        else
                block_free_at(block, call, site);
}

static KMEM_NOINLINE void free_hardened_by_lock(void *block, const char *call, const void *site)
{
        if (unlikely(!hardened_free_often(block, SIZE_MAX, block_form_of(call), true)))
                owner_block_free_at(block, call, site);
}

/*
 * Whether a hardened block was freed that is a frequent case: that calls nothing, so its callers keep no register, nor do
 * they read where they were called. Nothing is contained without option protect=hardened, nor in another library's heap.
 */
static KMEM_ALWAYS_INLINE bool free_hardened(void *block, enum block_form form)
{
        return likely(hardened_contains(block)) && likely(!is_recording()) &&
               likely(!hardened_has_threads()) &&
               likely(hardened_free_often(block, SIZE_MAX, form, false));
}

/* The way of threads is a function of its own, so that the one of a single thread has nothing to keep for a lock. */
static KMEM_ALWAYS_INLINE void free_otherwise(void *block, const char *call, const void *site)
{
        if (hardened_contains(block) && likely(!is_recording()) && hardened_has_threads())
                free_hardened_by_lock(block, call, site);
        else
                owner_block_free_at(block, call, site);
}

KMEM_NOINLINE void owner_block_free_slow(void *block, const char *call)
{
        if (!free_hardened(block, FORM_MALLOC))
                free_otherwise(block, call, CALL_SITE);
}

KMEM_NOINLINE void owner_block_delete_slow(void *block)
{
        if (!free_hardened(block, FORM_NEW))
                free_otherwise(block, "operator delete", CALL_SITE);
}

/* For the table. */
static void free_for_other(void *block, const char *call)
{
        if (block_form_of(call) == FORM_NEW)
                owner_block_delete_slow(block);
        else
                owner_block_free_slow(block, call);
}

KMEM_NOINLINE void owner_block_free_sized(void *block, size_t size, const char *call)
{
        if (heap_is_foreign())
                owner_block_free_at(block, call, CALL_SITE);
        else
                block_free_sized(block, size, call, CALL_SITE);
}

bool owner_block_is_empty(const void *block)
{
        return !heap_is_foreign() && block_is_empty(block);
}

KMEM_NOINLINE void owner_block_kfree_slow(void *block, const char *call)
{
        if (!ZERO_OR_NULL_PTR(block))
                owner_block_free_at(block, call, CALL_SITE);
}

/* For the table: false without a heap. */
static bool total_of_heap(struct heap_totals *totals)
{
        if (!heap_ready())
                return false;
        heap_total(totals);
        return true;
}

static size_t trim_heap(size_t keep)
{
        return heap_ready() ? heap_trim(keep) : 0;
}

const struct heap_calls kmem_heap_calls = {
        .cache_create = kmem_cache_create_args,
        .cache_destroy = kmem_cache_destroy,
        .cache_shrink = kmem_cache_shrink,
        .cache_alloc = kmem_cache_alloc,
        .cache_free = kmem_cache_free,
        .cache_alloc_bulk = kmem_cache_alloc_bulk,
        .cache_free_bulk = kmem_cache_free_bulk,
        .block_alloc = owner_block_alloc,
        .block_alloc_aligned = owner_block_alloc_aligned,
        .block_alloc_accounted = owner_block_alloc_accounted,
        .block_bytes = bytes_for_other,
        .size_roundup = kmalloc_size_roundup,
        .block_free = free_for_other,
        .belongs_to_libc = belongs_to_libc,
        .report_bad_free = report_bad_free,
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
        .vfork_prepare = vfork_prepare,
        .vfork_begin_child = vfork_begin_child,
        .vfork_end = vfork_end,
        .resize = krealloc,
        .pool_lock = pool_lock,
        .total = total_of_heap,
        .trim = trim_heap,
        .print_slabs = slabinfo_write,
};
