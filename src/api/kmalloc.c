/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The kmalloc family (S8-22 to S8-27, S8-40).
 */
#include "api/owner.h"

#include "engines/hardened/hardened.h"
#include "heap/accounted.h"
#include "machine/message.h"
#include "record/record.h"

#include <errno.h>
#include <string.h>

/* is_limited() in the heap that served the request. */
static bool is_limited_there(void)
{
        struct kmem_group_stats stats;

        if (!heap_is_foreign())
                return is_limited();
        return bound.calls->group_current() || bound.calls->group_stats(NULL, &stats) == 0;
}

static KMEM_COLD void *kmalloc_failed(size_t size, gfp_t flags)
{
        static uint32_t warned;

        if (flags & __GFP_NOFAIL)
                message_fatal("kmalloc(%zu): out of memory with __GFP_NOFAIL", size);
        if (!(flags & __GFP_NOWARN) && !is_limited_there() && size <= KMALLOC_MAX_SIZE &&
            add_relaxed(&warned, 1) <= 10)
                message("kmalloc(%zu): out of memory, gfp=0x%x", size, flags);
        errno = ENOMEM;
        return NULL;
}

/* Flags that the heap has to see, beside __GFP_ZERO: whom to charge, and what option failslab may do. */
static bool heap_needs_flags(gfp_t flags)
{
        return unlikely(flags & (__GFP_ACCOUNT | __GFP_NOFAIL | __GFP_NOWARN));
}

static KMEM_NOINLINE void *kmalloc_slow(size_t size, gfp_t flags)
{
        void *block;

        if (size == 0)
                return ZERO_SIZE_PTR;
        if (size > KMALLOC_MAX_SIZE)
                return kmalloc_failed(size, flags);
        block = heap_needs_flags(flags) ? owner_block_alloc_accounted(size, flags, CALL_SITE)
                                        : owner_block_alloc(CLASS_KMALLOC, size,
                                                            (flags & __GFP_ZERO) != 0, CALL_SITE);
        return likely(block) ? block : kmalloc_failed(size, flags);
}

/* The pair offset of the class that serves @size. */
static KMEM_ALWAYS_INLINE uint32_t kmalloc_class(size_t size)
{
        return load_folded(&front()->kmalloc_class[(size - 1) >> CLASS_STEP_SHIFT]);
}

/*
 * Does the part of the flags besides the memory. Accounted memory comes from caches of its own
 * (S11-07).
 */
static KMEM_NOINLINE void *kmalloc_with_flags(void *object, size_t size, gfp_t flags)
{
        if (wants_account(flags)) {
                kfree(object);
                return kmalloc_slow(size, flags);
        }
        if (flags & __GFP_ZERO)
                memset(object, 0,
                       load_acquire(&caches_by_index[kmalloc_class(size) >> PAIR_SHIFT])
                               ->object_size);
        return object;
}

KMEM_FAST_CALL void *kmalloc(size_t size, gfp_t flags)
{
        /*
         * Acquire: pairs with classes_init's release. Here, in front of the other words, because two
         * threads' first calls may meet; whoever calls malloc in a second thread has allocated before.
         */
        size_t limit = load_acquire(&fast.malloc_limit);

        load_for_pop();
        if (likely(size - 1 < limit)) {
                void *object = percpu_alloc_class(kmalloc_class(size));

                if (likely(object)) {
                        if (unlikely(flags & (__GFP_ZERO | __GFP_ACCOUNT)))
                                return kmalloc_with_flags(object, size, flags);
                        return object;
                }
        }
        return kmalloc_slow(size, flags);
}

KMEM_PUBLIC void *kzalloc(size_t size, gfp_t flags)
{
        return kmalloc(size, flags | __GFP_ZERO);
}

KMEM_PUBLIC void *kmalloc_array(size_t count, size_t size, gfp_t flags)
{
        size_t bytes;

        if (unlikely(__builtin_mul_overflow(count, size, &bytes)))
                return kmalloc_failed(SIZE_MAX, flags);
        return kmalloc(bytes, flags);
}

