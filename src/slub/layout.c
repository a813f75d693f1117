/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Stride, slab order and list limits of a cache (S3, S4).
 */
#include "slub/slab.h"

#include "base/options.h"
#include "slub/order.h"

#include <errno.h>

enum { WORD = 8 };

_Static_assert((int)ORDER_NONE == ORDER_MAX + 1, "slub_order knows the page allocator's limit");

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

/* With the CPU count of this moment: a cache keeps the order it was made with (S3-11, S3-14). */
static unsigned int calculate_order(uint32_t size)
{
        const struct order_rules rules = {
                .rule = (enum order_rule)options.order_rule,
                .page_shift = PAGE_SHIFT,
                .cpus = system_cpus((enum cpu_count)options.order_cpus),
                .min_order = (unsigned int)options.slub_min_order,
                .max_order = (unsigned int)options.slub_max_order,
                .min_objects = (uint32_t)options.slub_min_objects,
        };

        return slub_order(size, &rules);
}

/* S1-09 */
static size_t default_min_partial(uint32_t size)
{
        return min_of(max_of((fls(size) - 1) / 2, 5u), 10u);
}

/* Section 2.3, the later kernels' values. */
static uint32_t default_cpu_partial(uint32_t size)
{
        if (size >= PAGE_SIZE)
                return 6;
        if (size >= 1024)
                return 24;
        return size >= 256 ? 52 : 120;
}

/* S2-11: the factor 2 stands for slabs that are half full on average. */
void slub_set_cpu_partial(struct kmem_cache *cache, uint32_t objects)
{
        cache->cpu_partial = objects;
        cache->cpu_partial_slabs = (2 * objects + cache->objects - 1) / cache->objects;
}

int slub_setup(struct kmem_cache *cache)
{
        uint64_t value;

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

        cache->min_partial = options_for_cache(cache->name, OPTION_MIN_PARTIAL, &value)
                                     ? (size_t)value
                                     : default_min_partial(cache->size);
        slub_set_cpu_partial(cache, options_for_cache(cache->name, OPTION_CPU_PARTIAL, &value)
                                            ? (uint32_t)value
                                            : default_cpu_partial(cache->size));
        return 0;
}
