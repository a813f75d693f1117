/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libkmem: the Linux slab allocators for programs. This is the public C interface; it also
 * compiles as C++.
 *
 * Threads: every function may be called by any thread at any time, unless it says otherwise.
 * Signal handlers: none may be called from one. After fork: all may be called in the child.
 * Sizes are bytes unless a name says otherwise. Tags such as S8-01 name facts about the
 * kernel's interface that a function follows.
 */
#ifndef KMEM_H
#define KMEM_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KMEM_VERSION "0.1.0"

/* ---- Flags of one request ---------------------------------------------------------------- */

typedef unsigned int gfp_t;

#define __GFP_DMA 0x01u
#define __GFP_HIGHMEM 0x02u
#define __GFP_DMA32 0x04u
#define __GFP_MOVABLE 0x08u
#define __GFP_RECLAIMABLE 0x10u
#define __GFP_HIGH 0x20u
#define __GFP_IO 0x40u
#define __GFP_FS 0x80u
#define __GFP_ZERO 0x100u            /* the object reads as zero */
#define __GFP_DIRECT_RECLAIM 0x400u
#define __GFP_KSWAPD_RECLAIM 0x800u
#define __GFP_WRITE 0x1000u
#define __GFP_NOWARN 0x2000u         /* no message if the request fails */
#define __GFP_RETRY_MAYFAIL 0x4000u
#define __GFP_NOFAIL 0x8000u         /* a failing request stops the process instead */
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

/* ---- Flags of a cache (S8-05) ------------------------------------------------------------ */

typedef unsigned int slab_flags_t;

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

/* What kmalloc(0) returns (S8-40): not to be dereferenced, kfree takes it, ksize is 0. */
#define ZERO_SIZE_PTR ((void *)16)
#define ZERO_OR_NULL_PTR(pointer) ((uintptr_t)(pointer) <= (uintptr_t)ZERO_SIZE_PTR)

/* The largest request that kmalloc and the malloc family try to serve. */
#define KMALLOC_MAX_SIZE ((size_t)PTRDIFF_MAX)

struct kmem_cache;

/* ---- Caches ------------------------------------------------------------------------------ */

/*
 * Rarely used arguments of a new cache (S8-02). All zero is the default of each.
 * @align: least alignment of objects, a power of two up to 4096, or 0.
 * @useroffset, @usersize: the region of an object that may be copied to and from users; kept
 *   and shown, and prevents merging.
 * @freeptr_offset, @use_freeptr_offset: accepted for SLAB_TYPESAFE_BY_RCU caches and checked as
 *   in S4-05; free lists are kept outside objects, so the offset is otherwise without effect.
 * @ctor: run once on each object when its slab is made (S8-31), not on each allocation;
 *   objects are to be freed in constructed state. It may allocate, but not from this cache.
 *   Engine slob keeps nothing constructed and runs it on each allocation (S7-44).
 */
struct kmem_cache_args {
        unsigned int align;
        unsigned int useroffset;
        unsigned int usersize;
        unsigned int freeptr_offset;
        bool use_freeptr_offset;
        void (*ctor)(void *object);
};

/*
 * kmem_cache_create - make a cache of objects of one size (S8-01)
 * @name: shown in tables; copied. Must not be NULL or empty.
 * @size: bytes of an object, 1 or more
 * @align: least alignment, a power of two up to 4096, or 0
 * @flags: SLAB_* flags
 * @ctor: constructor or NULL, see struct kmem_cache_args
 *
 * Returns the cache, or NULL with errno EINVAL (name, size 0, alignment, unknown flag, an object
 * too large for a slab), ENOMEM, or ENOSPC (4,095 caches exist); one line on standard error says
 * which. With SLAB_PANIC the process is stopped instead. If merging is on (option slab_merge)
 * an existing cache of like objects may be returned (S4-40).
 *
 * A second form takes "struct kmem_cache_args *" (NULL: defaults) as third and the flags as
 * fourth argument; in C the type of the third argument selects it, in C++ an overload does.
 */
