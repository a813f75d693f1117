/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libkmem: the Linux slab allocators for programs. This is the public C interface; it also
 * compiles as C++.
 *
 * Threads: every function may be called by any thread at any time, unless it says otherwise. Signal
 * handlers: none may be called from one. After fork: all may be called in the child; none by a handler
 * of fork that pthread_atfork had before the library was loaded. A cache is one
 * that kmem_cache_create returned: with NULL, where a function does not allow it, the process ends
 * by SIGSEGV, as a kernel would stop. Sizes are bytes unless a name says otherwise. A tag in
 * brackets, like (S8-01), is the source of the sentence in front of it: the kernel's rule of that
 * name in docs/kernel-rules.md.
 */
#ifndef KMEM_H
#define KMEM_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
/* As in C, a function may have a struct's name; g++ warns that it hides the constructors. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
/* g++ knows by the extern "C" that casts here are C's, clang++ does not. */
#pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

#define KMEM_VERSION "0.1.0"

/* ---- Flags of a request ------------------------------------------------------------------ */

/*
 * These have an effect: __GFP_ZERO, __GFP_NOWARN, __GFP_NOFAIL, __GFP_ACCOUNT (memory groups
 * below), __GFP_THISNODE (kmem_cache_alloc_node) and, for a mempool, __GFP_DIRECT_RECLAIM: whether
 * the caller may wait. The others concern zones and reclaim, which a process does not have: they
 * are taken and ignored, without the kernel's warning about zones (S8-47).
 */
typedef unsigned int gfp_t;

#define __GFP_DMA 0x01u
#define __GFP_HIGHMEM 0x02u
#define __GFP_DMA32 0x04u
#define __GFP_MOVABLE 0x08u
#define __GFP_RECLAIMABLE 0x10u
#define __GFP_HIGH 0x20u
#define __GFP_IO 0x40u
#define __GFP_FS 0x80u
#define __GFP_ZERO 0x100u /* the object reads as zero, also after its constructor wrote to it */
#define __GFP_DIRECT_RECLAIM 0x400u
#define __GFP_KSWAPD_RECLAIM 0x800u
#define __GFP_WRITE 0x1000u
#define __GFP_NOWARN 0x2000u /* no message if the request fails */
#define __GFP_RETRY_MAYFAIL 0x4000u
#define __GFP_NOFAIL 0x8000u /* a failing request stops the process instead */
#define __GFP_NORETRY 0x10000u
#define __GFP_MEMALLOC 0x20000u
#define __GFP_COMP 0x40000u
#define __GFP_NOMEMALLOC 0x80000u
#define __GFP_HARDWALL 0x100000u
#define __GFP_THISNODE 0x200000u
#define __GFP_ACCOUNT 0x400000u
#define __GFP_RECLAIM (__GFP_DIRECT_RECLAIM | __GFP_KSWAPD_RECLAIM)

#define GFP_ATOMIC (__GFP_HIGH | __GFP_KSWAPD_RECLAIM)
#define GFP_KERNEL (__GFP_RECLAIM | __GFP_IO | __GFP_FS)
#define GFP_KERNEL_ACCOUNT (GFP_KERNEL | __GFP_ACCOUNT)
#define GFP_NOWAIT (__GFP_KSWAPD_RECLAIM | __GFP_NOWARN)
#define GFP_NOIO (__GFP_RECLAIM)
#define GFP_NOFS (__GFP_RECLAIM | __GFP_IO)
#define GFP_USER (__GFP_RECLAIM | __GFP_IO | __GFP_FS | __GFP_HARDWALL)
#define GFP_DMA __GFP_DMA
#define GFP_DMA32 __GFP_DMA32

/* ---- Flags of a cache -------------------------------------------------------------------- */

/* All of these are taken, even if they change nothing here; any other bit is EINVAL (S8-05). */
typedef unsigned int slab_flags_t;

/* CONSISTENCY_CHECKS, RED_ZONE, POISON, STORE_USER and TRACE: debugging, with engine slub only. */
#define SLAB_CONSISTENCY_CHECKS 0x00000100u
#define SLAB_RED_ZONE 0x00000400u
#define SLAB_POISON 0x00000800u
#define SLAB_KMALLOC 0x00001000u
#define SLAB_HWCACHE_ALIGN 0x00002000u
#define SLAB_CACHE_DMA 0x00004000u
#define SLAB_CACHE_DMA32 0x00008000u
#define SLAB_STORE_USER 0x00010000u
#define SLAB_RECLAIM_ACCOUNT 0x00020000u
#define SLAB_TEMPORARY SLAB_RECLAIM_ACCOUNT
#define SLAB_PANIC 0x00040000u
#define SLAB_TYPESAFE_BY_RCU 0x00080000u
#define SLAB_TRACE 0x00200000u
#define SLAB_DEBUG_OBJECTS 0x00400000u
#define SLAB_NOLEAKTRACE 0x00800000u
#define SLAB_NO_MERGE 0x01000000u
#define SLAB_ACCOUNT 0x04000000u
#define SLAB_NO_USER_FLAGS 0x10000000u

/*
 * The back end of the cache, at most one of these three, which the kernel does not have. Option
 * NAME.engine wins over the flag, and the flag over option engine. Caches of different back ends
 * are never merged.
 */
#define SLAB_ENGINE_SLUB 0x20000000u
#define SLAB_ENGINE_SLAB 0x40000000u
#define SLAB_ENGINE_SLOB 0x80000000u

