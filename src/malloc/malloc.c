/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The drop-in malloc: every C and POSIX allocation symbol. Alignment is 16; memory comes from
 * kmalloc's caches too, so free and kfree are interchangeable.
 *
 * Works before constructors and after destructors, since the heap starts itself and is never
 * taken down, and there is no work at thread exit.
 */
#define _GNU_SOURCE
#include "malloc/malloc.h"

#include "engines/hardened/often.h"
#include "machine/system.h"
#include "record/record.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* libc's own realloc, for option bad_free=libc; glibc exports it under this name. */
extern void *__libc_realloc(void *block, size_t size) __attribute__((weak));

/* libc's headers do not declare these: they are gone from glibc, or newer than it. */
void cfree(void *block);
void free_sized(void *block, size_t size);
void free_aligned_sized(void *block, size_t align, size_t size);

static KMEM_COLD void *out_of_memory(void)
{
        errno = ENOMEM;
        return NULL;
}

static KMEM_ALWAYS_INLINE void *malloc_general(enum class_table table, size_t size, bool zero,
                                               const void *site)
{
        void *block;

        if (unlikely(size > KMALLOC_MAX_SIZE))
                return out_of_memory();
        block = owner_block_alloc(table, size, zero, site);
        return likely(block) ? block : out_of_memory();
}

KMEM_NOINLINE void *malloc_slow_at(size_t size, const void *site)
{
        return malloc_general(CLASS_MALLOC, size, false, site);
}

static KMEM_NOINLINE void *malloc_hardened_by_lock(size_t size, const void *site)
{
        void *object = hardened_take_often(size, FORM_MALLOC, true);

        return likely(object) ? object : malloc_slow_at(size, site);
}

/* The frequent case of option protect=hardened, which keeps no register for a call; else malloc_slow_at. */
static KMEM_NOINLINE void *malloc_hardened(size_t size, const void *site)
{
        void *object;

        if (unlikely(is_recording()))
                return malloc_slow_at(size, site);
        /* A function of its own, so that the way of a single thread has nothing to keep for a lock. */
        if (hardened_has_threads())
                return malloc_hardened_by_lock(size, site);
        object = hardened_take_often(size, FORM_MALLOC, false);
        return likely(object) ? object : malloc_slow_at(size, site);
}

KMEM_NOINLINE void *new_slow_at(size_t size, const void *site)
{
        return malloc_general(CLASS_NEW, size, false, site);
}

KMEM_NOINLINE void *malloc_slow(size_t size)
{
        return hardened_is_often(size) ? malloc_hardened(size, CALL_SITE)
                                       : malloc_slow_at(size, CALL_SITE);
}

KMEM_FAST_CALL void *malloc(size_t size)
{
        void *object = malloc_fast(size, fast.malloc_limit);

        return likely(object) ? object : malloc_slow(size);
}

static void *malloc_at(size_t size, const void *site)
{
        void *object = malloc_fast(size, fast.malloc_limit);

        return likely(object) ? object : malloc_slow_at(size, site);
}

KMEM_FAST_CALL void free(void *block)
{
        owner_block_free(block, "free");
}

KMEM_FAST_CALL void *calloc(size_t count, size_t size)
{
        size_t bytes;
        void *object;

        if (unlikely(__builtin_mul_overflow(count, size, &bytes)))
                return out_of_memory();
        object = malloc_fast(bytes, fast.malloc_limit);
        if (likely(object))
                return memset(object, 0, bytes);
        /* Hardened blocks read as zero. */
        if (hardened_is_often(bytes))
                return malloc_hardened(bytes, CALL_SITE);
        return malloc_general(CLASS_MALLOC, bytes, true, CALL_SITE);
}

/* The cache of a pair offset that malloc_class gives; NULL if the class has none yet. */
static KMEM_ALWAYS_INLINE const struct kmem_cache *cache_of_class(uint16_t entry)
{
        return load_acquire(&caches_by_index[entry >> PAIR_SHIFT]);
}