struct kmem_cache *kmem_cache_create(const char *name, unsigned int size, unsigned int align,
                                     slab_flags_t flags, void (*ctor)(void *object));

/* The second form under a name of its own. */
struct kmem_cache *kmem_cache_create_args(const char *name, unsigned int size,
                                          const struct kmem_cache_args *args, slab_flags_t flags);

/*
 * kmem_cache_destroy - end a cache (S8-08)
 *
 * NULL is allowed. If the cache has aliases only one is taken away. All objects must have been
 * freed and nobody may use the cache any more; objects that remain are reported on standard
 * error, and their slabs leak. Engine slob does not notice them (S7-45).
 */
void kmem_cache_destroy(struct kmem_cache *cache);

/*
 * kmem_cache_alloc - take an object
 * @flags: GFP_*; __GFP_ZERO clears the object
 *
 * Returns the object, aligned to the cache's alignment and at least 8, or NULL with errno
 * ENOMEM. Unless __GFP_NOWARN is given, failures print a line (at most ten a process, S8-46).
 */
void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags) __attribute__((malloc));

/* kmem_cache_alloc with __GFP_ZERO. */
void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t flags) __attribute__((malloc));

/*
 * kmem_cache_free - give an object back
 *
 * @object must come from this cache; an object of another cache goes back to its own, with one
 * line on standard error when it leaves the per-CPU sheaf (S8-42). NULL is ignored.
 */
void kmem_cache_free(struct kmem_cache *cache, void *object);

/*
 * kmem_cache_alloc_bulk - take several objects of one cache at once (S5-01)
 * @count: how many; 0 is allowed
 * @objects: receives the pointers; its content is undefined if the call fails
 *
 * All or nothing: returns @count, or 0 with errno ENOMEM.
 */
int kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t count, void **objects);

/*
 * kmem_cache_free_bulk - give several objects back at once (S5-02)
 * @cache: the cache of all of them, or NULL: each is of any cache, or a large block
 * @objects: garbage afterwards (S5-06); NULL entries are skipped (S5-07)
 */
void kmem_cache_free_bulk(struct kmem_cache *cache, size_t count, void **objects);

/* Exactly kmem_cache_free_bulk(NULL, count, objects) (S5-03). */
void kfree_bulk(size_t count, void **objects);

/*
 * kmem_cache_shrink - give back all slabs without objects (S1-57)
 *
 * Empties the sheaves of all CPUs first. Returns 0 if no slab remains, else 1. Where the kernel
 * refuses membarrier only the calling CPU's sheaves are emptied, and a line says so.
 */
int kmem_cache_shrink(struct kmem_cache *cache);

/* Usable bytes of an object: the size given, grown by aliases (S8-10). */
unsigned int kmem_cache_size(struct kmem_cache *cache);

/*
 * kmem_cache_create with a region of the object that may be copied to and from users (S8-01).
 */
struct kmem_cache *kmem_cache_create_usercopy(const char *name, unsigned int size,
                                              unsigned int align, slab_flags_t flags,
                                              unsigned int useroffset, unsigned int usersize,
                                              void (*ctor)(void *object));

#define NUMA_NO_NODE (-1)

/*
 * kmem_cache_alloc that prefers a NUMA node (S8-20). A node without memory, and NUMA_NO_NODE, is
 * no wish at all; there is one node so far.
 */
void *kmem_cache_alloc_node(struct kmem_cache *cache, gfp_t flags, int node)
        __attribute__((malloc));

struct list_lru;
/* kmem_cache_alloc; the list is accepted and ignored. */
void *kmem_cache_alloc_lru(struct kmem_cache *cache, struct list_lru *lru, gfp_t flags)
        __attribute__((malloc));

/* ---- kmalloc ----------------------------------------------------------------------------- */

/*
 * kmalloc - memory by size (S8-22)
 *
 * Returns memory aligned to 8 or, from 16 bytes on, 16 (power-of-two sizes of the kernel's size
 * classes: to the size, up to 4096; with engine slob 8, and power-of-two sizes to the size),
 * ZERO_SIZE_PTR for size 0, or NULL with errno ENOMEM.
 */