/* The result of kmalloc(0): not to be dereferenced; kfree takes it, and its ksize is 0 (S8-40). */
#define ZERO_SIZE_PTR ((void *)16)
#define ZERO_OR_NULL_PTR(pointer) ((uintptr_t)(pointer) <= (uintptr_t)ZERO_SIZE_PTR)

/* The largest request that kmalloc and the malloc family try to serve. */
#define KMALLOC_MAX_SIZE (SIZE_MAX / 2)

struct kmem_cache;

/* ---- Caches ------------------------------------------------------------------------------ */

/*
 * Rarely used arguments of a new cache. All zero is the default of each (S8-02).
 * @align: least alignment of objects, a power of two up to 4096, or 0.
 * @useroffset, @usersize: the region of an object that may be copied to and from users; kept and
 *   shown, and prevents merging. A region that is not inside the object is reported and ignored.
 * @freeptr_offset, @use_freeptr_offset: where the free pointer lies. For caches with
 *   SLAB_TYPESAFE_BY_RCU or a constructor only, inside the object and a multiple of 8, else EINVAL.
 *   Only debug caches keep their free lists in objects; in others, with option free_pointer=object,
 *   the offset saves the room for a pointer behind the object (S4-05).
 * @sheaf_capacity: objects that a sheaf shall hold at least, up to 1022, else EINVAL. The cache is
 *   not merged then. Only option NAME.sheaf_capacity wins over it; debug caches and the other back
 *   ends have no sheaves (S13-01, S13-03).
 * @ctor: run once on each object when its slab is made, not on each allocation; objects must be
 *   freed in constructed state. It may allocate, but not from this cache (S8-31). Engine slob keeps
 *   nothing constructed and runs it on each allocation (S7-44).
 */
struct kmem_cache_args {
        unsigned int align;
        unsigned int useroffset;
        unsigned int usersize;
        unsigned int freeptr_offset;
        bool use_freeptr_offset;
        unsigned int sheaf_capacity;
        void (*ctor)(void *object);
};

/*
 * kmem_cache_create - make a cache of objects of a size
 * @name: shown in tables; copied, cut off after 47 characters. Must not be NULL or empty; several
 *   caches may share a name
 * @size: bytes of an object, 1 or more
 * @align: least alignment, a power of two up to 4096, or 0
 * @flags: SLAB_* flags
 * @ctor: constructor or NULL, see struct kmem_cache_args
 *
 * Returns the cache, or NULL with errno EINVAL (name, size 0, alignment, unknown flag, flags of two
 * back ends, an object too large for a slab), E2BIG (engine slab finds no place for the list of a
 * slab's free objects, S6-13), ENOMEM, or ENOSPC (4,095 caches exist; accounted caches, and with
 * check=sheaf all caches, may count twice, and kmalloc goes on without a cache). A line on standard
 * error says which. With SLAB_PANIC the process is stopped instead (S8-03, S8-04).
 *
 * If merging is on (option slab_merge) the call may return an existing cache of this back end, with
 * objects that are at most a word larger. Constructors, usercopy regions, SLAB_TYPESAFE_BY_RCU,
 * SLAB_NOLEAKTRACE, SLAB_NO_MERGE and flags of debugging other than SLAB_CONSISTENCY_CHECKS keep a
 * cache from being merged (S4-40, S4-42, S4-44).
 *
 * A second form takes "struct kmem_cache_args *" (NULL: defaults) as third and the flags as fourth
 * argument; in C the type of the third argument selects it, in C++ an overload does (S8-01).
 */
struct kmem_cache *kmem_cache_create(const char *name, unsigned int size, unsigned int align,
                                     slab_flags_t flags, void (*ctor)(void *object));

/* The second form under a name of its own. */
struct kmem_cache *kmem_cache_create_args(const char *name, unsigned int size,
                                          const struct kmem_cache_args *args, slab_flags_t flags);

/*
 * kmem_cache_destroy - end a cache
 *
 * NULL is allowed. If the cache has aliases, the call only takes an alias away. All objects must
 * have been freed and nobody may use the cache any more; objects that remain are reported on
 * standard error, and their slabs leak; engine slob does not notice them (S7-45). Waits for blocks
 * given to kfree_rcu and, with SLAB_TYPESAFE_BY_RCU, until no reader can look at the cache's pages
 * any more (S8-08). A call with a cache that was destroyed ends the process with a line.
 */
void kmem_cache_destroy(struct kmem_cache *cache);

/*
 * kmem_cache_alloc - take an object
 * @flags: GFP_*; __GFP_ZERO clears the object
 *
 * Returns the object, aligned to the cache's alignment and at least 8, or NULL with errno
 * ENOMEM. Unless __GFP_NOWARN is given, a failure prints a line, at most ten a process (S8-46).
 */
void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags) __attribute__((malloc));

/* kmem_cache_alloc with __GFP_ZERO. */
void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t flags) __attribute__((malloc));

/*
 * kmem_cache_free - give an object back
 *
 * @object must come from this cache; an object of another cache goes back to its own cache, with a
 * line on standard error when it leaves the per-CPU sheaf (S8-42). NULL is ignored; ZERO_SIZE_PTR
 * is no object and reported.
 */
void kmem_cache_free(struct kmem_cache *cache, void *object);

/*
 * kmem_cache_alloc_bulk - take several objects of a cache at once
 * @count: how many; 0 is allowed
 * @objects: receives the pointers; its content is undefined if the call fails
 *
 * All or nothing: returns @count, or 0 with errno ENOMEM (S5-01).
 */
int kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t count, void **objects);

/*
 * kmem_cache_free_bulk - give several objects back at once
 * @cache: the cache of all objects, or NULL: each may be of any cache, or a large block (S5-02)
 * @objects: its content is garbage afterwards (S5-06). NULL entries are skipped (S5-07), or reported
 *   as bad frees with bulk_null=refuse; without a cache all other pointers that kfree ignores are skipped
 */
void kmem_cache_free_bulk(struct kmem_cache *cache, size_t count, void **objects);

/* kmem_cache_free_bulk without a cache: each object goes back to its own cache (S5-03). */
void kfree_bulk(size_t count, void **objects);

/*
 * kmem_cache_shrink - give back all slabs without objects
 *
 * Empties the sheaves of all CPUs first. Returns 0 if no slab remains, else 1 (S1-57). If the
 * kernel refuses membarrier, only the calling CPU's sheaves are emptied, and a line says so.
 */
int kmem_cache_shrink(struct kmem_cache *cache);

/* Usable bytes of an object: the size given, grown by aliases (S8-10). */
unsigned int kmem_cache_size(struct kmem_cache *cache);

/*
 * kmem_cache_create with a region of the object that may be copied to and from users. The region is
 * kept, shown and prevents merging; nothing here checks a copy (S8-01).
 */
struct kmem_cache *kmem_cache_create_usercopy(const char *name, unsigned int size,
                                              unsigned int align, slab_flags_t flags,
                                              unsigned int useroffset, unsigned int usersize,
                                              void (*ctor)(void *object));

#define NUMA_NO_NODE (-1)

/*
 * kmem_cache_alloc that prefers a NUMA node: the object is of a slab of that node, unless there is
 * no memory for a slab there; with __GFP_THISNODE that is a failure (S8-20, S12-05). NUMA_NO_NODE,
 * and a node that does not exist, mean no preference (S12-06); engine slob never has any. Nodes
 * have the numbers of /sys/devices/system/node, or, with option numa_fake, the numbers below its
 * value. The system is asked to take a node's pages from its memory; when that is used up it takes
 * them elsewhere, also with __GFP_THISNODE. Errors as kmem_cache_alloc.
 */
void *kmem_cache_alloc_node(struct kmem_cache *cache, gfp_t flags, int node)
        __attribute__((malloc));

struct list_lru;
/* kmem_cache_alloc; the list is accepted and ignored. */
void *kmem_cache_alloc_lru(struct kmem_cache *cache, struct list_lru *lru, gfp_t flags)
        __attribute__((malloc));

/* ---- kmalloc ----------------------------------------------------------------------------- */

/*
 * kmalloc - memory by size
 *
 * Returns memory aligned to 8 or, from 16 bytes on, 16 (power-of-two sizes of the kernel's size
 * classes: to the size, up to 4096; with engine slob 8, and power-of-two sizes of all size classes
 * to the size), ZERO_SIZE_PTR for size 0, or NULL with errno ENOMEM (S8-25, S8-40).
 */
void *kmalloc(size_t size, gfp_t flags) __attribute__((malloc, alloc_size(1)));
/* kmalloc with __GFP_ZERO. */
void *kzalloc(size_t size, gfp_t flags) __attribute__((malloc, alloc_size(1)));
/* @count objects of @size bytes; NULL with ENOMEM if the product overflows. */
void *kmalloc_array(size_t count, size_t size, gfp_t flags)
        __attribute__((malloc, alloc_size(1, 2)));
/* kmalloc_array with __GFP_ZERO. */
void *kcalloc(size_t count, size_t size, gfp_t flags) __attribute__((malloc, alloc_size(1, 2)));

/*
 * kmalloc and its family with a preferred node, as kmem_cache_alloc_node. Blocks too large for a
 * size class, and with protect=hardened all blocks, lie wherever there is memory.
 */
void *kmalloc_node(size_t size, gfp_t flags, int node) __attribute__((malloc, alloc_size(1)));
void *kzalloc_node(size_t size, gfp_t flags, int node) __attribute__((malloc, alloc_size(1)));
void *kmalloc_array_node(size_t count, size_t size, gfp_t flags, int node)
        __attribute__((malloc, alloc_size(1, 2)));
void *kcalloc_node(size_t count, size_t size, gfp_t flags, int node)
        __attribute__((malloc, alloc_size(1, 2)));

/* The bytes that a block of @size would have; 0 for 0, @size if it is too large (S8-22). */
size_t kmalloc_size_roundup(size_t size);

/*
 * kvmalloc family: in the kernel, memory that need not be contiguous. Here all memory is, so these
 * functions equal kmalloc's, and kvfree equals kfree.
 */
static inline void *kvmalloc(size_t size, gfp_t flags)
{
        return kmalloc(size, flags);
}

static inline void *kvzalloc(size_t size, gfp_t flags)
{
        return kmalloc(size, flags | __GFP_ZERO);
}

static inline void *kvmalloc_node(size_t size, gfp_t flags, int node)
{
        return kmalloc_node(size, flags, node);
}

static inline void *kvmalloc_array(size_t count, size_t size, gfp_t flags)
{
        return kmalloc_array(count, size, flags);
}

static inline void *kvcalloc(size_t count, size_t size, gfp_t flags)
{
        return kmalloc_array(count, size, flags | __GFP_ZERO);
}

