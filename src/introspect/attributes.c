/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "introspect/attributes.h"

#include "api/owner.h"
#include "api/rcu.h"

#include <errno.h>
#include <string.h>

#define FIELD(field) offsetof(struct kmem_cache, field)
#define NODE(field) offsetof(struct engine_node_report, field)

/* In the order of spec 9.1, then our own. */
const struct attribute attributes[] = {
        {"slab_size", .show = show_number, .place = FIELD(size)},
        {"object_size", .show = show_number, .place = FIELD(object_size)},
        {"objs_per_slab", .show = show_number, .place = FIELD(objects)},
        {"order", .show = show_number, .place = FIELD(order)},
        {"align", .show = show_number, .place = FIELD(align)},
        {"min_partial", .show = show_min_partial, .store = store_min_partial},
        {"cpu_partial", .show = show_number, .store = store_cpu_partial, .place = FIELD(cpu_partial)},
        {"slabs_cpu_partial", .show = show_slabs_cpu_partial},
        {"partial", .show = show_nodes, .place = NODE(partial_slabs)},
        {"objects_partial", .show = show_nodes, .place = NODE(partial_inuse)},
        {"cpu_slabs", .show = show_nodes, .place = NODE(cpu_slabs)},
        {"slabs", .show = show_nodes, .place = NODE(slabs)},
        {"total_objects", .show = show_nodes, .place = NODE(objects)},
        {"objects", .show = show_objects},
        {"ctor", .show = show_ctor},
        {"aliases", .show = show_aliases},
        {"hwcache_align", .show = show_flag, .flag = SLAB_HWCACHE_ALIGN},
        {"reclaim_account", .show = show_flag, .flag = SLAB_RECLAIM_ACCOUNT},
        {"destroy_by_rcu", .show = show_flag, .flag = SLAB_TYPESAFE_BY_RCU},
        {"cache_dma", .show = show_flag, .flag = SLAB_CACHE_DMA},
        {"usersize", .show = show_number, .place = FIELD(usersize)},
        {"sanity_checks", .show = show_flag, .flag = SLAB_CONSISTENCY_CHECKS},
        {"red_zone", .show = show_flag, .flag = SLAB_RED_ZONE},
        {"poison", .show = show_flag, .flag = SLAB_POISON},
        {"store_user", .show = show_flag, .flag = SLAB_STORE_USER},
        {"trace", .show = show_flag, .flag = SLAB_TRACE},
        {"validate", .show = show_nothing, .store = store_validate},
        {"shrink", .show = show_nothing, .store = store_shrink},
        {"failslab", .show = show_failslab, .store = store_failslab},
        {"remote_node_defrag_ratio", .show = show_defrag_ratio, .store = store_defrag_ratio},
        {"skip_kfence", .show = show_skip_kfence, .store = store_skip_kfence},
        {"engine", .show = show_engine},
        {"sheaf_capacity", .show = show_number, .place = FIELD(sheaf_capacity)},
        {"objects_inuse", .show = show_objects_inuse},
};
const size_t attribute_count = array_size(attributes);

static const struct attribute *find_attribute(const char *name)
{
        for (size_t i = 0; i < attribute_count; i++)
                if (strcmp(attributes[i].name, name) == 0)
                        return &attributes[i];
        return NULL;
}

size_t attribute_show_locked(const struct attribute *attribute, struct kmem_cache *cache,
                             char text[KMEM_ATTR_BYTES])
{
        struct attribute_text value = {.text = text};

        attribute->show(attribute, cache, &value);
        if (value.used)
                text[value.used++] = '\n';
        text[value.used] = '\0';
        return value.used;
}

/* The cache of a name, with cache_mutex held; else NULL, and then it is not held. */
static struct kmem_cache *find_cache(const char *name)
{
        struct kmem_cache *cache;

        if (!name || !heap_ready())
                return NULL;
        lock_take(&cache_mutex);
        cache = cache_named_locked(name);
        if (!cache)
                lock_drop(&cache_mutex);
        return cache;
}

static int failed(int error)
{
        errno = error;
        return -1;
}

KMEM_PUBLIC int kmem_attr_read(const char *cache_name, const char *name, char *text, size_t bytes)
{
        const struct attribute *attribute = name ? find_attribute(name) : NULL;
        struct kmem_cache *cache;
        char value[KMEM_ATTR_BYTES];
        size_t length;

        if (heap_is_foreign())
                return kmem_heap_owner.attr_read(cache_name, name, text, bytes);
        cache = attribute ? find_cache(cache_name) : NULL;
        if (!cache)
                return failed(ENOENT);
        length = attribute_show_locked(attribute, cache, value);
        lock_drop(&cache_mutex);
        if (length >= bytes)
                return failed(ENOBUFS);
        memcpy(text, value, length + 1);
        return (int)length;
}

KMEM_PUBLIC int kmem_attr_write(const char *cache_name, const char *name, const char *value)
{
        const struct attribute *attribute = name ? find_attribute(name) : NULL;
        struct kmem_cache *cache;
        int error = EIO;

        if (heap_is_foreign())
                return kmem_heap_owner.attr_write(cache_name, name, value);
        /* As kmem_cache_shrink does; its locks come before cache_mutex. */
        if (attribute && attribute->store == store_shrink)
                kfree_rcu_release();
        cache = attribute ? find_cache(cache_name) : NULL;
        if (!cache)
                return failed(ENOENT);
        if (attribute->store)
                error = value ? attribute->store(cache, value) : EINVAL;
        lock_drop(&cache_mutex);
        return error ? failed(error) : 0;
}
