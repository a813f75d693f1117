/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The public calls of caches: they check arguments, and the heap does the rest (S8-01 to S8-10). */
#include "api/owner.h"
#include "heap/rcu.h"

#include "engines/debug/debug.h"
#include "heap/accounted.h"
#include "machine/message.h"
#include "base/rcu.h"
#include "machine/stack.h"
#include "lang/text.h"
#include "page/deferred.h"
#include "record/record.h"

#include <errno.h>
#include <string.h>

static const slab_flags_t permitted_flags =
        SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_KMALLOC | SLAB_HWCACHE_ALIGN |
        SLAB_CACHE_DMA | SLAB_CACHE_DMA32 | SLAB_STORE_USER | SLAB_RECLAIM_ACCOUNT | SLAB_PANIC |
        SLAB_TYPESAFE_BY_RCU | SLAB_TRACE | SLAB_DEBUG_OBJECTS | SLAB_NOLEAKTRACE | SLAB_NO_MERGE |
        SLAB_ACCOUNT | SLAB_NO_USER_FLAGS | SLAB_ENGINE_SLUB | SLAB_ENGINE_SLAB | SLAB_ENGINE_SLOB;

enum { WRONG_BYTES = 128 };

/* The fault of the arguments, written to @text, or NULL if there is none (S8-04, S4-05). */
static const char *wrong_arguments(const char *name, unsigned int size,
                                   const struct kmem_cache_args *args, slab_flags_t flags,
                                   char text[WRONG_BYTES])
{
        if (!name || !*name)
                return "expected a name";
        if (size == 0)
                return "size is 0, expected 1 or more";
        if (args->align && (!is_power_of_two(args->align) || args->align > PAGE_SIZE)) {
                text_print(text, WRONG_BYTES,
                           "expected an alignment of 0 or a power of two up to %zu", PAGE_SIZE);
                return text;
        }
        if (flags & ~permitted_flags) {
                text_print(text, WRONG_BYTES, "unknown flag 0x%x, expected SLAB_* flags",
                           flags & ~permitted_flags);
                return text;
        }
        if (flags & CACHE_ENGINE_FLAGS && !is_power_of_two(flags & CACHE_ENGINE_FLAGS))
                return "expected at most one of SLAB_ENGINE_SLUB, SLAB_ENGINE_SLAB, "
                       "SLAB_ENGINE_SLOB";
        if (args->use_freeptr_offset &&
            (!(flags & SLAB_TYPESAFE_BY_RCU || args->ctor) || args->freeptr_offset >= size ||
             args->freeptr_offset % sizeof(void *))) {
                text_print(text, WRONG_BYTES,
                           "freeptr_offset %u, expected a multiple of %zu inside the object, and "
                           "SLAB_TYPESAFE_BY_RCU or a constructor",
                           args->freeptr_offset, sizeof(void *));
                return text;
        }
        if (args->sheaf_capacity > SHEAF_CAPACITY_MAX) {
                text_print(text, WRONG_BYTES, "sheaf_capacity %u, expected 0 to %d",
                           args->sheaf_capacity, SHEAF_CAPACITY_MAX);
                return text;
        }
        return NULL;
}

/* Warns of a bad usercopy region and clears it (S8-04). */
static void check_usercopy(const char *name, unsigned int size, struct kmem_cache_args *args)
{
        if ((args->usersize || !args->useroffset) && args->usersize <= size &&
            args->useroffset <= size - args->usersize)
                return;
        message("kmem_cache_create(%s): usercopy region %u+%u is not inside the %u bytes of the "
                "object; treated as none",
                name, args->useroffset, args->usersize, size);
        args->useroffset = 0;
        args->usersize = 0;
}

KMEM_PUBLIC struct kmem_cache *kmem_cache_create_args(const char *name, unsigned int size,
                                                      const struct kmem_cache_args *given,
                                                      slab_flags_t flags)
{
        struct kmem_cache_args args = given ? *given : (struct kmem_cache_args){0};
        char text[WRONG_BYTES];
        const char *wrong = wrong_arguments(name, size, &args, flags, text);
        struct kmem_cache *cache = NULL;
        int error = EINVAL;

        if (heap_is_foreign()) {
                /*
                 * This call may come before the library's constructor: no fast path may run on an
                 * area that nobody set up.
                 */
                slots_refuse();
                return bound.calls->cache_create(name, size, given, flags);
        }
        if (!wrong) {
                check_usercopy(name, size, &args);
                error = ENOMEM;
                if (heap_ready()) {
                        if (flags & debug_flags_all)
                                stack_prepare();
                        lock_take(&cache_mutex);
                        percpu_follow_cpus_seldom();
                        error = cache_create_locked(name, size, &args, flags, &cache);
                        lock_drop(&cache_mutex);
                }
                if (!error)
                        return cache;
                wrong = error == EINVAL || error == E2BIG ? "the object is too large for a slab"
                        : error == ENOSPC
                                ? "4095 caches exist (accounted and checked ones may count twice)"
                                : "out of memory";
        }
        message("kmem_cache_create(%s) size %u align %u flags 0x%x failed with error %d: %s",
                name ? name : "NULL", size, args.align, flags, error, wrong);
        if (flags & SLAB_PANIC)
                message_fatal("kmem_cache_create(%s): SLAB_PANIC is set", name ? name : "NULL");
        errno = error;
        return NULL;
}

