/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The layout of an object of a debug cache, and of its room: the offsets of object.h. */
#include "engines/debug/object.h"

#include "base/options.h"

#include <errno.h>

/*
 * The free pointer lies outside the object wherever the content of a free object matters, or the
 * object has no room for it; else near its middle, away from overflows of its neighbours (S4-05).
 */
static bool needs_free_pointer_outside(const struct kmem_cache *cache)
{
        /* A place that the program chose may reach beyond the object, into the red zone. */
        uint32_t place = cache->free_pointer == FREE_POINTER_ANYWHERE ? 0 : cache->free_pointer;

        return (has_flag(cache, SLAB_TYPESAFE_BY_RCU) &&
                cache->free_pointer == FREE_POINTER_ANYWHERE) ||
               has_flag(cache, SLAB_POISON) || cache->ctor ||
               (has_flag(cache, SLAB_RED_ZONE) &&
                (place + DEBUG_WORD > cache->object_size || debug_has_request(cache)));
}

/* The stride. */
static uint32_t lay_out(struct kmem_cache *cache)
{
        uint32_t size = (uint32_t)round_up(cache->object_size, DEBUG_WORD);

        /* A right red zone has at least a byte (S4-03). */
        if (has_flag(cache, SLAB_RED_ZONE) && size == cache->object_size)
                size += DEBUG_WORD;
        cache->inuse = size;
        if (needs_free_pointer_outside(cache))
                cache->free_pointer = size;
        else if (cache->free_pointer == FREE_POINTER_ANYWHERE)
                cache->free_pointer = cache->object_size / 2 & ~(DEBUG_WORD - 1u);
        size = padding_offset(cache);
        cache->red_left_pad = 0;
        if (has_flag(cache, SLAB_RED_ZONE)) {
                cache->red_left_pad = (uint32_t)round_up(DEBUG_WORD, cache->align);
                size += DEBUG_WORD + cache->red_left_pad;
        }
        return (uint32_t)round_up(size, cache->align);
}

/* Letter O, given for any cache: no cache gets larger slabs for the data of debugging (S9-23). */
static bool must_give_up(const struct kmem_cache *cache, uint32_t size)
{
        return options_given(OPTION_DEBUG) & DEBUG_KEEP_ORDER &&
               get_order(size) > get_order(cache->object_size);
}

int debug_setup(struct kmem_cache *cache)
{
        uint32_t free_pointer = cache->free_pointer;
        uint32_t size;

        cache->align = engine_align(cache);
        if (cache->object_size > order_bytes(ORDER_MAX))
                return EINVAL;
        size = lay_out(cache);
        if (must_give_up(cache, size)) {
                cache->flags &= ~(SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER);
                cache->free_pointer = free_pointer;
                size = lay_out(cache);
        }
        if (!(cache->flags & debug_flags_all)) {
                cache->engine = &slub_engine;
                return slub_setup(cache);
        }
        return slub_lay_out(cache, size, false);
}