/*
 * Copies of memory and strings, from kmalloc; NULL with ENOMEM. kmemdup_nul adds a final zero
 * byte; kstrndup copies at most @most characters. NULL gives NULL, but for kmemdup, whose @source
 * must not be NULL unless @bytes is 0.
 */
void *kmemdup(const void *source, size_t bytes, gfp_t flags) __attribute__((malloc));
char *kmemdup_nul(const char *source, size_t bytes, gfp_t flags) __attribute__((malloc));
char *kstrdup(const char *source, gfp_t flags) __attribute__((malloc));
char *kstrndup(const char *source, size_t most, gfp_t flags) __attribute__((malloc));

/*
 * krealloc - change the size of a block
 *
 * NULL and ZERO_SIZE_PTR, and the addresses between, act as kmalloc; size 0 frees and returns
 * ZERO_SIZE_PTR. Returns the same pointer if the block has room, else a new block with the old
 * content. On failure NULL, and the old block stays valid. If all calls for a block had __GFP_ZERO,
 * its new bytes read as zero, also after it was smaller: the bytes from size on are cleared when it
 * shrinks, or, with a red zone there (docs/debugging.md), when it grows again or ksize is called
 * (S8-26).
 */
void *krealloc(const void *block, size_t size, gfp_t flags) __attribute__((alloc_size(2)));

/* krealloc to @count objects of @size bytes; NULL with ENOMEM if the product overflows. */
void *krealloc_array(const void *block, size_t count, size_t size, gfp_t flags)
        __attribute__((alloc_size(2, 3)));

/*
 * Usable bytes of a block. 0 for addresses up to ZERO_SIZE_PTR, NULL among them, and if no block
 * starts there (S8-27). A program that is compiled with _FORTIFY_SOURCE must keep to the size that
 * it asked for, if the compiler knows that size.
 */
size_t ksize(const void *block);

/*
 * kfree - give back memory of kmalloc, kmem_cache_alloc or the malloc family
 *
 * NULL, ZERO_SIZE_PTR and the addresses between them are ignored, as in the kernel; free() and its
 * family ignore NULL only. A pointer that is not the start of a block is reported with its address,
 * and the process aborts (option bad_free: abort, ignore, libc). An object of a cache of engine
 * slob is reported, too: it has no header, and only kmem_cache_free knows its size (S5-32).
 */
void kfree(const void *block);
/* Clears the whole block (ksize bytes) first; NULL is allowed. */
void kfree_sensitive(const void *block);

static inline void kvfree(const void *block)
{
        kfree(block);
}

/* ---- Memory pools ------------------------------------------------------------------------ */

/* The two functions of the allocator behind a pool. */
typedef void *mempool_alloc_t(gfp_t flags, void *pool_data);
typedef void mempool_free_t(void *element, void *pool_data);

/*
 * A pool keeps @min_nr elements in reserve, so that as many users can always make progress even
 * when the machine has no memory. The fields belong to the pool; programs may read min_nr and
 * curr_nr as hints.
 */
typedef struct mempool_s {
        int min_nr;       /* elements that the pool promises */
        int curr_nr;      /* elements in reserve */
        uint32_t wait[2]; /* threads that wait for an element */
        void **elements;  /* the reserve; the last element in goes out first */
        void *pool_data;
        mempool_alloc_t *alloc;
        mempool_free_t *free;
} mempool_t;

/*
 * mempool_create - make a pool and fill its reserve
 * @min_nr: elements in reserve, 0 or more
 * @alloc_fn, @free_fn: the allocator behind the pool; both get @pool_data
 *
 * alloc_fn is called with GFP_KERNEL here. Returns the pool, or NULL with errno EINVAL (negative
 * number, a slab pool of a cache with constructor, or a page pool of an order above 10) or ENOMEM;
 * then nothing is left.
 */
mempool_t *mempool_create(int min_nr, mempool_alloc_t *alloc_fn, mempool_free_t *free_fn,
                          void *pool_data);

/*
 * mempool_init - mempool_create in a struct of the caller's; its old content does not matter
 *
 * Returns 0, -EINVAL or -ENOMEM.
 */
int mempool_init(mempool_t *pool, int min_nr, mempool_alloc_t *alloc_fn, mempool_free_t *free_fn,
                 void *pool_data);

/*
 * mempool_destroy - free a pool and its reserve; NULL is allowed
 *
 * All elements should have been freed and nobody may use the pool any more.
 */
void mempool_destroy(mempool_t *pool);
/* mempool_destroy for mempool_init. A zeroed struct that was never initialised is allowed. */
void mempool_exit(mempool_t *pool);

/*
 * mempool_alloc - take an element
 * @flags: GFP_*. __GFP_ZERO is refused (NULL, EINVAL): elements from the reserve are not cleared.
 *
 * Asks, in this order: alloc_fn without __GFP_DIRECT_RECLAIM and __GFP_IO; the reserve; alloc_fn
 * with @flags. If all fail and @flags has __GFP_DIRECT_RECLAIM, waits until an element is freed, at
 * most 5 s, and begins anew: so it returns NULL (ENOMEM) only if @flags forbids waiting. With
 * __GFP_NOFAIL, which alloc_fn does not get to see, the process is stopped then (S8-28).
 */
void *mempool_alloc(mempool_t *pool, gfp_t flags) __attribute__((malloc));

/* From the reserve only, never waits; NULL (ENOMEM) if it is empty. */
void *mempool_alloc_preallocated(mempool_t *pool) __attribute__((malloc));

