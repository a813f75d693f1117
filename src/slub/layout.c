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

/* A class of the finer table that the kernel's has not, with more of a slab to lose. */
static bool wants_tight_order(const struct kmem_cache *cache)
{
        return cache->flags & SLAB_KMALLOC && options.classes == CLASSES_FINE &&
               cache->size > PAGE_SIZE;
}

/* With the CPU count of this moment: a cache keeps the order it was made with (S3-11, S3-14). */
static unsigned int calculate_order(const struct kmem_cache *cache)
{
        const struct order_rules rules = {
                .rule = (enum order_rule)options.order_rule,
                .page_shift = PAGE_SHIFT,
                .cpus = system_cpus((enum cpu_count)options.order_cpus),
                .min_order = (unsigned int)options.slub_min_order,
                .max_order = (unsigned int)options.slub_max_order,
                .min_objects = (uint32_t)options.slub_min_objects,
        };

        return wants_tight_order(cache) ? slub_order_tight(cache->size, &rules)
                                        : slub_order(cache->size, &rules);
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
        cache->reciprocal = (((uint64_t)1 << RECIPROCAL_SHIFT) + cache->size - 1) / cache->size;
        cache->order = calculate_order(cache);
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
