/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The oracle's books: which objects threads have. Threads of the explorer run one at a time, so
 * plain memory does.
 */
#include "scenario.h"

enum { OBJECTS_MAX = 4096 };

struct kmem_cache *cache;
static const void *out[OBJECTS_MAX];
static unsigned int out_count;
unsigned int calls_under_way;

void make_cache(unsigned int size)
{
        cache = kmem_cache_create("explored", size, 0, SLAB_NO_MERGE, NULL);
        CHECK(cache);
}

void take_notes(const void *object)
{
        explore_effect(object, 1, true);
        CHECK(object && out_count < OBJECTS_MAX);
        for (unsigned int i = 0; i < out_count; i++)
                if (out[i] == object)
                        explore_fail("object %p was handed out twice", object);
        out[out_count++] = object;
}

void give_notes(const void *object)
{
        explore_effect(object, 1, true);
        for (unsigned int i = 0; i < out_count; i++)
                if (out[i] == object) {
                        out[i] = out[--out_count];
                        return;
                }
        explore_fail("object %p is freed and nobody has it", object);
}

static void *take_with(gfp_t flags, bool may_fail)
{
        void *object;

        calls_under_way++;
        object = kmem_cache_alloc(cache, flags);
        if (object || !may_fail)
                take_notes(object);
        calls_under_way--;
        return object;
}

void *take(void)
{
        return take_with(GFP_KERNEL, false);
}

void *take_if_any(void)
{
        return take_with(GFP_KERNEL | __GFP_NOWARN, true);
}

void give(void *object)
{
        give_notes(object);
        calls_under_way++;
        kmem_cache_free(cache, object);
        calls_under_way--;
}

unsigned int give_all(void)
{
        struct kmem_cache_info info = {.size = sizeof(info)};

        while (out_count)
                give((void *)(uintptr_t)out[0]);
        CHECK(kmem_cache_info(cache, &info) == 0);
        return (unsigned int)info.objects_inuse;
}

/* Every object that is left anywhere comes out once. */
static void check_none_twice(const struct kmem_cache_info *info)
{
        static void *objects[OBJECTS_MAX];
        unsigned int count = (unsigned int)info->num_objs + 1;

        CHECK(count <= OBJECTS_MAX);
        for (unsigned int i = 0; i < count; i++)
                objects[i] = take();
        for (unsigned int i = 0; i < count; i++)
                give(objects[i]);
}

void check_empty(void)
{
        struct kmem_cache_info info = {.size = sizeof(info)};

        CHECK(out_count == 0);
        CHECK(kmem_cache_info(cache, &info) == 0);
        if (info.objects_inuse)
                explore_fail("%lu objects are lost", (unsigned long)info.objects_inuse);
        check_none_twice(&info);
        kmem_cache_shrink(cache);
        CHECK(kmem_cache_info(cache, &info) == 0);
        if (info.num_objs || info.num_slabs)
                explore_fail("%lu objects in %lu slabs are left of a cache that is empty",
                             (unsigned long)info.num_objs, (unsigned long)info.num_slabs);
        kmem_cache_destroy(cache);
        cache = NULL;
}
