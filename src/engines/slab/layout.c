/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Stride, slab order, placement of the free list, colours and tunables of a cache (S6-11 to
 * S6-21, S6-43, S6-50), and the records of its nodes.
 */
#include "engines/slab/slab.h"

#include "base/options.h"

#include <errno.h>

enum {
        WORD = 8,
        OBJECT_BYTES_MIN = 16,  /* least stride; one-byte indexes are meant for it (S6-11) */
        KMALLOC_BYTES_MIN = 32, /* the kernel's least kmalloc object under SLAB (S8-23) */
        MANY_BYTES = 131072,
};

/* The layout that a placement gives a cache. */
struct layout {
        uint32_t order;
        uint32_t objects; /* 0: impossible */
        uint32_t left;    /* bytes of a slab that stay unused */
};

static unsigned int max_order(void)
{
        if (options.slab_max_order != SLAB_MAX_ORDER_AUTO)
                return (unsigned int)options.slab_max_order;
        return system_memory_bytes() > (size_t)32 << 20 ? 1 : 0;
}

/*
 * Whether a table in memory of its own is worth it: not above half an object. In the kernel the
 * table comes from a kmalloc cache, and the least object of that counts; ours comes from the
 * metadata arena.
 */
static bool off_slab_is_allowed(const struct kmem_cache *cache, uint32_t objects)
{
        return max_of(metadata_round(objects * sizeof(slab_entry)), (size_t)KMALLOC_BYTES_MIN) <=
               cache->size / 2;
}

/* The smallest order that wastes little enough of a slab, else the largest allowed (S6-20). */
static struct layout find_order(const struct kmem_cache *cache, enum slab_placement placement)
{
        size_t each = cache->size + (placement == PLACE_ON_SLAB ? sizeof(slab_entry) : 0);
        struct layout found = {0};

        for (uint32_t order = 0; order <= ORDER_MAX; order++) {
                size_t objects = order_bytes(order) / each;

                if (objects == 0)
                        continue;
                if (objects > SLAB_OBJECTS_MAX)
                        break;
                if (placement == PLACE_OFF_SLAB && !off_slab_is_allowed(cache, (uint32_t)objects))
                        continue;
                found = (struct layout){order, (uint32_t)objects,
                                        (uint32_t)(order_bytes(order) % each)};
                if (cache->flags & SLAB_RECLAIM_ACCOUNT || order >= max_order() ||
                    (size_t)found.left * 8 <= order_bytes(order))
                        break;
        }
        return found;
}

/* S6-12: the placements in their order; an impossible layout if none will do. */
static struct layout find_layout(const struct kmem_cache *cache, enum slab_placement *placement)
{
        struct layout found;

        *placement = PLACE_OBJECT;
        if (!cache->ctor && !(cache->flags & SLAB_TYPESAFE_BY_RCU)) {
                found = find_order(cache, *placement);
                if (found.objects && found.objects * sizeof(slab_entry) <= cache->object_size)
                        return found;
        }
        *placement = PLACE_OFF_SLAB;
        if (!(cache->flags & SLAB_NOLEAKTRACE)) {
                found = find_order(cache, *placement);
                if (found.objects && found.left < found.objects * sizeof(slab_entry))
                        return found;
        }
        *placement = PLACE_ON_SLAB;
        return find_order(cache, *placement);
}

/* The limit of CPU arrays by object size (S6.6). */
static uint32_t default_limit(uint32_t size)
{
        if (size > MANY_BYTES)
                return 1;
        if (size > PAGE_SIZE)
                return 8;
        if (size > 1024)
                return 24;
        return size > 256 ? 54 : 120;
}

/*
 * The defaults, or the three values that options make of them; values that a write to slabinfo
 * would refuse are ignored as silently (S6-51). sheaf_capacity stands for the limit if that is not
 * given; 0 means no arrays at all.
 */
