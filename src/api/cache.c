/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Caches are made, merged, shrunk and destroyed (S8-01 to S8-10, S4-40 to S4-46).
 */
#include "heap/owner.h"
#include "heap/rcu.h"

#include "heap/accounted.h"
#include "machine/message.h"
#include "base/metadata.h"
#include "base/options.h"
#include "base/rcu.h"
#include "machine/stack.h"
#include "lang/text.h"
#include "engines/debug/debug.h"
#include "page/deferred.h"
#include "percpu/figures.h"
#include "percpu/handed.h"
#include "percpu/stock.h"
#include "record/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct list cache_list = {&cache_list, &cache_list};

static const slab_flags_t permitted_flags =
        SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_KMALLOC | SLAB_HWCACHE_ALIGN |
        SLAB_CACHE_DMA | SLAB_CACHE_DMA32 | SLAB_STORE_USER | SLAB_RECLAIM_ACCOUNT | SLAB_PANIC |
        SLAB_TYPESAFE_BY_RCU | SLAB_TRACE | SLAB_DEBUG_OBJECTS | SLAB_NOLEAKTRACE | SLAB_NO_MERGE |
        SLAB_ACCOUNT | SLAB_NO_USER_FLAGS | SLAB_ENGINE_SLUB | SLAB_ENGINE_SLAB | SLAB_ENGINE_SLOB;
static const slab_flags_t engine_flags = SLAB_ENGINE_SLUB | SLAB_ENGINE_SLAB | SLAB_ENGINE_SLOB;

/* Flags that keep a cache from being merged (S4-40), and those that must agree (S4-42). */
static const slab_flags_t never_merge = SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER | SLAB_TRACE |
                                        SLAB_TYPESAFE_BY_RCU | SLAB_NOLEAKTRACE | SLAB_NO_MERGE;
static const slab_flags_t merge_same =
        SLAB_RECLAIM_ACCOUNT | SLAB_CACHE_DMA | SLAB_CACHE_DMA32 | SLAB_ACCOUNT;

/* Who names a cache in an option knows it better than the program, which knows it better than all. */
static const struct engine *chosen_engine(const char *name, slab_flags_t flags)
{
        uint64_t number;
        enum option_source source = options_for_cache(name, OPTION_ENGINE, &number);

        if (source > OPTION_FOR_ALL || (source && !(flags & engine_flags)))
                return engine_by_number(number);
        if (flags & SLAB_ENGINE_SLAB)
                return &slab_engine;
        return flags & SLAB_ENGINE_SLOB ? &slob_engine : &slub_engine;
}

static const slab_flags_t debugging =
        SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER | SLAB_TRACE;

/* With what option debug adds; only engine slub has debugging (S4-41, S8-05). */
static slab_flags_t effective_flags(const char *name, const struct engine *engine,
                                    slab_flags_t flags)
{
        return engine == &slub_engine ? debug_flags(name, flags) : flags & ~debugging;
}

static uint64_t births; /* under cache_mutex */

/* The newest cache older than @birth, 0 for the newest of all; NULL at the end. */
struct kmem_cache *cache_before_locked(uint64_t birth)
{
        struct list *node;

        list_for_each (node, &cache_list) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);

                if (!birth || cache->birth < birth)
                        return cache;
        }
        return NULL;
}

/* Before the first cache of a back end whose caches share pages: what stands for those. */
static int share_pages_locked(const struct engine *engine)
{
        struct kmem_cache *shared = engine->shared;
        int error;

        if (!shared || shared->pair_offset)
                return 0;
        error = percpu_setup(shared);
        if (error)
                return error;
        shared->birth = ++births;
        figures_show_cache(shared);
        list_add(&shared->list, &cache_list);
        return 0;
}

