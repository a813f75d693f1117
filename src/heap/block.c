/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Blocks by pointer: a block is an object of a cache or a large block, and its address tells which:
 * by the page map entry, else the page descriptor, else the table of huge blocks.
 */
#include "heap/heap.h"

#include "account/owners.h"
#include "engines/hardened/hardened.h"
#include "heap/accounted.h"
#include "machine/fatal.h"
#include "machine/message.h"
#include "base/options.h"
#include "page/cleared.h"
#include "page/large.h"
#include "percpu/figures.h"
#include "percpu/handed.h"
#include "percpu/marks.h"
#include "percpu/rest.h"
#include "record/record.h"

#include <errno.h>
#include <string.h>

/* A smaller object would waste most of a mapping of its own. */
enum { MAPPED_ALONE_BYTES = 2048 };

/* The alignment of malloc's blocks in bytes; for kmalloc the engine has its own rule. */
static size_t exact_align(enum class_table table)
{
        return table == CLASS_MALLOC ? MALLOC_ALIGN : 0;
}

/* Tells a debug cache how much of the object was asked for; returns the object. */
static inline void *with_request(struct kmem_cache *cache, void *object, size_t size)
{
        if (unlikely(cache->engine->set_request) && object)
                cache->engine->set_request(cache, object, size);
        return object;
}

static void *object_alloc(struct kmem_cache *cache, gfp_t flags, bool *refused)
{
        void *object;

        *refused = false;
        object = cache_is_closed(cache) ? accounted_alloc(cache, flags, NODE_ANY, refused)
                                        : percpu_alloc(cache);
        return percpu_unmarked(cache, object);
}

/* Whether a request that no longer fits the reservation may find room outside it. */
static bool may_lie_outside(const void *object, bool refused, size_t size)
{
        return unlikely(!object) && !refused && size >= MAPPED_ALONE_BYTES;
}

/*
 * The alignment of an object of a size class that is guarded, in bytes: malloc's, or for kmalloc that
 * of the class.
 */
static size_t guard_align(enum class_table table, const struct kmem_cache *cache)
{
        size_t natural = cache->size & -cache->size;

        return table == CLASS_MALLOC ? MALLOC_ALIGN
                                     : min_of(max_of((size_t)cache->align, natural), PAGE_SIZE);
}

/*
 * A cleared object of a class of pages, or NULL for a long one that would have pages never touched and is
 * not to be written as a whole. Programs fill a block of up to WRITTEN_MOST, and a page that is read first
 * would cost a fault for the system's page of zeros and a second one, which stops other CPUs.
 */
static void *cleared_pages(struct kmem_cache *cache, size_t size, bool *refused)
{
        bool write_all = size <= WRITTEN_MOST || cleared_are_filled(size);
        void *object = percpu_unmarked(cache, percpu_alloc_resting(cache));

        if (!object && (write_all || pages_free_touched() >= pages_for(size)))
                object = object_alloc(cache, 0, refused);
        if (!object)
                return NULL;
        if (write_all)
                memset(object, 0, size);
        else
                cleared_make_zero(object, pages_for(size));
        cleared_given(object, size, write_all);
        return object;
}

/*
 * Objects of these classes are too large for marks. While there is a profile, a coin is thrown for each call
 * instead, and an object that it chooses becomes a sample where it lies, still warm from its last use.
 */
static void *alloc_pages_of_class(size_t size, gfp_t flags)
{
        struct kmem_cache *cache = NULL;
        bool refused = false;
        void *object;

        /* A pair of such calls passes no other place where requests of other processes are seen. */
        figures_poll_often();
        if (!(flags & ~__GFP_ZERO))
                cache = class_cache_paged(size);
        if (!cache)
                return accounted_large_alloc(size, PAGE_SIZE, flags);
        object = flags & __GFP_ZERO ? cleared_pages(cache, size, &refused)
                                    : object_alloc(cache, 0, &refused);
        if (likely(object)) {
                rest_went(cache, slot_current());
                if (is_profiling() && sample_throw(object, size))
                        figures_poll();
        }
        if (likely(object || refused))
                return object;
        return accounted_large_alloc(size, PAGE_SIZE, flags);
}