/*
 * mempool_free - give an element back; NULL is ignored
 *
 * While the reserve is short of elements, the element goes there and wakes a waiting thread; else
 * it goes to free_fn.
 */
void mempool_free(void *element, mempool_t *pool);

/*
 * mempool_resize - change the number of reserved elements
 * @new_min_nr: 1 or more
 *
 * Shrinking frees surplus elements. Growing allocates as many elements as it can with GFP_KERNEL; a
 * reserve that stays short fills by later frees. Two threads must not call it for a pool at once.
 * Returns 0, -EINVAL, or -ENOMEM (then nothing changed).
 */
int mempool_resize(mempool_t *pool, int new_min_nr);

/* Functions for the three usual kinds of element; pool_data is a cache, a size, an order. */
void *mempool_alloc_slab(gfp_t flags, void *pool_data);
void mempool_free_slab(void *element, void *pool_data);
void *mempool_kmalloc(gfp_t flags, void *pool_data);
void mempool_kfree(void *element, void *pool_data);
void *mempool_alloc_pages(gfp_t flags, void *pool_data);
void mempool_free_pages(void *element, void *pool_data);

static inline bool mempool_initialized(const mempool_t *pool)
{
        return pool->elements != NULL;
}

/* Whether the reserve is full; a hint. */
static inline bool mempool_is_saturated(const mempool_t *pool)
{
        return __atomic_load_n(&pool->curr_nr, __ATOMIC_RELAXED) >=
               __atomic_load_n(&pool->min_nr, __ATOMIC_RELAXED);
}

/* Pools of objects of a cache, which must have no constructor. */
static inline mempool_t *mempool_create_slab_pool(int min_nr, struct kmem_cache *cache)
{
        return mempool_create(min_nr, mempool_alloc_slab, mempool_free_slab, cache);
}

static inline int mempool_init_slab_pool(mempool_t *pool, int min_nr, struct kmem_cache *cache)
{
        return mempool_init(pool, min_nr, mempool_alloc_slab, mempool_free_slab, cache);
}

/* Pools of kmalloc memory of @size bytes. */
static inline mempool_t *mempool_create_kmalloc_pool(int min_nr, size_t size)
{
        return mempool_create(min_nr, mempool_kmalloc, mempool_kfree, (void *)size);
}

static inline int mempool_init_kmalloc_pool(mempool_t *pool, int min_nr, size_t size)
{
        return mempool_init(pool, min_nr, mempool_kmalloc, mempool_kfree, (void *)size);
}

/* Pools of blocks of 2^order pages of 4 KiB, as kmem_pages_alloc: order 0 to 10. */
static inline mempool_t *mempool_create_page_pool(int min_nr, int order)
{
        return mempool_create(min_nr, mempool_alloc_pages, mempool_free_pages,
                              (void *)(intptr_t)order);
}

static inline int mempool_init_page_pool(mempool_t *pool, int min_nr, int order)
{
        return mempool_init(pool, min_nr, mempool_alloc_pages, mempool_free_pages,
                            (void *)(intptr_t)order);
}

/*
 * kmem_pages_alloc - 2^order pages of 4 KiB, aligned to their size
 * @order: 0 to 10; @flags: __GFP_ZERO clears them, __GFP_ACCOUNT charges them to the thread's
 *   memory group, __GFP_NOFAIL stops the process without memory
 *
 * Returns the address, or NULL with errno ENOMEM or EINVAL (order). kfree takes them back.
 */
void *kmem_pages_alloc(gfp_t flags, unsigned int order) __attribute__((malloc));

/* ---- RCU --------------------------------------------------------------------------------- */

/*
 * Read sections cost a few plain instructions and may nest, 65,535 deep. Inside one, objects freed
 * by kfree_rcu, and pages of SLAB_TYPESAFE_BY_RCU caches, keep their content as long as they were
 * reachable when it began (S8-30). A thread is registered from its first read section until it
 * ends; a forked child has the calling thread's sections only. Inside a section, a function that
 * waits for a grace period must not be called: it stops the process with a message, and so does
 * kmem_rcu_read_unlock outside a section. A thread's first section takes a record of it: without
 * memory 64 threads get one from a reserve, and the next thread stops the process with a message.
 * Exception to this file's rule on signal handlers: once a thread has had a section, its handlers may
 * have sections too.
 */
void kmem_rcu_read_lock(void);
void kmem_rcu_read_unlock(void);
/* Whether the calling thread is inside a read section. */
bool kmem_rcu_read_lock_held(void);

/* Waits for a grace period: until all read sections that are running now have ended. */
void kmem_synchronize_rcu(void);

/* The link that kmem_call_rcu uses; anywhere in the object. */
struct kmem_rcu_head {
        struct kmem_rcu_head *next;
        void (*func)(struct kmem_rcu_head *head);
};

/*
 * kmem_call_rcu - run @func(@head) after a grace period
 *
 * Never waits. A thread of the library's own, made at the first call and without signals, runs
 * the functions in the order of the calls; they may call anything but kmem_rcu_barrier.
 */
void kmem_call_rcu(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head));

/* Waits until all functions given to kmem_call_rcu before have run. */
void kmem_rcu_barrier(void);

