/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The life of caches: they are made, merged, shrunk and dropped (S8-01 to S8-10, S4-40 to S4-46).
 */
#include "heap/heap.h"

#include "base/metadata.h"
#include "base/options.h"
#include "engines/debug/debug.h"
#include "heap/accounted.h"
#include "machine/fatal.h"
#include "machine/message.h"
#include "percpu/figures.h"
#include "percpu/handed.h"
#include "percpu/stock.h"
#include "profile/sample.h"
#include "record/record.h"

#include <errno.h>
#include <string.h>

struct list cache_list = {&cache_list, &cache_list};

/*
 * Flags that keep a cache from being merged (S4-40), and flags that two merged caches must share
 * (S4-42).
 */
static const slab_flags_t never_merge = SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER | SLAB_TRACE |
                                        SLAB_TYPESAFE_BY_RCU | SLAB_NOLEAKTRACE | SLAB_NO_MERGE;
static const slab_flags_t merge_same =
        SLAB_RECLAIM_ACCOUNT | SLAB_CACHE_DMA | SLAB_CACHE_DMA32 | SLAB_ACCOUNT;

/*
 * Chooses the engine. An option that names the cache comes first, then the program's flags, then an
 * option for all caches.
 */
static const struct engine *chosen_engine(const char *name, slab_flags_t flags)
{
        uint64_t number;
        enum option_source source = options_for_cache(name, OPTION_ENGINE, &number);

        if (source > OPTION_FOR_ALL || (source && !(flags & CACHE_ENGINE_FLAGS)))
                return engine_by_number(number);
        if (flags & SLAB_ENGINE_SLAB)
                return &slab_engine;
        return flags & SLAB_ENGINE_SLOB ? &slob_engine : &slub_engine;
}

/*
 * Sets engine and flags, with the flags that option debug adds. A debug cache gets the debug back
 * end, whatever engine is chosen; flags that the program gives have an effect in engine slub only
 * (S4-41, S8-05).
 */
static void choose_engine(struct kmem_cache *cache, const char *name, slab_flags_t flags)
{
        cache->engine = chosen_engine(name, flags);
        if (cache->engine != &slub_engine)
                flags &= ~debug_flags_all;
        cache->is_class = flags & CACHE_IS_CLASS;
        cache->flags = debug_flags(name, flags & ~CACHE_IS_CLASS);
        if (cache->flags & debug_flags_all)
                cache->engine = &debug_engine;
}

bool cache_would_have_sheaves(const char *name, slab_flags_t flags)
{
        struct kmem_cache probe = {};

        choose_engine(&probe, name, flags);
        return probe.engine->caching == CACHING_SHEAVES;
}

static uint64_t births; /* under cache_mutex */

/*
 * Records of destroyed caches, oldest first; under cache_mutex. They are not metadata's to reuse: its
 * links would lie where kmem_cache_alloc of a destroyed cache reads the offset of its pair. That is 0
 * here, so the call finds nothing on its fast path, and its slow path sees that nobody has the cache.
 * A record becomes a cache again when RETIRED_LEAST others wait.
 */
enum { RETIRED_LEAST = 16 };
static struct list retired = {&retired, &retired};
uint32_t caches_retired;

static struct kmem_cache *take_record_locked(void)
{
        struct kmem_cache *record;

        if (caches_retired <= RETIRED_LEAST)
                return metadata_alloc(cache_record_bytes());
        record = container_of(retired.next, struct kmem_cache, list);
        list_remove(&record->list);
        caches_retired--;
        memset(record, 0, cache_record_bytes());
        return record;
}

static void retire_record_locked(struct kmem_cache *cache)
{
        list_add_tail(&cache->list, &retired);
        caches_retired++;
}

void cache_was_destroyed(const struct kmem_cache *cache, const char *call)
{
        fatal_call("%s(%p): the cache \"%s\" was destroyed already, and can no longer be used",
                   call, (const void *)cache, cache->name);
}

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

/*
 * Makes the cache that stands for all caches of a back end with shared pages, before the first of
 * these.
 */
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
        struct kmem_cache *cache = take_record_locked();
        int error;

        if (!cache)
                return ENOMEM;
        strcpy(cache->name, name);
        cache->object_size = size;
        cache->align = args->align;
        cache->ctor = args->ctor;
        cache->sheaf_asked = args->sheaf_capacity;
        cache->useroffset = args->usersize ? args->useroffset : 0;
        cache->usersize = args->usersize;
        choose_engine(cache, cache->name, flags);
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
                if (!cache->engine->request && !cache->engine->block_bytes &&
                    !cache_is_checked(cache))
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

