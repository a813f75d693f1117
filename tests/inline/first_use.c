/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Where a compiler may put parts of an inlined allocation. They must not come before the cache is
 * made, even in a loop that makes it, and no use of the object may come before the object. The heap
 * starts with the cache here, so that code that looks too early finds nothing.
 */
#include <kmem-inline.h>

#include "check.h"

#include <stdio.h>

enum { OBJECTS = 1000 };

static struct kmem_cache *made_late;
static long fallback;

__attribute__((noinline)) static struct kmem_cache *make(void)
{
        return kmem_cache_create("made_late", 64, 0, 0, NULL);
}

__attribute__((noinline)) static void fill(void **objects)
{
        for (int i = 0; i < OBJECTS; i++) {
                if (!made_late)
                        made_late = make();
                objects[i] = kmem_cache_alloc_inline(made_late, GFP_KERNEL);
        }
}

/* Returns a result and stores it, with a fallback in place of NULL. */
__attribute__((noinline)) static void *twice(struct kmem_view view, void **used)
{
        void *object = kmem_view_alloc(view, GFP_KERNEL);

        *used = object ? object : &fallback;
        return object;
}

__attribute__((noinline)) static void *first_and_last(struct kmem_view view, int count, void **last)
{
        void *first = NULL;

        *last = NULL;
        for (int i = 0; i < count; i++) {
                void *object = kmem_view_alloc(view, GFP_KERNEL);

                if (!object)
                        break;
                if (!first)
                        first = object;
                *last = object;
        }
        return first;
}

int main(void)
{
        void *objects[OBJECTS];
        struct kmem_view view;

        fill(objects);
        for (int i = 0; i < OBJECTS; i++) {
                CHECK(objects[i]);
                kmem_cache_free_inline(made_late, objects[i]);
        }
        view = kmem_view_of(made_late);
        for (int i = 0; i < OBJECTS; i++) {
                void *used;
                void *object = twice(view, &used);

                CHECK(object && used == object);
                kmem_view_free(view, object);
                object = first_and_last(view, 1, &used);
                CHECK(object && used == object);
                kmem_view_free(view, object);
        }
        kmem_cache_destroy(made_late);
        puts(KMEM_INLINES ? "ok, inlined" : "ok, called");
        return 0;
}
