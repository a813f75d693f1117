/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The public calls of memory groups (S11). Until the first group is made, a cache with SLAB_ACCOUNT
 * is like any other.
 */
#include "account/group.h"

#include "api/owner.h"

#include <errno.h>

/* Closes all caches with objects that may be charged from now on; 0 or an errno. */
static int turn_on(void)
{
        struct list *node;
        int error = 0;

        lock_take(&cache_mutex);
        list_for_each (node, &cache_list) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);

                if (cache->flags & SLAB_ACCOUNT && !error)
                        error = percpu_close(cache);
        }
        /* Caches are made under this lock too, so none is missed. */
        if (!error)
                groups_turn_on();
        lock_drop(&cache_mutex);
        return error;
}

KMEM_PUBLIC struct kmem_group *kmem_group_create(const char *name, struct kmem_group *parent,
                                                 size_t limit_bytes)
{
        struct kmem_group *group = NULL;
        int error = EINVAL;

        if (name && *name) {
                error = ENOMEM;
                if (!heap_ready()) {
                        if (heap_is_foreign())
                                return bound.calls->group_create(name, parent, limit_bytes);
                } else {
                        error = groups_are_on() ? 0 : turn_on();
                        if (!error)
                                group = group_make(name, parent, limit_bytes, &error);
                }
        }
        if (!group)
                errno = error;
        return group;
}

KMEM_PUBLIC long kmem_group_destroy(struct kmem_group *group)
{
        int error = 0;
        long live;

        if (!group)
                return 0;
        if (heap_is_foreign())
                return bound.calls->group_destroy(group);
        live = group_end(group, &error);
        if (live < 0)
                errno = error;
        return live;
}

KMEM_PUBLIC struct kmem_group *kmem_group_set(struct kmem_group *group)
{
        struct kmem_group *before;

        if (heap_is_foreign())
                return bound.calls->group_set(group);
        before = group_current();
        if (!group_enter(group))
                errno = EINVAL;
        return before;
}

KMEM_PUBLIC struct kmem_group *kmem_group_current(void)
{
        return heap_is_foreign() ? bound.calls->group_current() : group_current();
}

KMEM_PUBLIC int kmem_group_set_limit(struct kmem_group *group, size_t limit_bytes)
{
        if (heap_is_foreign())
                return bound.calls->group_set_limit(group, limit_bytes);
        if (!group_change_limit(group, limit_bytes)) {
                errno = EINVAL;
                return -1;
        }
        return 0;
}

KMEM_PUBLIC int kmem_group_stats(struct kmem_group *group, struct kmem_group_stats *stats)
{
        struct kmem_group copy;

        if (heap_is_foreign())
                return bound.calls->group_stats(group, stats);
        if (!stats || !group_read(group, &copy)) {
                errno = EINVAL;
                return -1;
        }
        *stats = (struct kmem_group_stats){
                .bytes = copy.bytes,
                .objects = copy.objects,
                .limit = copy.limit == SIZE_MAX ? 0 : copy.limit,
                .peak = copy.peak,
                .refusals = copy.refusals,
                .unowned = copy.unowned,
        };
        return 0;
}