int cache_make_locked(const char *name, const struct kmem_cache_args *args, uint32_t size,
                      slab_flags_t flags, struct kmem_cache **made)
{
        struct kmem_cache *cache = metadata_alloc(cache_record_bytes());
        int error;

        if (!cache)
                return ENOMEM;
        strcpy(cache->name, name);
        cache->object_size = size;
        cache->align = args->align;
        cache->ctor = args->ctor;
        cache->useroffset = args->usersize ? args->useroffset : 0;
        cache->usersize = args->usersize;
        cache->engine = chosen_engine(cache->name, flags);
        cache->flags = effective_flags(cache->name, cache->engine, flags);
        cache->free_pointer =
                args->use_freeptr_offset ? args->freeptr_offset : FREE_POINTER_ANYWHERE;
        cache->failslab = debug_marks_failslab(cache->name, flags);
        cache->references = 1;
        cache->remote_node_defrag_ratio = REMOTE_NODE_DEFRAG_RATIO;
        error = share_pages_locked(cache->engine);
        cache->birth = ++births;
        if (!error)
                error = cache->engine->setup(cache);
        if (!error) {
                if (!cache->debug && !cache->engine->block_bytes && !cache_is_checked(cache))
                        cache->usable_bytes = size;
                error = percpu_setup(cache);
                if (error)
                        cache->engine->teardown(cache);
        }
        if (error) {
                metadata_free(cache, cache_record_bytes());
                return error;
        }
        alias_remove_locked(cache->name);
        list_add(&cache->list, &cache_list);
        figures_show_cache(cache);
        if (is_recording())
                record_cache(cache_index(cache), cache->name);
        *made = cache;
        return 0;
}

enum { WRONG_BYTES = 80 };

/* What is wrong with the arguments, or NULL (S8-04, S4-05); @text is room for it. */
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
        if (flags & ~permitted_flags)
                return "unknown flag";
        if (flags & engine_flags && !is_power_of_two(flags & engine_flags))
                return "expected at most one of SLAB_ENGINE_SLUB, SLAB_ENGINE_SLAB, "
                       "SLAB_ENGINE_SLOB";
        if (args->use_freeptr_offset &&
            (!(flags & SLAB_TYPESAFE_BY_RCU) || args->freeptr_offset >= size ||
             args->freeptr_offset % sizeof(void *)))
                return "freeptr_offset needs SLAB_TYPESAFE_BY_RCU, a word-aligned offset inside "
                       "the object";
        return NULL;
}

/* A bad usercopy region is warned of and treated as none (S8-04). */
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

bool cache_is_mergeable(const struct kmem_cache *cache)
{
        return options.slab_merge && !cache->ctor && !cache->usersize && !cache->failslab &&
               !(cache->flags & (never_merge | SLAB_KMALLOC)) && !cache->engine->shared;
}

/* The oldest cache that may stand for a new one, or NULL (S4-42). */
static struct kmem_cache *find_mergeable_locked(const char *name, unsigned int size,
                                                const struct kmem_cache_args *args,
                                                slab_flags_t flags)
{
        struct kmem_cache probe = {
                .engine = chosen_engine(name, flags),
                .object_size = size,
                .align = args->align,
                .free_pointer = FREE_POINTER_ANYWHERE,
                .ctor = args->ctor,
                .usersize = args->usersize,
                .failslab = debug_marks_failslab(name, flags),
        };
        struct list *node;

        probe.flags = effective_flags(name, probe.engine, flags);
        /* What was asked for keeps caches apart also on an engine that does nothing about it. */
        if (flags & never_merge || !cache_is_mergeable(&probe) || slub_engine.setup(&probe))
                return NULL;
        for (node = cache_list.prev; node != &cache_list; node = node->prev) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);
                uint32_t rounded = (uint32_t)round_up(round_up(size, sizeof(void *)), probe.align);

                if (!cache_is_mergeable(cache) || cache->engine != probe.engine)
                        continue;
                if ((cache->flags ^ flags) & merge_same)
                        continue;
                if (rounded > cache->size || cache->size - rounded >= sizeof(void *) ||
                    cache->size % probe.align)
                        continue;
                /* Its slabs begin with a colour, in steps of the cache's own alignment (S6-21). */
                if (cache->engine == &slab_engine && cache->align % probe.align)
                        continue;
                return cache;
        }
        return NULL;
}