/* Whether malloc(@size) would take an object of this cache; false where the fast path does not serve it. */
static KMEM_ALWAYS_INLINE bool is_class_of(const struct kmem_cache *cache, size_t size)
{
        return size - 1 < fast.malloc_limit && cache_of_class(malloc_class(size)) == cache;
}

static KMEM_NOINLINE void *realloc_slow(void *block, size_t size, const void *site)
{
        void *resized;
        size_t old;

        if (!block)
                return malloc_at(size, site);
        if (size == 0) {
                owner_block_free(block, "realloc");
                return NULL;
        }
        if (unlikely(size > KMALLOC_MAX_SIZE))
                return out_of_memory();
        old = owner_block_bytes(block);
        if (unlikely(old == 0) && !owner_block_is_empty(block)) {
                if (owner_belongs_to_libc(block) && __libc_realloc)
                        return __libc_realloc(block, size);
                owner_report_bad_free("realloc", block, "not the start of a block in use");
                errno = EINVAL;
                return NULL;
        }
        resized = owner_block_resize(CLASS_MALLOC, block, old, size, site);
        return likely(resized) ? resized : out_of_memory();
}

/* By the fast paths, if they serve it. @old: bytes of the object. */
static KMEM_NOINLINE void *realloc_move(void *block, size_t old, size_t size, const void *site)
{
        size_t wanted = size > old ? size_to_move_to(old, size, fast.malloc_limit) : size;
        void *moved = malloc_fast(wanted, fast.malloc_limit);

        if (unlikely(!moved))
                return realloc_slow(block, size, site);
        memcpy(moved, block, min_of(old, size));
        free(block);
        return moved;
}

/* The most frequent cases of block_resize are done without it. All calls are jumps. */
static KMEM_ALWAYS_INLINE void *realloc_at(void *block, size_t size, const void *site)
{
        const struct kmem_cache *cache = cache_of(block);
        size_t old;

        if (unlikely(!cache || is_recording()))
                return realloc_slow(block, size, site);
        old = cache->usable_bytes;
        if (unlikely(!old || !size || !cache_is_known_object(cache, block) ||
                     freed_is_marked(block)))
                return realloc_slow(block, size, site);
        if (size <= old && (size >= old / 2 || is_class_of(cache, size)))
                return block;
        return realloc_move(block, old, size, site);
}

/* As glibc: NULL acts as malloc; size 0 frees and returns NULL. */
KMEM_PUBLIC void *realloc(void *block, size_t size)
{
        return realloc_at(block, size, CALL_SITE);
}

KMEM_PUBLIC void *reallocarray(void *block, size_t count, size_t size)
{
        size_t bytes;

        if (unlikely(__builtin_mul_overflow(count, size, &bytes)))
                return out_of_memory();
        return realloc_at(block, bytes, CALL_SITE);
}

/*
 * Takes an object from the class of @size rounded up to @align, if its objects have that alignment;
 * NULL if the slow path is needed.
 */
static KMEM_ALWAYS_INLINE void *aligned_fast(size_t align, size_t size)
{
        size_t rounded = round_up(size, align);
        const struct kmem_cache *cache;
        uint16_t entry;

        if (align <= MALLOC_ALIGN_BYTES)
                return malloc_fast(size, fast.malloc_limit);
        /* 0 for a size of 0, and for a size that is too large to be rounded. */
        if (unlikely(rounded - 1 >= fast.malloc_limit))
                return NULL;
        entry = malloc_class(rounded);
        cache = cache_of_class(entry);
        return likely(cache && cache->align >= align) ? percpu_alloc_class(entry) : NULL;
}

static KMEM_NOINLINE void *aligned_slow(size_t align, size_t size, const void *site)
{
        void *block;

        if (align <= MALLOC_ALIGN_BYTES)
                return malloc_slow_at(size, site);
        if (unlikely(size > KMALLOC_MAX_SIZE))
                return out_of_memory();
        block = owner_block_alloc_aligned(size, align, 0, site);
        return likely(block) ? block : out_of_memory();
}