/*
 * kfree_rcu, kvfree_rcu - free a block after a grace period
 *
 * kfree_rcu(pointer) and, as in the kernel, kfree_rcu(pointer, member), where member is a struct
 * kmem_rcu_head (16 bytes or more) inside the object (S8-22). They take the blocks that kfree
 * takes: of kmalloc and of caches, but for caches of engine slob; NULL is allowed. Blocks are
 * collected and freed by later calls, by kmem_cache_shrink, kmem_cache_destroy and
 * kfree_rcu_barrier. Without memory to collect them the second form uses the member, if it begins
 * in the block's first 4,096 bytes; else, and in the first form, the call waits for a grace period
 * (inside a read section the block leaks, with a message).
 */
#define kfree_rcu(...) KMEM_RCU_FORM(__VA_ARGS__, KMEM_FREE_RCU_2, KMEM_FREE_RCU_1, )(__VA_ARGS__)
#define kvfree_rcu(...) kfree_rcu(__VA_ARGS__)
#define KMEM_RCU_FORM(first, second, form, ...) form
#define KMEM_FREE_RCU_1(pointer) kmem_free_rcu(pointer, NULL)
#define KMEM_FREE_RCU_2(pointer, member)                                                           \
        __extension__({                                                                            \
                __typeof__(pointer) kmem_object_ = (pointer);                                      \
                if (kmem_object_)                                                                  \
                        kmem_free_rcu(kmem_object_, &kmem_object_->member);                        \
        })

/* The function behind the macros; @head may be NULL. */
void kmem_free_rcu(const void *block, const void *head);

/* Waits until all blocks given to kfree_rcu before are free. */
void kfree_rcu_barrier(void);

/*
 * kmem_rcu_set_domain - add the grace periods of another RCU implementation
 * @request: called for each of our grace periods with its number: asks for a grace period of the
 *   other kind that begins now, and makes any thread call kmem_rcu_domain_done with the number at
 *   its end. It is called with locks of the library held: it must neither wait nor allocate.
 *
 * From then on a grace period is over when both kinds are, so readers may use either kind of
 * read section. Returns false if there is a domain already; it stays for ever.
 * (libkmem-urcu.so does this for liburcu.)
 */
bool kmem_rcu_set_domain(void (*request)(uint64_t number));
void kmem_rcu_domain_done(uint64_t number);

/*
 * In libkmem-urcu.so (and -bp, -mb, -qsbr, a library for each flavour of liburcu): always true. The
 * library works by being loaded; a program that calls this is sure to load it when linked with
 * --as-needed.
 */
bool kmem_urcu_is_loaded(void);

/* ---- Memory groups ----------------------------------------------------------------------- */

/*
 * A group is an account of live bytes with a limit. A request is accounted if it has __GFP_ACCOUNT
 * or its cache SLAB_ACCOUNT; it is charged to the calling thread's group and to all ancestors of
 * that, or nowhere if the thread has none (S11-02). The charge is bound to the object: when any
 * thread frees it, the group that was charged is uncharged.
 *
 * An object of a cache is charged its stride and a pointer (S11-03), a large block its pages of 4
 * KiB. Free objects that the library keeps for reuse are not charged.
 *
 * A request that would bring a group above its limit fails like a request without memory: NULL
 * (bulk calls: 0, none of the objects) and ENOMEM, without a message. An order of calls is refused
 * at the same byte in every run. With __GFP_NOFAIL the process is stopped instead.
 *
 * Option memory_limit=BYTES gives the process a group of its own, "process": every allocation is
 * charged to it, malloc and large blocks included, and it is the root of all other groups. NULL
 * stands for it in the calls below.
 *
 * Once a group exists, or with that option, accounted caches leave the fast path and take two of
 * the 4,095 places for caches. kmalloc with __GFP_ACCOUNT comes from caches named kmalloc-cg-N then
 * (S11-07). The first accounted request to a cache without SLAB_ACCOUNT takes it off the fast path
 * too. If the kernel refuses membarrier, these requests are not charged.
 */
struct kmem_group;

/*
 * Figures of a group and its descendants, taken at one moment.
 * @bytes, @objects: charged now; a large block counts as an object
 * @limit: bytes, 0 for none
 * @peak: the highest value of bytes so far
 * @refusals: requests that this group's limit refused; a bulk call counts once
 * @unowned: objects that are not charged because there was no memory to note their group (S11-05)
 */
struct kmem_group_stats {
        size_t bytes;
        size_t objects;
        size_t limit;
        size_t peak;
        size_t refusals;
        size_t unowned;
};

/*
 * kmem_group_create - make a group
 * @name: for tables; copied, cut off after 47 characters. Must not be NULL or empty
 * @parent: its limit holds for this group too; NULL: the process's group, if there is one
 * @limit_bytes: 0 for none
 *
 * Returns the group, or NULL with errno EINVAL (name, a parent that was destroyed), ENOMEM, ENOSPC
 * (no place for another cache), or EPERM (there are caches with SLAB_ACCOUNT from before the first
 * group, and the process has entered a sandbox since that may refuse membarrier).
 */
struct kmem_group *kmem_group_create(const char *name, struct kmem_group *parent,
                                     size_t limit_bytes);

/*
 * kmem_group_destroy - end a group
 *
 * Its threads are in no group from then on. Objects that are still charged to it stay valid; they
 * count in its ancestors until they are freed. Tables show the group's record until then. The
 * pointer must not be used any more. NULL is allowed.
 *
 * Returns the number of objects still charged, or -1 with errno EBUSY (it has groups below it) or
 * EINVAL (destroyed already, or the process's).
 */
