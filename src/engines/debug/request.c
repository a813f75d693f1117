/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The size that the program asked for, of an object of a kmalloc cache with flag U. */
#include "engines/debug/object.h"

#include <string.h>

bool debug_has_request(const struct kmem_cache *cache)
{
        return has_flag(cache, SLAB_STORE_USER) && has_flag(cache, SLAB_KMALLOC);
}

/*
 * A write far beyond the object may have changed the word: nothing above the object's size counts.
 */
uint32_t debug_request(const struct kmem_cache *cache, const void *object)
{
        uint64_t request = cache->object_size;

        if (debug_has_request(cache))
                request = min_of(request, load_acquire(request_place(cache, object)));
        return (uint32_t)request;
}

/*
 * Against debug_validate on another thread. For a smaller request the red zone is written before
 * the request (release, pairs with the acquire in debug_request), and only up to where it stands
 * already: beyond, a check may look at it, and may still find what the program did there. A larger
 * request is written under list_lock, so that no check looks at bytes which the caller may write
 * from now on. These bytes are zero, as krealloc promises for memory that was always asked for with
 * __GFP_ZERO (S8-26).
 */
void debug_set_request(struct kmem_cache *cache, void *object, size_t bytes)
{
        struct engine_node *node = slab_node(cache, slub_slab_of(cache, object));
        uint64_t *place = request_place(cache, object);

        if (!debug_has_request(cache) || !cache->engine->is_object(cache, object))
                return;
        bytes = min_of(bytes, (size_t)cache->object_size);
        if (bytes > load_relaxed(place)) {
                lock_take(&node->list_lock);
                memset((char *)object + *place, 0, bytes - *place);
                store_relaxed(place, bytes);
                lock_drop(&node->list_lock);
                return;
        }
        if (has_flag(cache, SLAB_RED_ZONE))
                memset((char *)object + bytes, RED_ACTIVE, debug_request(cache, object) - bytes);
        store_release(place, bytes);
}
