/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Stride, slab order and list limits of a cache (S3, S4).
 */
#include "engines/slub/slab.h"

#include "base/options.h"
#include "engines/slub/order.h"

#include <errno.h>

_Static_assert((int)ORDER_NONE == ORDER_MAX + 1, "slub_order knows the page allocator's limit");

/* Whether objects and slabs have the places that the kernel's free pointers need (S4-05). */
static bool has_kernel_places(const struct kmem_cache *cache)
{
        return options_for_cache_or(cache->name, OPTION_FREE_POINTER, FREE_POINTER_TABLE) ==
               FREE_POINTER_OBJECT;
}

/*
 * Without the two objects that exceed a table of single-byte entries the table stays half as large.
 * The two are 0.8% of a slab of 16-byte objects, a doubled table 6%. A kernel's slab has them.
 */
static uint32_t order_objects(const struct kmem_cache *cache, unsigned int order)
{
        size_t objects = min_of(order_bytes(order) / cache->size, (size_t)SLAB_OBJECTS_MAX);

        if (!has_kernel_places(cache) && objects > NARROW_OBJECTS_MAX &&
            objects <= NARROW_OBJECTS_MAX + 2)
                objects = NARROW_OBJECTS_MAX;
        return (uint32_t)objects;
}

/*
 * Slabs of the classes of the finer table. The kernel's rule gives them too few objects with few
 * CPUs: making and ending slabs would be most of the cost of 12 or 16 objects, and a sheaf that goes
 * back would have nearly as many slabs as objects (decisions/0042). Pages of a slab that no object
 * has used take no memory.
 */
enum {
        FINE_OBJECTS = 32,
        FINE_ORDER = 3, /* at least, but for small objects */
        /* Below, an entry of two bytes for each object is more than a 32nd of the memory. */
        WIDE_TABLE_BYTES = 64,
};

/* Whether the cache is a class of the finer table, which no kernel has. */
static bool is_fine_class(const struct kmem_cache *cache)
{
        return cache->flags & SLAB_KMALLOC && options.classes != CLASSES_KERNEL;
}

/* The largest order up to FINE_ORDER, for small objects up to where their table would be wide. */
static unsigned int fine_order(const struct kmem_cache *cache)
{
        unsigned int order = FINE_ORDER;

        while (order && cache->size < WIDE_TABLE_BYTES &&
               order_objects(cache, order) > NARROW_OBJECTS_MAX)
                order--;
        return order;
}

/* With the CPU count of this moment: a cache keeps the order it was made with (S3-11, S3-14). */
static unsigned int calculate_order(const struct kmem_cache *cache)
{
        bool fine = is_fine_class(cache);
        struct order_rules rules = {
                .rule = (enum order_rule)options.order_rule,
                .page_shift = PAGE_SHIFT,
                .cpus = system_cpus((enum cpu_count)options.order_cpus),
                .min_order = (unsigned int)options.slub_min_order,
                .max_order = (unsigned int)options.slub_max_order,
                .min_objects = (uint32_t)options.slub_min_objects,
        };

        if (fine && !rules.min_objects) {
                rules.min_objects = FINE_OBJECTS;
                rules.min_order =
                        max_of(rules.min_order, min_of(fine_order(cache), rules.max_order));
        }
        return fine && cache->size > PAGE_SIZE ? slub_order_tight(cache->size, &rules)
                                               : slub_order(cache->size, &rules);
}

/* The fewest objects that leave at most a 32nd of their pages unused. */
static bool lay_out_pages(struct kmem_cache *cache)
{
        size_t objects = 0;
        size_t bytes;

        if (!is_fine_class(cache) || cache->size <= PAGE_SIZE)
                return false;
        do {
                objects++;
                bytes = round_up(objects * cache->size, PAGE_SIZE);
        } while ((bytes - objects * cache->size) * 32 > bytes);
        cache->slab_pages = (uint32_t)(bytes >> PAGE_SHIFT);
        cache->order = cache->min_order = get_order(bytes);
        cache->objects = cache->min_order_objects = (uint32_t)objects;
        return true;
}

/* The kernel's layout: a power of two of pages. False if no order is large enough. */
static bool lay_out_order(struct kmem_cache *cache)
{
        cache->order = calculate_order(cache);
        if (cache->order > ORDER_MAX)
                return false;
        cache->objects = order_objects(cache, cache->order);
        cache->min_order = get_order(cache->size);
        cache->min_order_objects = order_objects(cache, cache->min_order);
        return true;
}

enum { FEW_PARTIAL = 2 };

/*
 * Empty slabs that a node keeps (S1-09). Slabs with few objects are not kept, so that other classes
 * get their pages soon; a slab of a single object then never sees a list.
 */
static size_t default_min_partial(const struct kmem_cache *cache)
{
        if (cache->slab_pages)
                return cache->objects > 1 ? FEW_PARTIAL : 0;
        return min_of(max_of((fls(cache->size) - 1) / 2, 5u), 10u);
}

int slub_lay_out(struct kmem_cache *cache, uint32_t size, bool may_be_exact)
{
        cache->size = size;
        cache->reciprocal = (((uint64_t)1 << RECIPROCAL_SHIFT) + size - 1) / size;
        if (!(may_be_exact && lay_out_pages(cache)) && !lay_out_order(cache))
                return EINVAL;
        cache->min_partial = (size_t)options_for_cache_or(cache->name, OPTION_MIN_PARTIAL,
                                                          default_min_partial(cache));
        cache->no_cpu_slabs = !options_for_cache_or(cache->name, OPTION_CPU_SLABS, 1);
        if (options_for_cache_or(cache->name, OPTION_STATS, 0))
                cache->counters_bytes = sizeof(struct slub_counters);
        return 0;
}

/*
 * The stride. The table of a slab has its free list, so an object needs no room for a pointer; with
 * option free_pointer=object it has the room that the kernel's objects have (S4-05, S4-08).
 */
static uint32_t stride(const struct kmem_cache *cache)
{
        bool behind = has_kernel_places(cache) &&
                      (cache->ctor || cache->flags & SLAB_TYPESAFE_BY_RCU) &&
                      cache->free_pointer == FREE_POINTER_ANYWHERE;
        uint32_t size = (uint32_t)round_up(cache->object_size, sizeof(void *));

        return (uint32_t)round_up(size + (behind ? sizeof(void *) : 0), cache->align);
}

/* Without CPU slabs, the node lists have all slabs that have free objects (S13-06). */
static void leave_out_cpu_slabs(struct kmem_cache *cache)
{
        cache->engine = &slub_node_engine;
        cache->has_cpu_partial = false;
        cache->freeze_eagerly = false;
        slub_set_cpu_partial(cache, 0);
}

int slub_setup(struct kmem_cache *cache)
{
        int error;

        cache->align = engine_align(cache);
        if (cache->object_size > order_bytes(ORDER_MAX))
                return EINVAL;
        error = slub_lay_out(cache, stride(cache), true);
        if (error)
                return error;
        if (!cache->slab_pages)
                cache->slab_mask = (uint32_t)order_bytes(cache->order) - 1;
        else if (cache->objects == 1)
                /* The page map has the first page alone of such a slab, so an address is in there. */
                cache->slab_mask = (uint32_t)PAGE_SIZE - 1;
        slub_setup_cpu_partial(cache);
        cache->freeze_eagerly =
                options_for_cache_or(cache->name, OPTION_FREEZE, FREEZE_DELAYED) == FREEZE_EAGER;
        if (cache->no_cpu_slabs)
                leave_out_cpu_slabs(cache);
        return 0;
}