/* @flags: __GFP_ZERO, and for option failslab __GFP_NOFAIL and __GFP_NOWARN; others have no effect. */
static void *alloc_by_size(enum class_table table, size_t size, gfp_t flags)
{
        struct kmem_cache *cache;
        bool refused;
        void *object;

        if (size > class_bytes_max())
                return table == CLASS_MALLOC ? alloc_pages_of_class(size, flags)
                                             : accounted_large_alloc(size, PAGE_SIZE, flags);
        cache = class_cache(table, size);
        if (unlikely(!cache))
                return accounted_large_alloc(size, PAGE_SIZE, flags);
        if (cache->engine->alloc_bytes)
                return accounted_alloc_bytes(cache, size, exact_align(table), flags);
        object = object_alloc(cache, flags, &refused);
        if (may_lie_outside(object, refused, size))
                return accounted_large_alloc(size, PAGE_SIZE, flags);
        if (in_guard_region(object)) {
                object = guard_fit(object, size, guard_align(table, cache));
                return flags & __GFP_ZERO ? memset(object, 0, size) : object;
        }
        /* kzalloc clears the whole object: krealloc relies on that (S8-26). */
        if (object && flags & __GFP_ZERO)
                memset(object, 0, table == CLASS_KMALLOC ? cache->object_size : size);
        return with_request(cache, object, size);
}

/* Notes an allocation for a recording. */
static void *recorded(void *block, size_t size, const void *site)
{
        if (is_recording() && !ZERO_OR_NULL_PTR(block))
                record_alloc(block, size, block_bytes(block), 0, site);
        return block;
}

static KMEM_NOINLINE void *alloc_hardened_slow(size_t size, size_t align, enum block_form form,
                                               const void *site)
{
        figures_poll();
        return recorded(hardened_alloc(size, align, form), size, site);
}

/* The alignment of a hardened block in bytes, for a request that names none. */
static inline size_t hardened_align(enum class_table table, size_t size)
{
        return table == CLASS_KMALLOC ? hardened_kmalloc_align(size) : 1;
}

/* A hardened block, which reads as zero in any case. Its calls are jumps, as it is on the way of every block. */
static inline void *alloc_hardened(enum class_table table, size_t size, size_t align,
                                   const void *site)
{
        enum block_form form = table == CLASS_NEW ? FORM_NEW : FORM_MALLOC;

        if (unlikely(figures_are_asked() || is_recording()))
                return alloc_hardened_slow(size, align, form, site);
        return hardened_alloc(size, align, form);
}

static KMEM_NOINLINE void *alloc_plain(enum class_table table, size_t size, bool zero,
                                       const void *site)
{
        /* Size 0 gives a distinct object that can be freed, as programs expect of malloc. */
        size = max_of(size, (size_t)1);
        if (table == CLASS_NEW)
                table = CLASS_MALLOC;
        return recorded(alloc_by_size(table, size, zero ? __GFP_ZERO : 0), size, site);
}

void *block_alloc(enum class_table table, size_t size, bool zero, const void *site)
{
        if (hardened_is_on())
                return alloc_hardened(table, size, hardened_align(table, size), site);
        return alloc_plain(table, size, zero, site);
}