long kmem_group_destroy(struct kmem_group *group);

/*
 * kmem_group_set - make a group the calling thread's
 * @group: NULL to leave the present one
 *
 * For the calling thread only: a new thread always begins in no group, which means the process's
 * group if there is one. A forked child's thread stays in its group, with a copy of all groups and
 * charges. Returns the group before. A group that was destroyed sets errno EINVAL and changes
 * nothing.
 */
struct kmem_group *kmem_group_set(struct kmem_group *group);

/* The calling thread's group; NULL if it is in none, or if that group was destroyed. */
struct kmem_group *kmem_group_current(void);

/*
 * kmem_group_set_limit - change a limit
 * @limit_bytes: 0 for none. If it is below the present charge, nothing is taken away, but all
 *   requests are refused until enough was freed.
 *
 * Returns 0, or -1 with errno EINVAL (destroyed; NULL, and the process has no group).
 */
int kmem_group_set_limit(struct kmem_group *group, size_t limit_bytes);

/* Fills @stats; returns 0, or -1 with errno EINVAL as kmem_group_set_limit, also if @stats is NULL. */
int kmem_group_stats(struct kmem_group *group, struct kmem_group_stats *stats);

/* ---- Attributes -------------------------------------------------------------------------- */

/*
 * The files of /sys/kernel/slab/<cache>/ under their kernel names (S9.1, S9.2), and a few of our
 * own; docs/attributes.md lists them. @cache is the name of a cache or an alias, or a unique id
 * like ":0000064"; if several caches have the name, the newest is meant.
 */

/* An attribute's longest text, with its final zero byte; longer lists of CPUs are cut. */
#define KMEM_ATTR_BYTES 4096

/*
 * kmem_attr_read - an attribute's text, as the kernel's file would read
 * @text: receives it, with a newline and a zero byte at the end; empty if there is no value
 * @bytes: room in @text; KMEM_ATTR_BYTES are always enough
 *
 * Figures are exact while no other thread uses the cache. Returns the length of the text, or -1
 * with errno ENOENT (the cache or attribute does not exist) or ENOBUFS (@bytes are too few); then
 * @text is as it was.
 */
int kmem_attr_read(const char *cache, const char *name, char *text, size_t bytes);

/*
 * kmem_attr_write - change an attribute
 * @value: the text for the kernel's file; a newline at the end is allowed. Numbers are decimal.
 *
 * Returns 0, or -1 with errno, and then nothing has changed: ENOENT (the cache or attribute does
 * not exist), EIO (it cannot be written), EINVAL (not a value of this attribute, or not for this
 * cache), ERANGE (a number out of range). May wait for other threads' restartable sequences; must
 * not be called by a constructor.
 */
int kmem_attr_write(const char *cache, const char *name, const char *value);

/*
 * kmem_slabinfo_write - change the tunables of a cache of engine slab
 * @line: the line for /proc/slabinfo: "NAME LIMIT BATCHCOUNT SHAREDFACTOR", at most 128 characters.
 *   LIMIT is the most objects that a CPU's array holds, BATCHCOUNT how many it gets or gives at
 *   once. The CPUs of a node share SHAREDFACTOR times BATCHCOUNT objects. NAME is a cache's name as
 *   in kmem_attr_read, but without a space.
 *
 * All arrays are emptied and made anew, with programs at work. A LIMIT or BATCHCOUNT below 1, a
 * BATCHCOUNT above LIMIT and a negative factor are ignored: 0, and nothing has changed (S6-51).
 *
 * Returns 0, or -1 with errno, and then nothing has changed: EINVAL (not a name and three integers,
 * too long, or the cache does not exist), EIO (the cache has another engine), ERANGE (LIMIT above
 * 65,535, or the factor above 1,024), ENOMEM. May wait and must not be called as kmem_attr_write.
 */
int kmem_slabinfo_write(const char *line);

/* ---- Figures ----------------------------------------------------------------------------- */

/*
 * Both structs begin with their size, so that they can grow: the caller sets it to the size of the
 * struct that it was compiled with, the library fills in the fields that it knows, clears the rest,
 * and sets the size to the bytes that it knows. Fields are only ever added at the end. Figures are
 * exact while no other thread allocates or frees; while some do they are sums of parts that were
 * read in turn, but never below 0.
 */

/*
 * The whole heap of the process.
 * @size: bytes of this struct
 * @caches: caches that exist; @slabs: their slabs
 * @objects_inuse, @objects_free, @objects_resting: objects that the program has; free objects in
 *   slabs and sheaves; the part of the free objects in sheaves and arrays of CPUs
 * @object_bytes_inuse, @object_bytes_free: their bytes by each object's stride; engine slob: exact
 *   bytes
 * @large_blocks, @large_bytes: blocks above the size classes, in whole pages
 * @huge_blocks, @huge_bytes: blocks with mappings of their own
 * @huge_kept_bytes: freed huge mappings that are kept for reuse
 * @bytes_inuse: of objects, large and huge blocks together
 * @page_bytes: bytes of a page in the next five figures
 * @pages_accessible: below the heap's frontier, used and free
 * @pages_used: of slabs and large blocks
 * @pages_free: @pages_free_touched of them not given back to the system
 * @pages_purged: given back since the start
 * @metadata_bytes, @metadata_used_bytes: mapped for the library's own records, and in use
 * @objects_taken: objects that left back ends for the program or for sheaves, since the start
 * @large_taken: large and huge blocks handed out since the start
 *
 * With protect=hardened all blocks of malloc and kmalloc, large ones too, count as objects in use, and
 * their bytes by stride, or for large ones by the size asked for. The rest of their slabs, with freed
 * blocks that wait, is in @object_bytes_free; they are in no figure of slabs, free objects, large or
 * huge blocks, or pages.
 */
