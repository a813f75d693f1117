/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "engines/debug/object.h"

/*
 * The free pointer lies outside the object wherever the content of a free object matters, or the
 * object has no room for it; else near its middle, away from overflows of its neighbours (S4-05).
 */
static bool needs_free_pointer_outside(const struct kmem_cache *cache)
{
        /* One that a program chose may reach beyond the object, into the red zone. */
        uint32_t place = cache->free_pointer == FREE_POINTER_ANYWHERE ? 0 : cache->free_pointer;

        return (has_flag(cache, SLAB_TYPESAFE_BY_RCU) &&
                cache->free_pointer == FREE_POINTER_ANYWHERE) ||
               has_flag(cache, SLAB_POISON) || cache->ctor ||
               (has_flag(cache, SLAB_RED_ZONE) &&
                (place + DEBUG_WORD > cache->object_size || debug_has_request(cache)));
}

uint32_t debug_layout(struct kmem_cache *cache)
{
        uint32_t size = (uint32_t)round_up(cache->object_size, DEBUG_WORD);

        cache->poisons_objects = has_flag(cache, SLAB_POISON) &&
                                 !has_flag(cache, SLAB_TYPESAFE_BY_RCU) && !cache->ctor;
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