static void *alloc_aligned(size_t size, size_t align, gfp_t flags)
{
        struct kmem_cache *cache = NULL;
        bool refused;

        /*
         * There are no aligned caches kmalloc-cg-N, so accounted aligned blocks are large blocks.
         */
        if (size <= class_bytes_max() && align <= PAGE_SIZE && !wants_account(flags))
                cache = class_cache_aligned(max_of(size, (size_t)1), align);
        if (cache && cache->engine->alloc_bytes)
                return accounted_alloc_bytes(cache, max_of(size, (size_t)1), align, 0);
        if (cache) {
                void *object = object_alloc(cache, 0, &refused);

                if (may_lie_outside(object, refused, size))
                        return accounted_large_alloc(size, PAGE_SIZE, 0);
                if (in_guard_region(object))
                        return guard_fit(object, max_of(size, (size_t)1), align);
                return with_request(cache, object, size);
        }
        /* Objects of the classes of pages lie on pages. */
        if (size > class_bytes_max() && align <= PAGE_SIZE)
                return alloc_pages_of_class(size, flags);
        return accounted_large_alloc(max_of(size, (size_t)1), max_of(align, PAGE_SIZE), flags);
}

void *block_alloc_aligned(size_t size, size_t align, gfp_t flags, const void *site)
{
        if (hardened_is_on())
                return alloc_hardened(CLASS_MALLOC, size, align, site);
        return recorded(alloc_aligned(size, align, flags), size, site);
}

static void *alloc_accounted(size_t size, gfp_t flags)
{
        struct kmem_cache *cache;
        bool refused;
        void *object;

        if (!wants_account(flags))
                return alloc_by_size(CLASS_KMALLOC, size, flags & ~__GFP_ACCOUNT);
        if (size > class_bytes_max())
                return accounted_large_alloc(size, PAGE_SIZE, flags);
        cache = class_cache_accounted(size);
        if (unlikely(!cache))
                return accounted_large_alloc(size, PAGE_SIZE, flags);
        if (cache->engine->alloc_bytes)
                return accounted_alloc_bytes(cache, size, exact_align(CLASS_KMALLOC), flags);
        object = accounted_alloc(cache, flags, NODE_ANY, &refused);
        if (may_lie_outside(object, refused, size))
                return accounted_large_alloc(size, PAGE_SIZE, flags);
        if (object && flags & __GFP_ZERO)
                memset(object, 0, cache->object_size);
        return with_request(cache, object, size);
}

void *block_alloc_accounted(size_t size, gfp_t flags, const void *site)
{
        if (hardened_is_on())
                return alloc_hardened(CLASS_KMALLOC, size, hardened_kmalloc_align(size), site);
        return recorded(alloc_accounted(size, flags), size, site);
}

/*
 * Whether an object, at whose start the pointer points, was freed and has not been handed out since,
 * as far as marks tell (percpu/freed.h). Objects of debug caches are always in their slabs.
 */
static bool is_freed(struct kmem_cache *cache, const void *object)
{
        if (unlikely(cache->engine->caching == CACHING_NONE))
                return cache->engine->is_free && cache->engine->is_free(cache, object);
        return unlikely(freed_is_marked(object)) && cache->marks_freed && !cache_is_closed(cache) &&
               percpu_is_free(cache, object);
}

size_t block_bytes(const void *block)
{
        struct kmem_cache *cache;
        bool known;

        if (in_sample_region(block))
                return sample_bytes(block);
        if (hardened_is_on() && !heap_contains(block))
                return hardened_bytes(block, &known);
        cache = cache_of(block);
        if (!cache)
                return large_size(block);
        if (cache->engine->block_bytes)
                return cache->engine->block_bytes(block);
        if (cache_is_checked(cache) && !handed_is_marked(block))
                return 0;
        return cache_is_object(cache, block) && !is_freed(cache, block) ? cache->object_size : 0;
}

bool block_is_empty(const void *block)
{
        bool known;

        return hardened_is_on() && !heap_contains(block) && hardened_bytes(block, &known) == 0 &&
               known;
}

void block_set_request(void *block, size_t size)
{
        struct kmem_cache *cache = cache_of(block);

        if (cache)
                with_request(cache, block, size);
}

size_t block_request(const void *block)
{
        const struct kmem_cache *cache = cache_of(block);

        return cache && unlikely(cache->engine->request) ? cache->engine->request(cache, block)
                                                         : block_bytes(block);
}

