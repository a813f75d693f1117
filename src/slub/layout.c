/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Stride, slab order and list limits of a cache (S3, S4).
 */
#include "slub/slab.h"

#include "base/options.h"

#include <errno.h>

enum { WORD = 8 };

/*
 * Two objects more than one-byte table entries can name would double the table: 6% of a slab
 * of 16-byte objects against 0.8% for leaving the two out.
 */
static uint32_t order_objects(unsigned int order, uint32_t size)
{
        size_t objects = min_of(order_bytes(order) / size, (size_t)SLAB_OBJECTS_MAX);

        if (objects > NARROW_OBJECTS_MAX && objects <= NARROW_OBJECTS_MAX + 2)
                objects = NARROW_OBJECTS_MAX;
        return (uint32_t)objects;
}

/* S3-02, S3-13: how many objects a slab should hold at least. */
static uint32_t wanted_objects(uint32_t size, unsigned int max_order)
{
        uint32_t objects = (uint32_t)options.slub_min_objects;

        if (!objects)
                objects = 4 * (fls(system_cpus((enum cpu_count)options.order_cpus)) + 1);
        return min_of(objects, max_of(order_objects(max_order, size), 1u));
}

/* S3-20 to S3-22. Returns ORDER_MAX + 1 if the object fits no slab. */
static unsigned int calculate_order(uint32_t size)
{
        unsigned int max_order = (unsigned int)options.slub_max_order;
        unsigned int floor = max_of((unsigned int)options.slub_min_order,
                                    get_order((size_t)wanted_objects(size, max_order) * size));

        if (order_bytes(floor) / size > SLAB_OBJECTS_MAX)
                return get_order((size_t)size * SLAB_OBJECTS_MAX) - 1;
        for (unsigned int fraction = 16; fraction > 1; fraction /= 2)
                for (unsigned int order = floor; order <= max_order; order++)
                        if (order_bytes(order) % size <= order_bytes(order) / fraction)
                                return order;
        return get_order(size);
}

/* S1-09 */
static size_t default_min_partial(uint32_t size)
{
        return min_of(max_of((fls(size) - 1) / 2, 5u), 10u);
}

int slub_setup(struct kmem_cache *cache)
{
        cache->align = engine_align(cache);
        if (cache->object_size > order_bytes(ORDER_MAX))
                return EINVAL;
        cache->size = (uint32_t)round_up(round_up(cache->object_size, WORD), cache->align);
        cache->reciprocal = (((uint64_t)1 << 40) + cache->size - 1) / cache->size;
        cache->order = calculate_order(cache->size);
        if (cache->order > ORDER_MAX)
                return EINVAL;
        cache->objects = order_objects(cache->order, cache->size);
        cache->min_order = get_order(cache->size);
        cache->min_order_objects = order_objects(cache->min_order, cache->size);

        cache->min_partial = (size_t)options_for_cache_or(cache->name, OPTION_MIN_PARTIAL,
                                                          default_min_partial(cache->size));
        slub_setup_cpu_partial(cache);
        cache->freeze_eagerly =
                options_for_cache_or(cache->name, OPTION_FREEZE, FREEZE_DELAYED) == FREEZE_EAGER;
        if (options_for_cache_or(cache->name, OPTION_STATS, 0))
                cache->counters_bytes = sizeof(struct slub_counters);
        return 0;
}