static void set_tunables(struct kmem_cache *cache)
{
        uint64_t limit = default_limit(cache->size);
        uint64_t shared = cache->size <= PAGE_SIZE && system_cpus(CPUS_POSSIBLE) > 1 ? 8 : 0;
        uint64_t batchcount;

        options_for_cache(cache->name, OPTION_SHEAF_CAPACITY, &limit);
        cache->sheaf_capacity = (uint32_t)limit;
        cache->batchcount = (uint32_t)max_of((limit + 1) / 2, (uint64_t)1);
        cache->shared = limit ? (uint32_t)shared : 0;

        options_for_cache(cache->name, OPTION_LIMIT, &limit);
        batchcount = (limit + 1) / 2;
        options_for_cache(cache->name, OPTION_BATCHCOUNT, &batchcount);
        options_for_cache(cache->name, OPTION_SHARED, &shared);
        if (limit < 1 || batchcount < 1 || batchcount > limit)
                return;
        cache->sheaf_capacity = (uint32_t)limit;
        cache->batchcount = (uint32_t)batchcount;
        cache->shared = (uint32_t)shared;
}

/* Alien arrays hold at least an object each, with any limit of the cache (S6-44). */
static bool make_aliens(struct kmem_cache *cache, uint32_t node)
{
        struct slab_node *data = &slab_data(cache)->node[node];

        for (uint32_t home = 0; home < system_nodes(); home++) {
                if (home == node || options.noaliencache)
                        continue;
                data->alien[home] = object_array_new(cache->sheaf_capacity > 1 ? ALIEN_LIMIT : 1);
                if (!data->alien[home])
                        return false;
        }
        return true;
}

uint64_t slab_free_limit(const struct kmem_cache *cache, uint32_t node)
{
        return (uint64_t)(1 + system_node_cpus(node)) * cache->batchcount + cache->objects;
}

static bool make_nodes(struct kmem_cache *cache)
{
        for (uint32_t node = 0; node < system_nodes(); node++) {
                struct slab_node *data = &slab_data(cache)->node[node];

                data->free_limit = slab_free_limit(cache, node);
                if (cache->shared) {
                        data->shared = object_array_new(cache->shared * cache->batchcount);
                        if (!data->shared)
                                return false;
                }
                if (!make_aliens(cache, node))
                        return false;
        }
        return true;
}

/* Against a handler that forks, and comes for the locks in here (slab_each_lock). */
void slab_data_free(struct kmem_cache *cache)
{
        struct slab_cache *data = slab_data(cache);

        store_relaxed(&cache->engine_data, NULL);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        for (uint32_t node = 0; node < system_nodes(); node++) {
                object_array_free(data->node[node].shared);
                for (uint32_t home = 0; home < system_nodes(); home++)
                        object_array_free(data->node[node].alien[home]);
        }
        metadata_free(data, slab_data_bytes());
}

int slab_setup(struct kmem_cache *cache)
{
        enum slab_placement placement;
        struct slab_cache *data;
        struct layout layout;

        cache->align = engine_align(cache);
        if (cache->object_size > order_bytes(ORDER_MAX))
                return EINVAL;
        cache->size = (uint32_t)round_up(round_up(cache->object_size, WORD), cache->align);
        if (sizeof(slab_entry) == 1 && cache->size < OBJECT_BYTES_MIN)
                cache->size = (uint32_t)round_up(OBJECT_BYTES_MIN, cache->align);
        layout = find_layout(cache, &placement);
        if (!layout.objects)
                return E2BIG; /* too large for a slab of any order (S6-13) */
        cache->reciprocal = (((uint64_t)1 << RECIPROCAL_SHIFT) + cache->size - 1) / cache->size;
        cache->order = cache->min_order = layout.order;
        cache->objects = cache->min_order_objects = layout.objects;
        set_tunables(cache);

        data = metadata_alloc(slab_data_bytes());
        if (!data)
                return ENOMEM;
        data->placement = placement;
        data->colour_lines = max_of(cache->align / COLOUR_BYTES, 1u);
        data->colours =
                min_of(layout.left / COLOUR_BYTES, (uint32_t)UINT16_MAX) / data->colour_lines;
        cache->engine_data = data;
        if (!make_nodes(cache)) {
                slab_data_free(cache);
                return ENOMEM;
        }
        return 0;
}