size_t block_usable_bytes(const void *block, const char *call)
{
        size_t bytes = block_bytes(block);

        if (unlikely(!bytes) && hardened_is_on() && call)
                refuse_unknown(block, call);
        block_set_request((void *)block, bytes);
        return bytes;
}

KMEM_NOINLINE void block_free_sample(void *block, const char *call)
{
        struct kmem_cache *cache;

        figures_poll();
        if (!sample_free(block, &cache))
                report_bad_free(call, block, "not the start of an object that is in use");
        else if (cache)
                marks_put(cache);
}

/* The fault of a free, in a checked cache that has handed out nothing at that address. */
static KMEM_COLD const char *not_handed_out(const struct kmem_cache *cache, const void *block)
{
        return cache_is_object(cache, block) ? "free already (double free), or never handed out"
                                             : "inside an object, not at its start";
}

/* Written only where it changes, as the fast path of every thread reads it. */
static void open_fast_frees(void)
{
        size_t bytes = load_relaxed(&heap.accessible_bytes);

        if (load_folded(&fast.heap_bytes) != bytes) {
                /* Relaxed: hints. Partner: load_folded. */
                store_relaxed(&fast.heap_bytes, bytes);
                store_relaxed(&fast.heap_units, bytes >> UNIT_SHIFT);
        }
}

/* Frees an object that is no sample. Returns NULL, or what is wrong with the free. */
static const char *plain_object_free(struct kmem_cache *cache, void *object)
{
        static const char *const twice = "free already (double free)";
        bool marks = cache->marks_freed && !cache_is_closed(cache);

        if (cache->engine->caching != CACHING_NONE && !cache_is_object(cache, object))
                return "inside an object, not at its start";
        if (marks && is_freed(cache, object))
                return twice;
        if (marks)
                freed_mark(object);
        return percpu_free_slow(cache, object) ? NULL : twice;
}

/*
 * Frees an object whose cache has no owners to be told, and ends its sample if it is one. Returns NULL, or
 * what is wrong with the free.
 */
static const char *object_free(struct kmem_cache *cache, void *object)
{
        uint32_t sample = sample_take(object);
        const char *wrong = plain_object_free(cache, object);

        sample_end(sample, object, !wrong);
        return wrong;
}

/*
 * The free of an object whose class looks at frees (cache_looks_at_frees, percpu.c) by a push onto its own pair, as
 * the fast half does it. False for all other blocks, and where there is more to do: then nothing has happened. Of the
 * classes that mark free objects, those of pages alone look at frees.
 */
static inline bool free_looked_at(struct kmem_cache *cache, void *block)
{
        struct slot *slot;

        load_for_push();
        if (cache->fast_offset == cache->pair_offset || !cache->marks_freed ||
            may_be_sample(block) || !cache_is_object(cache, block) || freed_is_marked(block))
                return false;
        slot = slot_current();
        if (!rest_fits(cache, slot) || !rseq_push_marked(cache->fast_offset, block))
                return false;
        rest_came(cache, slot, 1);
        return true;
}

/*
 * Takes a hardened block back; objects of named caches, which lie in the heap or are guarded, are left to the caller.
 * @size: SIZE_MAX if the call does not tell it. False: it is such an object, or NULL.
 */
static KMEM_NOINLINE bool free_hardened_slow(void *block, size_t size, const char *call,
                                             const void *site)
{
        int saved_errno = errno;

        if (!block || heap_contains(block) || in_sample_region(block))
                return false;
        figures_poll();
        if (is_recording())
                record_free(block, site);
        if (!hardened_free(block, size, block_form_of(call), call, site))
                report_bad_free(call, block, "not the start of a block of this heap");
        errno = saved_errno;
        return true;
}