struct kmem_stats {
        size_t size;
        uint64_t caches;
        uint64_t slabs;
        uint64_t objects_inuse;
        uint64_t objects_free;
        uint64_t objects_resting;
        uint64_t object_bytes_inuse;
        uint64_t object_bytes_free;
        uint64_t large_blocks;
        uint64_t large_bytes;
        uint64_t huge_blocks;
        uint64_t huge_bytes;
        uint64_t huge_kept_bytes;
        uint64_t bytes_inuse;
        uint64_t page_bytes;
        uint64_t pages_accessible;
        uint64_t pages_used;
        uint64_t pages_free;
        uint64_t pages_free_touched;
        uint64_t pages_purged;
        uint64_t metadata_bytes;
        uint64_t metadata_used_bytes;
        uint64_t objects_taken;
        uint64_t large_taken;
};

/*
 * kmem_stats_get - figures of the process's heap
 * @stats: receives them; stats->size is sizeof(*stats)
 *
 * Takes the locks of the caches in turn and looks at every CPU's sheaves: some microseconds a
 * cache. Not to be called by a constructor. Returns 0, or -1 with errno EINVAL (NULL, or a size
 * below that of the field itself) or ENOMEM (there is no heap and none can be made).
 */
int kmem_stats_get(struct kmem_stats *stats);

#define KMEM_NAME_BYTES 48

/*
 * A cache: the figures of /proc/slabinfo, and more.
 * @size: bytes of this struct
 * @id: identifies the cache; no other cache of the process ever has it, and newer caches have
 *   greater ids
 * @name, @engine: with a zero byte
 * @object_size: usable bytes of an object; @slab_size: its stride; @align: its alignment
 * @flags: SLAB_*; @aliases: names beside its own (S4-40)
 * @objects_inuse: objects that the program has; @objects_resting: free objects in sheaves and
 *   arrays
 * @active_objs, @num_objs, @objperslab, @pagesperslab, @limit, @batchcount, @sharedfactor,
 *   @active_slabs, @num_slabs, @sharedavail: the columns of /proc/slabinfo by their names there.
 *   Active objects are in use, resting, or in CPU slabs and on CPU partial lists (S9-11, S6-70)
 * @partial_slabs: on lists of nodes
 * @min_partial, @cpu_partial, @sheaf_capacity: the attributes of these names
 * @taken, @given: objects that left the back end and came back to it, since the cache was made
 */
struct kmem_cache_info {
        size_t size;
        uint64_t id;
        char name[KMEM_NAME_BYTES];
        char engine[8];
        uint32_t object_size;
        uint32_t slab_size;
        uint32_t align;
        uint32_t flags;
        uint32_t aliases;
        uint32_t objperslab;
        uint32_t pagesperslab;
        uint32_t limit;
        uint32_t batchcount;
        uint32_t sharedfactor;
        uint64_t objects_inuse;
        uint64_t objects_resting;
        uint64_t active_objs;
        uint64_t num_objs;
        uint64_t active_slabs;
        uint64_t num_slabs;
        uint64_t sharedavail;
        uint64_t partial_slabs;
        uint64_t min_partial;
        uint32_t cpu_partial;
        uint32_t sheaf_capacity;
        uint64_t taken;
        uint64_t given;
};

/*
 * kmem_cache_info - figures of a cache
 * @cache: of kmem_cache_create
 * @info: receives them; info->size is sizeof(*info)
 *
 * Returns 0, or -1 with errno EINVAL (NULL, no cache of this process, or a size below that of the
 * field itself). Must not be called by a constructor.
 */
int kmem_cache_info(struct kmem_cache *cache, struct kmem_cache_info *info);

/*
 * kmem_cache_next - walk over all caches, also those of malloc and kmalloc
 * @position: 0 before the first; the call moves it on
 * @info: receives the next cache's figures; info->size is sizeof(*info), anew for each call
 *
 * From the newest cache to the oldest, each once. Caches may be made and destroyed meanwhile, by
 * this thread too. A cache that exists all the time is not left out; a cache that was made after
 * the walk began is not in it. No lock is held between calls.
 *
 * Returns 1, or 0 behind the last, or -1 with errno EINVAL (NULL, or a size below that of the field
 * itself). Must not be called by a constructor.
 */
int kmem_cache_next(uint64_t *position, struct kmem_cache_info *info);

#ifdef __cplusplus
#pragma GCC diagnostic pop
} /* extern "C" */

/* The args form of kmem_cache_create, selected by its third argument. */
static inline struct kmem_cache *kmem_cache_create(const char *name, unsigned int size,
                                                   const struct kmem_cache_args *args,
                                                   slab_flags_t flags)
{
        return kmem_cache_create_args(name, size, args, flags);
}
#else
#define kmem_cache_create(name, size, third, ...)                                                  \
        __extension__ _Generic((third),                                                            \
                struct kmem_cache_args *: kmem_cache_create_args,                                  \
                const struct kmem_cache_args *: kmem_cache_create_args,                            \
                void *: kmem_cache_create_args,                                                    \
                default: kmem_cache_create)(name, size, third, __VA_ARGS__)
#endif

#endif
