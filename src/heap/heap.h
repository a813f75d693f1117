/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The common part of the public functions: the start of the heap, size classes, and free by
 * pointer.
 */
#ifndef KMEM_HEAP_HEAP_H
#define KMEM_HEAP_HEAP_H

#include "kmem.h"
#include "percpu/percpu.h"

/* init.c */

extern KMEM_HIDDEN uint32_t heap_state; /* HEAP_READY once set up; release */
enum { HEAP_NEW, HEAP_READY };

/* Held while the heap is set up, which may take any other lock. */
extern KMEM_HIDDEN struct lock heap_start_lock;

/*
 * Sets the heap up if it is not; true if this call did. It never does without memory, nor where
 * another library of ours owns the heap (heap/owner.h).
 */
KMEM_HIDDEN bool heap_start(void);

static inline bool heap_is_up(void)
{
        return likely(load_acquire(&heap_state) == HEAP_READY);
}

/* cache.c */

extern KMEM_HIDDEN struct list cache_list; /* newest first; under cache_mutex */

#define CACHE_ENGINE_FLAGS (SLAB_ENGINE_SLUB | SLAB_ENGINE_SLAB | SLAB_ENGINE_SLOB)
/* A class of malloc and kmalloc. Programs cannot ask for it, and it is no flag of the cache then (is_class). */
#define CACHE_IS_CLASS 0x00000001u

/*
 * Makes a cache with checked arguments, or finds an older cache to merge it with, which counts it
 * in its references; 0 or an errno. Under cache_mutex.
 */
KMEM_HIDDEN int cache_create_locked(const char *given, unsigned int size,
                                    const struct kmem_cache_args *args, slab_flags_t flags,
                                    struct kmem_cache **cache);
/* Ends the cache if no other name stands for it. A cache with objects in use stays, unlisted. */
KMEM_HIDDEN void cache_drop_locked(struct kmem_cache *cache);
/* Records of destroyed caches that are kept for reuse; under cache_mutex. */
extern KMEM_HIDDEN uint32_t caches_retired;
/* Says that @call got a cache that was destroyed, and ends the process. */
KMEM_HIDDEN void cache_was_destroyed(const struct kmem_cache *cache, const char *call)
        __attribute__((noreturn, cold));
/* On the slow paths of calls that get a cache. Relaxed: the caller is to keep its cache alive. */
static inline void cache_check(const struct kmem_cache *cache, const char *call)
{
        if (unlikely(!load_relaxed(&cache->references)))
                cache_was_destroyed(cache, call);
}
/* On those of frees: a cache that was destroyed with objects left still takes these back. */
static inline void cache_check_free(const struct kmem_cache *cache, const char *call)
{
        if (unlikely(!cache->pair_offset))
                cache_was_destroyed(cache, call);
}

/*
 * Makes a cache without checks of arguments and without merging; 0 or an errno. Its name has at
 * most CACHE_NAME_BYTES - 1 characters. Under cache_mutex.
 */
KMEM_HIDDEN int cache_make_locked(const char *name, const struct kmem_cache_args *args,
                                  uint32_t size, slab_flags_t flags, struct kmem_cache **made);

/* Reports why a request failed, unless told not to; sets errno, returns NULL (S8-46). */
KMEM_HIDDEN void *cache_alloc_failed(struct kmem_cache *cache, gfp_t flags);

/*
 * Takes back an object that is not NULL. If its page does not tell the cache, the caller's @cache
 * is believed. @site is the program's call.
 */
KMEM_HIDDEN void cache_free_at(struct kmem_cache *cache, void *object, const void *site);

/*
 * The newest cache that is older than the cache with that birth (0: the newest of all), or NULL.
 * For walks that drop cache_mutex between caches.
 */
KMEM_HIDDEN struct kmem_cache *cache_before_locked(uint64_t birth);