static KMEM_NOINLINE void free_plain(void *block, const char *call, const void *site)
{
        struct kmem_cache *cache;
        const char *wrong;
        int saved_errno;

        if (!block)
                return;
        cache = cache_of(block);
        if (cache && cache->size > WRITTEN_MOST)
                cleared_freed(block, cache->size);
        if (options.check == CHECK_DRAIN)
                open_fast_frees();
        if (cache && free_looked_at(cache, block))
                return;
        saved_errno = errno;
        if (cache && cache_is_checked(cache) && !handed_clear(block)) {
                report_bad_free(call, block, not_handed_out(cache, block));
                errno = saved_errno;
                return;
        }
        if (is_recording())
                record_free(block, site);
        if (cache && cache->engine->free_bytes)
                figures_poll();
        if (cache && cache_has_owners(cache) && accounted_free_fast(cache, block))
                return;
        if (in_sample_region(block)) {
                block_free_sample(block, call);
        } else if (!cache) {
                if (!accounted_large_free(block))
                        report_bad_free(call, block, "not the start of a block of this heap");
        } else if (cache->engine->free_bytes) {
                wrong = cache->engine->free_bytes(block);
                if (wrong)
                        report_bad_free(call, block, wrong);
        } else {
                wrong = object_free(cache, block);
                if (wrong)
                        report_bad_free(call, block, wrong);
        }
        errno = saved_errno;
}

static KMEM_NOINLINE void free_otherwise(void *block, size_t size, const char *call,
                                         const void *site)
{
        if (!free_hardened_slow(block, size, call, site))
                free_plain(block, call, site);
}

void block_free_sized(void *block, size_t size, const char *call, const void *site)
{
        /* Nothing is contained without the option. */
        if (likely(hardened_contains(block) && !is_recording()))
                hardened_free_object(block, size, block_form_of(call), call, site);
        else if (hardened_is_on())
                free_otherwise(block, size, call, site);
        else
                free_plain(block, call, site);
}

void block_free_at(void *block, const char *call, const void *site)
{
        block_free_sized(block, SIZE_MAX, call, site);
}

/* block_free_at for calls that also free a block. In a recording it never takes the fast path. */
static void free_moved(void *block, const char *call, const void *site)
{
        if (is_recording() || !block_free_fast(block, load_folded(&fast.heap_bytes)))
                block_free_at(block, call, site);
}

/*
 * A recording notes a resize in place as a free and an allocation. Another thread may get the old
 * address as soon as the block has left it, so the number of the free is drawn before.
 */
static void *resize_large(void *block, size_t size, const void *site)
{
        struct record_event *event = is_recording() ? record_draw() : NULL;
        void *resized = accounted_large_resize(block, size);

        if (event && resized)
                record_free_at(event, block, site);
        else if (event)
                record_void_at(event);
        return resized ? recorded(resized, size, site) : NULL;
}

/* The size for a block that has to move, as it is too small for @size. */
static size_t with_room(const void *block, size_t old, size_t size)
{
        const struct kmem_cache *cache = cache_of(block);

        if (cache)
                return cache->engine->request ? size
                                              : size_to_move_to(old, size, class_bytes_max());
        return large_growth(block) == GROWTH_NONE
                       ? size
                       : size_to_move_to(old, size, HUGE_BYTES - PAGE_SIZE);
}

/*
 * A block that @size bytes move to, of @wanted bytes if there is memory for so many. Hardened blocks are made large
 * elsewhere: a plain one would be unknown to the calls for blocks of that heap.
 */
static void *alloc_to_move(enum class_table table, size_t wanted, size_t size, const void *site)
{
        void *moved;

        if (wanted <= class_bytes_max() || hardened_is_on()) {
                moved = block_alloc(table, wanted, false, site);
        } else {
                moved = recorded(accounted_large_alloc(wanted, PAGE_SIZE, 0), wanted, site);
                if (moved)
                        large_set_growth(moved, wanted > size ? GROWTH_HAS_ROOM : GROWTH_MOVED);
        }
        if (unlikely(!moved) && wanted > size)
                return alloc_to_move(table, size, size, site);
        return moved;
}

