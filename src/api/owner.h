/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Calls of the library that owns the heap (heap/owner.h). In any other library every call passes
 * through the owner's table.
 */
#ifndef KMEM_API_OWNER_H
#define KMEM_API_OWNER_H

#include "heap/heap.h"
#include "heap/owner.h"
#include "process/start.h"
#include "process/vfork.h"

struct heap_totals;

struct heap_calls {
        struct kmem_cache *(*cache_create)(const char *name, unsigned int size,
                                           const struct kmem_cache_args *args, slab_flags_t flags);
        void (*cache_destroy)(struct kmem_cache *cache);
        int (*cache_shrink)(struct kmem_cache *cache);
        void *(*cache_alloc)(struct kmem_cache *cache, gfp_t flags);
        void (*cache_free)(struct kmem_cache *cache, void *object);
        int (*cache_alloc_bulk)(struct kmem_cache *cache, gfp_t flags, size_t count,
                                void **objects);
        void (*cache_free_bulk)(struct kmem_cache *cache, size_t count, void **objects);
        void *(*block_alloc)(enum class_table table, size_t size, bool zero, const void *site);
        void *(*block_alloc_aligned)(size_t size, size_t align, gfp_t flags, const void *site);
        void *(*block_alloc_accounted)(size_t size, gfp_t flags, const void *site);
        size_t (*block_bytes)(const void *block);
        size_t (*size_roundup)(size_t size);
        void (*block_free)(void *block, const char *call);
        bool (*belongs_to_libc)(const void *block);
        void (*report_bad_free)(const char *call, void *block, const char *wrong);
        void *(*block_resize)(enum class_table table, void *block, size_t old, size_t size,
                              const void *site);
        void (*rcu_read_lock)(void);
        void (*rcu_read_unlock)(void);
        bool (*rcu_read_lock_held)(void);
        void (*synchronize_rcu)(void);
        void (*call_rcu)(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head));
        void (*rcu_barrier)(void);
        bool (*rcu_set_domain)(void (*request)(uint64_t number));
        void (*rcu_domain_done)(uint64_t number);
        void (*free_rcu)(const void *block, const void *head);
        void (*free_rcu_barrier)(void);
        struct kmem_group *(*group_create)(const char *name, struct kmem_group *parent,
                                           size_t limit_bytes);
        long (*group_destroy)(struct kmem_group *group);
        struct kmem_group *(*group_set)(struct kmem_group *group);
        struct kmem_group *(*group_current)(void);
        int (*group_set_limit)(struct kmem_group *group, size_t limit_bytes);
        int (*group_stats)(struct kmem_group *group, struct kmem_group_stats *stats);
        int (*attr_read)(const char *cache, const char *name, char *text, size_t bytes);
        int (*attr_write)(const char *cache, const char *name, const char *value);
        int (*slabinfo_write)(const char *line);
        int (*stats_get)(struct kmem_stats *stats);
        int (*cache_info)(struct kmem_cache *cache, struct kmem_cache_info *info);
        int (*cache_next)(uint64_t *position, struct kmem_cache_info *info);
        enum area_lent (*vfork_prepare)(void);
        void (*vfork_begin_child)(void);
        void (*vfork_end)(enum area_lent lent, bool born);
        void *(*resize)(const void *block, size_t size, gfp_t flags);
        struct lock *(*pool_lock)(const void *pool);
        bool (*total)(struct heap_totals *totals);
        size_t (*trim)(size_t keep);
        int (*print_slabs)(int file);
};

/* The table of this library, or of a library loaded before: only api/bound.c may name it. */
extern KMEM_PUBLIC const struct heap_calls kmem_heap_calls;

/*
 * Addresses as the dynamic linker has bound the names. They may differ from this library's own
 * addresses (api/bound.c).
 */
struct bound_names {
        const struct heap_calls *calls; /* of the library that was loaded first */
        mempool_alloc_t *alloc_slab;
        mempool_alloc_t *alloc_pages;
};
extern KMEM_HIDDEN const struct bound_names bound;

/* owner_block_alloc where this library's heap is not up: starts it, or asks the owner's library. */
KMEM_HIDDEN void *owner_block_alloc_first(enum class_table table, size_t size, bool zero,
                                          const void *site);
/*
 * Memory for a block; NULL without memory or a heap. Arguments are those of block_alloc
 * (heap/heap.h).
 */
static inline void *owner_block_alloc(enum class_table table, size_t size, bool zero,
                                      const void *site)
{
        return heap_is_up() ? block_alloc(table, size, zero, site)
                            : owner_block_alloc_first(table, size, zero, site);
}

static inline void *owner_block_alloc_aligned(size_t size, size_t align, gfp_t flags,
                                              const void *site)
{
        if (likely(heap_ready()))
                return block_alloc_aligned(size, align, flags, site);
        return heap_is_foreign() ? bound.calls->block_alloc_aligned(size, align, flags, site)
                                 : NULL;
}

static inline void *owner_block_alloc_accounted(size_t size, gfp_t flags, const void *site)
{
        if (likely(heap_ready()))
                return block_alloc_accounted(size, flags, site);
        return heap_is_foreign() ? bound.calls->block_alloc_accounted(size, flags, site) : NULL;
}

KMEM_HIDDEN size_t owner_block_bytes(const void *block);
/* @call: the name of the public call. */
KMEM_HIDDEN size_t owner_block_usable_bytes(const void *block, const char *call);
KMEM_HIDDEN void *owner_block_resize(enum class_table table, void *block, size_t old, size_t size,
                                     const void *site);
KMEM_HIDDEN bool owner_belongs_to_libc(const void *block);
KMEM_HIDDEN void owner_report_bad_free(const char *call, void *block, const char *wrong);

/*
 * The slow half of every free but operator delete; @call names the caller's function in reports. Keeps errno. NULL is
 * no block, and nothing happens. Other small addresses are bad frees here.
 */
KMEM_HIDDEN void owner_block_free_slow(void *block, const char *call);
/* Of operator delete. */
KMEM_HIDDEN void owner_block_delete_slow(void *block);
/* The slow half of kfree's family, to which no address up to ZERO_SIZE_PTR is a block (S8-40). */
KMEM_HIDDEN void owner_block_kfree_slow(void *block, const char *call);
/* owner_block_free_slow with the size that the caller knows; another library's heap does not look at it. */
KMEM_HIDDEN void owner_block_free_sized(void *block, size_t size, const char *call);
/* Whether a block of size 0, which has no usable byte, starts there. Only protect=hardened has some. */
KMEM_HIDDEN bool owner_block_is_empty(const void *block);
/* For a caller that knows where the program called. */
KMEM_HIDDEN void owner_block_free_at(void *block, const char *call, const void *site);

static KMEM_ALWAYS_INLINE void owner_block_free(void *block, const char *call)
{
        if (unlikely(!malloc_free_fast(block, load_folded(&fast.heap_units))))
                owner_block_free_slow(block, call);
}

#endif