bool cache_is_mergeable(const struct kmem_cache *cache)
{
        return options.slab_merge && !cache->ctor && !cache->usersize && !cache->failslab &&
               !cache->sheaf_asked && !(cache->flags & (never_merge | SLAB_KMALLOC)) &&
               !cache->engine->shared;
}

/* The oldest cache that may stand for a new one, or NULL (S4-42). */
static struct kmem_cache *find_mergeable_locked(const char *name, unsigned int size,
                                                const struct kmem_cache_args *args,
                                                slab_flags_t flags)
{
        struct kmem_cache probe = {
                .object_size = size,
                .align = args->align,
                .ctor = args->ctor,
                .usersize = args->usersize,
                .failslab = debug_marks_failslab(name, flags),
        };
        struct list *node;

        choose_engine(&probe, name, flags);
        probe.align = engine_align(&probe);
        /* Debug flags keep caches apart also on an engine that ignores them. */
        if (flags & never_merge || args->sheaf_capacity || !cache_is_mergeable(&probe))
                return NULL;
        for (node = cache_list.prev; node != &cache_list; node = node->prev) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);
                uint32_t rounded = (uint32_t)round_up(round_up(size, sizeof(void *)), probe.align);

                if (!cache_is_mergeable(cache) || cache->engine->number != probe.engine->number)
                        continue;
                if ((cache->flags ^ flags) & merge_same)
                        continue;
                if (rounded > cache->size || cache->size - rounded >= sizeof(void *) ||
                    cache->size % probe.align)
                        continue;
                /* Slab colours move objects in steps of the old cache's alignment (S6-21). */
                if (cache->engine == &slab_engine && cache->align % probe.align)
                        continue;
                return cache;
        }
        return NULL;
}

/* Options apply to the name that the cache gets: @given, cut to its length. */
int cache_create_locked(const char *given, unsigned int size, const struct kmem_cache_args *args,
                        slab_flags_t flags, struct kmem_cache **cache)
{
        char name[CACHE_NAME_BYTES] = "";
        struct kmem_cache *like;

        strncpy(name, given, sizeof(name) - 1);
        like = find_mergeable_locked(name, size, args, flags);
        if (!like || !alias_add_locked(like, name))
                return cache_make_locked(name, args, size, flags, cache);
        /* Relaxed: cache_check reads it. */
        store_relaxed(&like->references, like->references + 1);
        like->object_size = max_of(like->object_size, size);
        if (like->usable_bytes)
                like->usable_bytes = like->object_size;
        like->inuse = max_of(like->inuse, (uint32_t)round_up(size, sizeof(void *)));
        figures_show_cache(like);
        *cache = like;
        return 0;
}

void cache_drop_locked(struct kmem_cache *cache)
{
        store_relaxed(&cache->references, cache->references - 1);
        if (!cache->references) {
                list_remove(&cache->list);
                alias_remove_all_locked(cache);
                percpu_flush(cache, true);
                /* Objects that are left make the record leak too: frees of them may still come. */
                if (cache->engine->teardown(cache)) {
                        figures_show_cache(cache);
                } else {
                        percpu_retire(cache);
                        retire_record_locked(cache);
                }
        } else {
                figures_show_cache(cache);
        }
}

bool cache_shrink(struct kmem_cache *cache)
{
        if (!percpu_flush(cache, false))
                message("kmem_cache_shrink(%s): the kernel refuses membarrier; only the sheaves "
                        "of the calling CPU were emptied",
                        cache->name);
        return cache->engine->shrink(cache);
}

/* Reports a failed allocation (S8-46), in at most ten lines a process. */
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

/*
 * A block that lies in no page of a cache is freed whatever cache the caller names, as kfree would free it; but only a
 * sample or a guarded object can be that cache's.
 */
static KMEM_COLD void check_outside(const struct kmem_cache *cache, const void *block)
{
        bool sampled = in_sample_region(block);
        const struct kmem_cache *own = sampled ? sample_cache(block) : NULL;

        if (sampled ? own && own != cache : block_bytes(block) != 0)
                message("kmem_cache_free(%s, %p): wrong slab cache: the object is from %s",
                        cache->name, block, own ? own->name : "malloc or kmalloc");
}

void cache_free_at(struct kmem_cache *cache, void *object, const void *site)
{
        struct kmem_cache *own = cache_of(object);

        cache_check_free(cache, "kmem_cache_free");
        if (own && own == cache->engine->shared) {
                /* The pages do not tell the cache, so the function believes the caller. */
                if (cache_is_closed(cache))
                        owner_forget(cache, object);
                if (is_recording())
                        record_free(object, site);
                percpu_free_slow(cache, object);
                return;
        }
        if (own && own != cache)
                report_stranger(cache, own, object);
        if (!own)
                check_outside(cache, object);
        block_free_at(object, "kmem_cache_free", site);
}
