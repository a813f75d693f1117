/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The public calls of attributes: a call names the cache and the attribute (S9). */
#include "introspect/attributes.h"

#include "api/owner.h"
#include "base/metadata.h"
#include "heap/rcu.h"
#include "machine/stack.h"

#include <errno.h>

/*
 * Finds a cache by name that has the attribute, and takes cache_mutex; else NULL, and the lock is
 * not held.
 */
static struct kmem_cache *find_cache(const char *name, const struct attribute *attribute)
{
        struct kmem_cache *cache;

        if (!name || !attribute || !heap_ready())
                return NULL;
        lock_take(&cache_mutex);
        cache = cache_named_locked(name);
        if (cache && attribute_exists(attribute, cache))
                return cache;
        lock_drop(&cache_mutex);
        return NULL;
}

static int failed(int error)
{
        errno = error;
        return -1;
}

KMEM_PUBLIC int kmem_attr_read(const char *cache_name, const char *name, char *text, size_t bytes)
{
        const struct attribute *attribute = name ? find_attribute(name) : NULL;
        size_t room = max_of(bytes, (size_t)KMEM_ATTR_BYTES);
        struct kmem_cache *cache;
        char small[KMEM_ATTR_BYTES];
        char *value = small;
        size_t length;

        if (heap_is_foreign())
                return bound.calls->attr_read(cache_name, name, text, bytes);
        cache = find_cache(cache_name, attribute);
        if (!cache)
                return failed(ENOENT);
        if (attribute->show == show_traces && room > sizeof(small))
                value = metadata_alloc(room);
        if (!value) {
                value = small;
                room = sizeof(small);
        }
        attribute_show_locked(attribute, cache, value, value == small ? sizeof(small) : room);
        lock_drop(&cache_mutex);
        length = symbols_resolve(value, text, bytes);
        if (value != small)
                metadata_free(value, room);
        return length < bytes ? (int)length : failed(ENOBUFS);
}

KMEM_PUBLIC int kmem_attr_write(const char *cache_name, const char *name, const char *value)
{
        const struct attribute *attribute = name ? find_attribute(name) : NULL;
        struct kmem_cache *cache;
        int error;

        if (heap_is_foreign())
                return bound.calls->attr_write(cache_name, name, value);
        /* As in kmem_cache_shrink. The locks of kfree_rcu come before cache_mutex. */
        if (attribute && attribute->store == store_shrink)
                kfree_rcu_release();
        cache = find_cache(cache_name, attribute);
        if (!cache)
                return failed(ENOENT);
        error = value || !attribute->store ? attribute_store_locked(attribute, cache, value)
                                           : EINVAL;
        lock_drop(&cache_mutex);
        return error ? failed(error) : 0;
}