/* Options look at the name that the cache gets: that given, cut. */
static int create_locked(const char *given, unsigned int size, const struct kmem_cache_args *args,
                         slab_flags_t flags, struct kmem_cache **cache)
{
        char name[CACHE_NAME_BYTES] = "";
        struct kmem_cache *like;

        strncpy(name, given, sizeof(name) - 1);
        like = find_mergeable_locked(name, size, args, flags);
        if (!like || !alias_add_locked(like, name))
                return cache_make_locked(name, args, size, flags, cache);
        like->references++;
        like->object_size = max_of(like->object_size, size);
        if (like->usable_bytes)
                like->usable_bytes = like->object_size;
        like->inuse = max_of(like->inuse, (uint32_t)round_up(size, sizeof(void *)));
        figures_show_cache(like);
        *cache = like;
        return 0;
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
                /* Before our constructor ran: no fast path may run on an area nobody set up. */
                slots_refuse();
                return bound.heap_owner->cache_create(name, size, given, flags);
        }
        if (!wrong) {
                check_usercopy(name, size, &args);
                error = ENOMEM;
                if (heap_ready()) {
                        if (flags & debugging)
                                stack_prepare();
                        lock_take(&cache_mutex);
                        percpu_follow_cpus_seldom();
                        error = create_locked(name, size, &args, flags, &cache);
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
 * Grace periods are waited for without cache_mutex: a reader may be making a cache. Objects given
 * to kfree_rcu must be back before. Readers that stand on objects of a type-safe cache leave
 * before its slabs end, whatever the back end; pages of slabs that ended earlier (shrink) wait for
 * a grace period of their own, which is over at the latest when this returns.
 */
KMEM_PUBLIC void kmem_cache_destroy(struct kmem_cache *cache)
{
        bool type_safe;

        if (!cache)
                return;
        if (heap_is_foreign()) {
                bound.heap_owner->cache_destroy(cache);
                return;
        }
        check_may_wait("kmem_cache_destroy");
        kfree_rcu_barrier();
        type_safe = cache->flags & SLAB_TYPESAFE_BY_RCU;
        if (type_safe)
                rcu_wait(rcu_snapshot());
        lock_take(&cache_mutex);
        if (--cache->references == 0) {
                list_remove(&cache->list);
                alias_remove_all_locked(cache);
                percpu_flush(cache, true);
                /* With leftovers the record leaks too: frees of them may still come. */
                if (cache->engine->teardown(cache)) {
                        figures_show_cache(cache);
                } else {
                        percpu_retire(cache);
                        metadata_free(cache, cache_record_bytes());
                }
        } else {
                figures_show_cache(cache);
        }
        lock_drop(&cache_mutex);
        if (type_safe)
                pages_wait_deferred();
}

bool cache_shrink(struct kmem_cache *cache)
{
        if (!percpu_flush(cache, false))
                message("kmem_cache_shrink(%s): the kernel refuses membarrier; only the sheaves "
                        "of the calling CPU were emptied",
                        cache->name);
        return cache->engine->shrink(cache);
}

KMEM_PUBLIC int kmem_cache_shrink(struct kmem_cache *cache)
{
        if (heap_is_foreign())
                return bound.heap_owner->cache_shrink(cache);
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

/* S8-46, at most ten lines a process. */
KMEM_COLD void *cache_alloc_failed(struct kmem_cache *cache, gfp_t flags)
{
        static uint32_t warned;

        if (flags & __GFP_NOFAIL)
                message_fatal("kmem_cache_alloc(%s): out of memory with __GFP_NOFAIL", cache->name);
        if (!(flags & __GFP_NOWARN) && !is_limited() && add_relaxed(&warned, 1) <= 10)
                message("%s: Unable to allocate memory, gfp=0x%x; cache: %s, object size: %u, "
                        "buffer size: %u, default order: %u, min order: %u",
                        cache->engine->title, flags, cache->name, cache->object_size, cache->size,
                        cache->order, cache->min_order);
        errno = ENOMEM;
        return NULL;
}

static KMEM_NOINLINE void *cache_alloc_slow(struct kmem_cache *cache, gfp_t flags)
{
        bool refused;
        void *object;

        if (heap_is_foreign())
                return bound.heap_owner->cache_alloc(cache, flags);
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

/* What the flags ask for besides an object. */
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
        void *object = percpu_alloc_fast(cache->pair_offset);

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
        const void *site = CALL_SITE;
        struct kmem_cache *own;

        if (!object)
                return;
        if (heap_is_foreign()) {
                bound.heap_owner->cache_free(cache, object);
                return;
        }
        own = cache_of(object);
        if (own && own == cache->engine->shared) {
                /* The pages do not tell the cache, so the caller's word counts. */
                if (cache_is_closed(cache))
                        owner_forget(cache, object);
                if (is_recording())
                        record_free(object, site);
                percpu_free_slow(cache, object);
                return;
        }
        if (own && own != cache)
                report_stranger(cache, own, object);
        block_free_at(object, "kmem_cache_free", site);
}

KMEM_FAST_CALL void kmem_cache_free(struct kmem_cache *cache, void *object)
{
        load_for_push();
        if (unlikely((uintptr_t)object - fast.heap_base >= fast.heap_bytes) ||
            unlikely(!percpu_free_fast(cache->pair_offset, object)))
                cache_free_slow(cache, object);
}