void *malloc_aligned(size_t align, size_t size, const void *site)
{
        void *block = aligned_fast(align, size);

        return likely(block) ? block : aligned_slow(align, size, site);
}

static void *aligned_alloc_at(size_t align, size_t size, const void *site)
{
        if (unlikely(!is_power_of_two(align))) {
                errno = EINVAL;
                return NULL;
        }
        return malloc_aligned(align, size, site);
}

/*
 * C11 and POSIX want a power of two. glibc 2.36 rounds other alignments up; newer versions refuse
 * them, as this function does.
 */
KMEM_PUBLIC void *aligned_alloc(size_t align, size_t size)
{
        return aligned_alloc_at(align, size, CALL_SITE);
}

/* An alignment that is no power of two is rounded up, as by glibc. */
KMEM_PUBLIC void *memalign(size_t align, size_t size)
{
        if (align <= MALLOC_ALIGN_BYTES)
                align = MALLOC_ALIGN_BYTES;
        else if (align <= SIZE_MAX / 2 + 1)
                align = (size_t)1 << fls(align - 1);
        return aligned_alloc_at(align, size, CALL_SITE);
}

static KMEM_NOINLINE int posix_memalign_slow(void **result, size_t align, size_t size,
                                             const void *site)
{
        int saved_errno = errno;
        void *block = aligned_slow(align, size, site);

        if (unlikely(!block))
                return ENOMEM;
        errno = saved_errno;
        *result = block;
        return 0;
}

/*
 * Returns 0 or the error, and leaves *result alone on failure (POSIX). As with glibc, errno is
 * ENOMEM too, but keeps its value if @align is wrong, which returns EINVAL.
 */
KMEM_PUBLIC int posix_memalign(void **result, size_t align, size_t size)
{
        void *block;

        if (unlikely(!is_power_of_two(align) || align % sizeof(void *)))
                return EINVAL;
        block = aligned_fast(align, size);
        if (unlikely(!block))
                return posix_memalign_slow(result, align, size, CALL_SITE);
        *result = block;
        return 0;
}

KMEM_PUBLIC void *valloc(size_t size)
{
        return malloc_aligned(system_page_bytes(), size, CALL_SITE);
}

KMEM_PUBLIC void *pvalloc(size_t size)
{
        if (unlikely(size > KMALLOC_MAX_SIZE))
                return out_of_memory();
        return malloc_aligned(system_page_bytes(), round_up(size ? size : 1, system_page_bytes()),
                              CALL_SITE);
}

/*
 * 0 for NULL, for a freed block, and for an address that is no multiple of 16. The whole object is
 * usable, also for programs built with _FORTIFY_SOURCE=3: nothing of the library lies in it.
 */
KMEM_PUBLIC size_t malloc_usable_size(void *block)
{
        const struct kmem_cache *cache = cache_of(block);

        /*
         * The function does not check that a block starts there: that would read the slab, and some
         * programs ask at each free.
         */
        if (likely(cache && cache->usable_bytes) &&
            likely((uintptr_t)block % MALLOC_ALIGN_BYTES == 0 && !freed_is_marked(block)))
                return cache->usable_bytes;
        return block ? owner_block_usable_bytes(block, "malloc_usable_size") : 0;
}

KMEM_PUBLIC void cfree(void *block)
{
        owner_block_free(block, "cfree");
}

/* C23. The page map knows the cache; protect=hardened alone looks at the size. */
KMEM_PUBLIC void free_sized(void *block, size_t size)
{
        if (unlikely(!malloc_free_fast(block, load_folded(&fast.heap_units))))
                owner_block_free_sized(block, size, "free_sized");
}

/* As free_sized. */
KMEM_PUBLIC void free_aligned_sized(void *block, size_t align, size_t size)
{
        if (hardened_contains(block))
                owner_block_free_sized(block, hardened_round(size, align), "free_aligned_sized");
        else
                owner_block_free(block, "free_aligned_sized");
}