KMEM_PUBLIC void *kcalloc(size_t count, size_t size, gfp_t flags)
{
        return kmalloc_array(count, size, flags | __GFP_ZERO);
}

KMEM_FAST_CALL void kfree(const void *block)
{
        if (unlikely(!block_free_fast((void *)block, load_folded(&fast.heap_bytes))))
                owner_block_kfree_slow((void *)block, "kfree");
}

KMEM_PUBLIC void kfree_sensitive(const void *block)
{
        size_t bytes =
                ZERO_OR_NULL_PTR(block) ? 0 : owner_block_usable_bytes(block, "kfree_sensitive");

        if (bytes) {
                memset((void *)block, 0, bytes);
                /*
                 * The block is about to be freed; the compiler must not drop the stores to it as
                 * unused.
                 */
                __asm__ volatile("" : : "r"(block) : "memory");
        }
        kfree(block);
}

KMEM_PUBLIC size_t ksize(const void *block)
{
        if (ZERO_OR_NULL_PTR(block))
                return 0;
        return owner_block_usable_bytes(block, "ksize");
}

KMEM_PUBLIC void *krealloc(const void *old_block, size_t size, gfp_t flags)
{
        void *block = (void *)old_block;
        size_t old;
        size_t request;

        if (ZERO_OR_NULL_PTR(block))
                return kmalloc(size, flags);
        /* Only the block's own heap knows what was asked for, and so what is to be cleared. */
        if (heap_is_foreign())
                return bound.calls->resize(block, size, flags);
        old = owner_block_bytes(block);
        if (size == 0) {
                kfree(block);
                return ZERO_SIZE_PTR;
        }
        if (old == 0 && owner_belongs_to_libc(block)) {
                errno = EINVAL;
                return NULL;
        }
        if (old == 0) {
                owner_report_bad_free("krealloc", block, "not the start of a block in use");
                errno = EINVAL;
                return NULL;
        }
        request = block_request(block);
        if (size > old) {
                void *resized = NULL;

                if (size <= KMALLOC_MAX_SIZE)
                        resized =
                                heap_needs_flags(flags)
                                        ? block_resize_accounted(block, old, size, flags, CALL_SITE)
                                        : block_resize(CLASS_KMALLOC, block, old, size, CALL_SITE);
                if (!resized)
                        return kmalloc_failed(size, flags);
                if (flags & __GFP_ZERO)
                        memset((char *)resized + request, 0, block_request(resized) - request);
                return resized;
        }
        /* A debug cache clears the rest beyond the request itself. */
        if (flags & __GFP_ZERO && request == old)
                memset((char *)block + size, 0, old - size);
        block_set_request(block, size);
        return block;
}

KMEM_PUBLIC void *krealloc_array(const void *block, size_t count, size_t size, gfp_t flags)
{
        size_t bytes;

        if (unlikely(__builtin_mul_overflow(count, size, &bytes)))
                return kmalloc_failed(SIZE_MAX, flags);
        return krealloc(block, bytes, flags);
}

KMEM_PUBLIC size_t kmalloc_size_roundup(size_t size)
{
        struct kmem_cache *cache;

        if (heap_is_foreign())
                return bound.calls->size_roundup(size);
        /* For the last possible sizes the rounding to whole pages would exceed the limit. */
        if (size == 0 || size > round_down(KMALLOC_MAX_SIZE, PAGE_SIZE) || !heap_ready())
                return size;
        if (hardened_is_on())
                return hardened_round(size, hardened_kmalloc_align(size));
        if (size > class_bytes_max())
                return round_up(size, PAGE_SIZE);
        cache = class_cache(CLASS_KMALLOC, size);
        if (cache && cache->engine->usable_bytes)
                return cache->engine->usable_bytes(size, 0);
        return class_bytes(CLASS_KMALLOC, size);
}