void *kmalloc(size_t size, gfp_t flags) __attribute__((malloc, alloc_size(1)));
/* kmalloc with __GFP_ZERO. */
void *kzalloc(size_t size, gfp_t flags) __attribute__((malloc, alloc_size(1)));
/* @count objects of @size bytes; NULL with ENOMEM if the product overflows. */
void *kmalloc_array(size_t count, size_t size, gfp_t flags)
        __attribute__((malloc, alloc_size(1, 2)));
/* kmalloc_array with __GFP_ZERO. */
void *kcalloc(size_t count, size_t size, gfp_t flags) __attribute__((malloc, alloc_size(1, 2)));

/* The same on a wished node, as kmem_cache_alloc_node. */
void *kmalloc_node(size_t size, gfp_t flags, int node) __attribute__((malloc, alloc_size(1)));
void *kzalloc_node(size_t size, gfp_t flags, int node) __attribute__((malloc, alloc_size(1)));
void *kmalloc_array_node(size_t count, size_t size, gfp_t flags, int node)
        __attribute__((malloc, alloc_size(1, 2)));
void *kcalloc_node(size_t count, size_t size, gfp_t flags, int node)
        __attribute__((malloc, alloc_size(1, 2)));

/* The bytes that a block of @size would have; 0 for 0, @size if it is too large (S8-22). */
size_t kmalloc_size_roundup(size_t size);

/*
 * kvmalloc family: in the kernel, memory that need not be contiguous. Here all memory is, so
 * these are kmalloc's twins, and kvfree and kfree are the same.
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
 * byte; kstrndup copies at most @most characters. NULL strings give NULL.
 */
void *kmemdup(const void *source, size_t bytes, gfp_t flags) __attribute__((malloc));
char *kmemdup_nul(const char *source, size_t bytes, gfp_t flags) __attribute__((malloc));
char *kstrdup(const char *source, gfp_t flags) __attribute__((malloc));
char *kstrndup(const char *source, size_t most, gfp_t flags) __attribute__((malloc));

/*
 * krealloc - change the size of a block (S8-26)
 *
 * NULL and ZERO_SIZE_PTR act as kmalloc; size 0 frees and returns ZERO_SIZE_PTR. Returns the
 * same pointer if the block has room (with __GFP_ZERO the bytes from size on are cleared), else
 * a new block with the old content. On failure NULL, and the old block stays valid.
 */
void *krealloc(const void *block, size_t size, gfp_t flags) __attribute__((alloc_size(2)));

/* krealloc to @count objects of @size bytes; NULL with ENOMEM if the product overflows. */
void *krealloc_array(const void *block, size_t count, size_t size, gfp_t flags)
        __attribute__((alloc_size(2, 3)));

/* Usable bytes of a block, 0 for NULL and ZERO_SIZE_PTR (S8-27). */
size_t ksize(const void *block);

/*
 * kfree - give back memory of kmalloc, kmem_cache_alloc or the malloc family
 *
 * NULL and ZERO_SIZE_PTR are ignored. Objects of caches of engine slob, whose size only
 * kmem_cache_free knows (S5-32), and any other pointer that is not the start of a block are
 * reported with its address, and the process aborts (option bad_free: abort, ignore, libc).
 */
void kfree(const void *block);
/* Clears the whole block (ksize bytes) first; NULL is allowed. */
void kfree_sensitive(const void *block);

static inline void kvfree(const void *block)
{
        kfree(block);
}

#ifdef __cplusplus
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
        _Generic((third),                                                                          \
                struct kmem_cache_args *: kmem_cache_create_args,                                  \
                const struct kmem_cache_args *: kmem_cache_create_args,                            \
                void *: kmem_cache_create_args,                                                    \
                default: kmem_cache_create)(name, size, third, __VA_ARGS__)
#endif

#endif