KMEM_PUBLIC struct kmem_cache *(kmem_cache_create)(const char *name, unsigned int size,
                                                   unsigned int align, slab_flags_t flags,
                                                   void (*ctor)(void *object))
{
        struct kmem_cache_args args = {.align = align, .ctor = ctor};

        return kmem_cache_create_args(name, size, &args, flags);
}

KMEM_PUBLIC struct kmem_cache *kmem_cache_create_usercopy(const char *name, unsigned int size,
                                                          unsigned int align, slab_flags_t flags,
                                                          unsigned int useroffset,
                                                          unsigned int usersize,
                                                          void (*ctor)(void *object))
{
        struct kmem_cache_args args = {
                .align = align,
                .useroffset = useroffset,
                .usersize = usersize,
                .ctor = ctor,
        };

        return kmem_cache_create_args(name, size, &args, flags);
}

/*
 * Waits for grace periods without cache_mutex, since a reader may be making a cache. Objects that
 * were given to kfree_rcu must be back before. Readers of objects of a type-safe cache leave before
 * its slabs end, with every back end; pages of slabs that ended earlier (shrink) wait for a grace
 * period of their own, which is over at the latest when the call returns.
 */
KMEM_PUBLIC void kmem_cache_destroy(struct kmem_cache *cache)
{
        bool type_safe;

        if (!cache)
                return;
        if (heap_is_foreign()) {
                bound.calls->cache_destroy(cache);
                return;
        }
        check_may_wait("kmem_cache_destroy");
        cache_check(cache, "kmem_cache_destroy");
        kfree_rcu_wait();
        type_safe = cache->flags & SLAB_TYPESAFE_BY_RCU;
        if (type_safe)
                rcu_wait(rcu_snapshot());
        lock_take(&cache_mutex);
        cache_drop_locked(cache);
        lock_drop(&cache_mutex);
        if (type_safe)
                pages_wait_deferred();
}

KMEM_PUBLIC int kmem_cache_shrink(struct kmem_cache *cache)
{
        if (heap_is_foreign())
                return bound.calls->cache_shrink(cache);
        cache_check(cache, "kmem_cache_shrink");
        if (cache->sheaves_as_7_0)
                kfree_rcu_close_sheaves(cache);
        kfree_rcu_release();
        lock_take(&cache_mutex);
        percpu_follow_cpus_seldom();
        lock_drop(&cache_mutex);
        return cache_shrink(cache);
}

KMEM_PUBLIC unsigned int kmem_cache_size(struct kmem_cache *cache)
{
        return cache->object_size;
}

static KMEM_NOINLINE void *cache_alloc_slow(struct kmem_cache *cache, gfp_t flags)
{
        bool refused;
        void *object;

        if (heap_is_foreign())
                return bound.calls->cache_alloc(cache, flags);
        cache_check(cache, "kmem_cache_alloc");
        object = cache_is_closed(cache) || wants_account(flags)
                         ? accounted_alloc(cache, flags, NODE_ANY, &refused)
                         : percpu_alloc_slow(cache);
        if (unlikely(!object))
                return cache_alloc_failed(cache, flags);
        record_object(cache, object, CALL_SITE);
        if (flags & __GFP_ZERO)
                memset(object, 0, cache->object_size);
        return object;
}

/* Does the part of the flags besides the object: charges it or clears it. */
static KMEM_NOINLINE void *alloc_with_flags(struct kmem_cache *cache, void *object, gfp_t flags)
{
        if (wants_account(flags)) {
                kmem_cache_free(cache, object);
                return cache_alloc_slow(cache, flags);
        }
        if (flags & __GFP_ZERO)
                memset(object, 0, cache->object_size);
        return object;
}

KMEM_FAST_CALL void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags)
{
        void *object = percpu_alloc_fast(cache->fast_offset);

        if (unlikely(!object))
                return cache_alloc_slow(cache, flags);
        if (unlikely(flags & (__GFP_ZERO | __GFP_ACCOUNT)))
                return alloc_with_flags(cache, object, flags);
        return object;
}

KMEM_PUBLIC void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t flags)
{
        return kmem_cache_alloc(cache, flags | __GFP_ZERO);
}

static KMEM_NOINLINE void cache_free_slow(struct kmem_cache *cache, void *object)
{
        if (!object)
                return;
        if (heap_is_foreign())
                bound.calls->cache_free(cache, object);
        else
                cache_free_at(cache, object, CALL_SITE);
}

KMEM_FAST_CALL void kmem_cache_free(struct kmem_cache *cache, void *object)
{
        load_for_push();
        if (unlikely((uintptr_t)object - fast.heap_base >= load_folded(&fast.heap_bytes)) ||
            unlikely(!percpu_free_fast(cache->fast_offset, object)))
                cache_free_slow(cache, object);
}