static void *resize_by_copy(enum class_table table, void *block, size_t old, size_t size,
                            const void *site)
{
        size_t wanted = table == CLASS_MALLOC && size > old && !is_recording()
                                ? with_room(block, old, size)
                                : size;
        void *moved = alloc_to_move(table, wanted, size, site);

        /* The failure may be NULL plus a header, if slob_compat=2.6.24; then nothing is copied. */
        if (!ZERO_OR_NULL_PTR(moved)) {
                memcpy(moved, block, min_of(old, size));
                free_moved(block, "realloc", site);
        }
        return moved;
}

/* Objects of named caches are not hardened. They lie in the cache's pages, or in those of a guard. */
static bool is_hardened(const struct kmem_cache *cache, const void *block)
{
        return hardened_is_on() && !cache && !in_sample_region(block);
}

/* Recordings have a resize as a free and an allocation. */
static void *resize_hardened(enum class_table table, void *block, size_t size, const void *site)
{
        struct record_event *event = is_recording() ? record_draw() : NULL;
        void *resized = hardened_resize(block, size, hardened_align(table, size), "realloc");

        if (event && resized)
                record_free_at(event, block, site);
        else if (event)
                record_void_at(event);
        return resized ? recorded(resized, size, site) : NULL;
}

/* An object serves a request of another size, where it is. Recordings have a free and an allocation. */
static void *request_again(struct kmem_cache *cache, void *object, size_t size, const void *site)
{
        if (is_recording())
                record_free(object, site);
        return recorded(with_request(cache, object, size), size, site);
}

void *block_resize(enum class_table table, void *block, size_t old, size_t size, const void *site)
{
        struct kmem_cache *cache = cache_of(block);
        void *moved;

        if (is_hardened(cache, block))
                return resize_hardened(table, block, size, site);
        if (cache) {
                /* Keep the object unless it is too small, or half of it would lie idle. */
                if (size <= old && (size >= old / 2 || class_bytes(table, size) == old))
                        return request_again(cache, block, size, site);
        } else if (in_guard_region(block)) {
                /* It moves, so that the guard lies behind its new end. */
                if (size == old)
                        return block;
        } else if (in_sample_region(block)) {
                if (size <= old && size >= old / 2)
                        return block;
        } else if (size > class_bytes_max()) {
                void *resized;

                /* Into its room, or hardly less: the program may be about to append again. */
                if (size <= old && size >= old - old / 4 &&
                    large_growth(block) == GROWTH_HAS_ROOM && !is_recording())
                        return block;
                resized = resize_large(block, size, site);

                if (resized)
                        return resized;
        }
        moved = resize_by_copy(table, block, old, size, site);
        /* A block that is large enough stays if there is no memory for a smaller one. */
        if (moved || size > old)
                return moved;
        return cache ? request_again(cache, block, size, site) : block;
}

/* Whether the group that a request is to be charged to, if any, is charged for the large block already. */
static bool is_charged_rightly(const void *block, gfp_t flags)
{
        size_t charged;

        return !wants_account(flags) || large_owner(block, &charged) == group_current();
}

void *block_resize_accounted(void *block, size_t old, size_t size, gfp_t flags, const void *site)
{
        void *moved = NULL;

        if (is_hardened(cache_of(block), block))
                return resize_hardened(CLASS_KMALLOC, block, size, site);
        if (!cache_of(block) && size > class_bytes_max() && is_charged_rightly(block, flags))
                moved = resize_large(block, size, site);
        if (moved)
                return moved;
        moved = block_alloc_accounted(size, flags & ~__GFP_ZERO, site);
        if (!ZERO_OR_NULL_PTR(moved)) {
                memcpy(moved, block, min_of(old, size));
                free_moved(block, "krealloc", site);
        }
        return moved;
}