/* Whether a cache with this name and these flags would have sheaves: its engine and debugging say so. */
KMEM_HIDDEN bool cache_would_have_sheaves(const char *name, slab_flags_t flags);
/* Whether other caches may be merged with the cache (S4-40, S4-47). */
KMEM_HIDDEN bool cache_is_mergeable(const struct kmem_cache *cache);
/* kmem_cache_shrink, but it leaves kfree_rcu's blocks. cache_mutex may be held. */
KMEM_HIDDEN bool cache_shrink(struct kmem_cache *cache);

/* names.c; all under cache_mutex. Names have at most CACHE_NAME_BYTES - 1 characters. */

struct cache_alias {
        struct list list;
        struct kmem_cache *cache;
        char name[CACHE_NAME_BYTES];
};
extern KMEM_HIDDEN struct list alias_list; /* oldest first */

/* Gives a cache a second name. False without memory, or if another cache has the name (S4-43). */
KMEM_HIDDEN bool alias_add_locked(struct kmem_cache *cache, const char *name);
/* Does nothing if there is no alias of that name. */
KMEM_HIDDEN void alias_remove_locked(const char *name);
KMEM_HIDDEN void alias_remove_all_locked(const struct kmem_cache *cache);
/*
 * Finds a cache by its own name, an alias or its unique id; the newest if there are several. NULL:
 * none.
 */
KMEM_HIDDEN struct kmem_cache *cache_named_locked(const char *name);
/* The name of the cache's directory in sysfs: the unique id, or its own name (S4-45). */
KMEM_HIDDEN void cache_place_locked(const struct kmem_cache *cache, char place[CACHE_NAME_BYTES]);

/* classes.c: size classes, their caches made when first needed */

/*
 * The two tables of classes: only kmalloc has classes below the 16 bytes of malloc's alignment. CLASS_NEW is
 * malloc's table for operator new, whose blocks protect=hardened tells from others; block_alloc alone takes it.
 */
enum class_table { CLASS_MALLOC, CLASS_KMALLOC, CLASS_NEW };
enum { MALLOC_ALIGN = 16, UNIT_SHIFT = 4 };

KMEM_HIDDEN void classes_init(void);
/*
 * The cache for a size from 1 to class_bytes_max(). NULL if there is none and none can be made, for
 * want of memory or of an index; a large block may do then.
 */
KMEM_HIDDEN struct kmem_cache *class_cache(enum class_table table, size_t size);
/* The cache kmalloc-cg-N for a size; NULL as for class_cache. */
KMEM_HIDDEN struct kmem_cache *class_cache_accounted(size_t size);
/*
 * The cache of the least class for @size with objects aligned to @align; NULL if there is no class,
 * or as for class_cache.
 */
KMEM_HIDDEN struct kmem_cache *class_cache_aligned(size_t size, size_t align);
KMEM_HIDDEN size_t class_bytes_max(void);
/* The cache of whole pages for a larger size that malloc asks for, or NULL. */
KMEM_HIDDEN struct kmem_cache *class_cache_paged(size_t size);
/* Bytes of the object that a request of @size bytes gets, 0 if it has no class. */
KMEM_HIDDEN size_t class_bytes(enum class_table table, size_t size);

/* block.c: blocks by pointer, whatever serves them. @site is the program's call, for recordings. */

/* Memory for @size bytes from a class or as a large block; NULL without memory. */
KMEM_HIDDEN void *block_alloc(enum class_table table, size_t size, bool zero, const void *site);
/* A block aligned to @align, a power of two; flags: __GFP_ACCOUNT. NULL without memory. */
KMEM_HIDDEN void *block_alloc_aligned(size_t size, size_t align, gfp_t flags, const void *site);
/*
 * A block for kmalloc with all its flags. With __GFP_ACCOUNT, and if the thread has a group, the block
 * is charged to it and comes from kmalloc-cg-N (S11-07).
 */
KMEM_HIDDEN void *block_alloc_accounted(size_t size, gfp_t flags, const void *site);
/* Usable bytes; 0 if no block starts there, or a hardened block of size 0. */
KMEM_HIDDEN size_t block_bytes(const void *block);
/* Whether a hardened block of size 0 starts there. */
KMEM_HIDDEN bool block_is_empty(const void *block);
/*
 * Usable bytes for a caller that may write to all of them: a debug cache then gives up its check of
 * the size that was asked for (S8-27). Hardened, it refuses addresses at which no block starts, by the name
 * @call; NULL: it answers 0.
 */
KMEM_HIDDEN size_t block_usable_bytes(const void *block, const char *call);
/* Bytes that were asked for, if a debug cache knows that, else usable bytes. */
KMEM_HIDDEN size_t block_request(const void *block);
/* Tells a debug cache that @size bytes of the block are wanted now. */
KMEM_HIDDEN void block_set_request(void *block, size_t size);
/*
 * Takes back a block that the fast half could not take. @call names the caller's function in
 * reports, @site is the program's call. Keeps errno. NULL is no block, and nothing happens.
 */
KMEM_HIDDEN void block_free_at(void *block, const char *call, const void *site);
/* Ends a sample that lies in the region of samples, or reports a free by @call of what is none. */
KMEM_HIDDEN void block_free_sample(void *block, const char *call);
/* As block_free_at; @size is the size that the block has by the caller, which protect=hardened checks. */
KMEM_HIDDEN void block_free_sized(void *block, size_t size, const char *call, const void *site);
/*
 * The size that realloc asks for if an object of @old bytes is too small for @size bytes and moves.
 * A program that appends in small steps would have its block copied in each class up to the
 * largest. So the block gets a quarter more than it had, up to the @most that an object has. Up to
 * 2 KiB a copy takes little time.
 *
 * It gets no more than the next power of two: programs limit their buffers to these, and a block that
 * ends there would keep the rest for nothing. Three such steps double a block with this limit, too.
 */
static inline size_t size_to_move_to(size_t old, size_t size, size_t most)
{
        size_t more;

        if (old < 2048)
                return size;
        more = min_of(old + old / 4, (size_t)1 << fls(size - 1));
        return max_of(size, min_of(more, most));
}

/*
 * Resizes a block in place or moves it; NULL without memory, then @block is untouched. @old is
 * block_bytes(block). A growing object of malloc's gets size_to_move_to; recordings and debug
 * caches get the size that was asked for.
 */
KMEM_HIDDEN void *block_resize(enum class_table table, void *block, size_t old, size_t size,
                               const void *site);
/* For krealloc with __GFP_ACCOUNT; the content beyond @old is undefined. */
KMEM_HIDDEN void *block_resize_accounted(void *block, size_t old, size_t size, gfp_t flags,
                                         const void *site);

/* bad_free.c */

/* In place of an answer of ksize and the like, in the hardened heap. */
KMEM_HIDDEN void refuse_unknown(const void *block, const char *call);
/* Whether option bad_free=libc treats a block that is not ours as a block of libc's. */
KMEM_HIDDEN bool belongs_to_libc(const void *block);
/* Reports a pointer that cannot be freed, as option bad_free says. */
KMEM_HIDDEN void report_bad_free(const char *call, void *block, const char *wrong);

/*
 * The fast half of every free by pointer; false if the slow half is needed. @bytes: fast.heap_bytes
 * or 0. The half of malloc's family takes @units: fast.heap_units or 0. There an address that no
 * block of malloc's has, since it is no multiple of 16, turns into one beyond all units.
 */
static KMEM_ALWAYS_INLINE bool block_free_fast(void *block, size_t bytes)
{
        uintptr_t offset;

        load_for_push();
        offset = (uintptr_t)block - fast.heap_base;
        return likely(offset < bytes) && likely(!freed_is_marked(block)) &&
               likely(rseq_push_marked(fast.map[offset >> PAGE_SHIFT], block));
}

static KMEM_ALWAYS_INLINE bool malloc_free_fast(void *block, size_t units)
{
        uintptr_t unit;

        load_for_push();
        unit = (uintptr_t)block - fast.heap_base;
        unit = unit >> UNIT_SHIFT | unit << (64 - UNIT_SHIFT);
        return likely(unit < units) && likely(!freed_is_marked(block)) &&
               likely(rseq_push_marked(fast.map[unit >> (PAGE_SHIFT - UNIT_SHIFT)], block));
}

#endif
