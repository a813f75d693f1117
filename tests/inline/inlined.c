/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * kmem-inline.h in a program: inlined and called operations may share objects, all of them come
 * back, flags and accounts are honoured. With an argument a misuse, which is to be reported.
 * test_inline.py builds it in many ways.
 */
#include <kmem-inline.h>

#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECTS = 1000, ROUNDS = 200, BYTES = 96 };

static struct kmem_cache *new_cache(slab_flags_t flags)
{
        struct kmem_cache *cache = kmem_cache_create("inlined", BYTES, 0, flags, NULL);

        CHECK(cache);
        return cache;
}

static long attribute(const char *name)
{
        char text[KMEM_ATTR_BYTES];

        CHECK(kmem_attr_read("inlined", name, text, sizeof(text)) > 0);
        return strtol(text, NULL, 10);
}

/* Four ways to take, and to give back, in all combinations; every object keeps its mark. */
static void *take(struct kmem_cache *cache, unsigned int way)
{
        struct kmem_view view = kmem_view_of(cache);

        switch (way % 4) {
        case 0:
                return kmem_cache_alloc_inline(cache, GFP_KERNEL);
        case 1:
                return kmem_view_alloc(view, GFP_KERNEL);
        case 2:
                return kmem_cache_alloc_inline(cache, GFP_KERNEL | __GFP_ZERO);
        default:
                return kmem_cache_alloc(cache, GFP_KERNEL);
        }
}

static void give(struct kmem_cache *cache, unsigned int way, void *object)
{
        struct kmem_view view = kmem_view_of(cache);

        if (way % 3 == 0)
                kmem_cache_free_inline(cache, object);
        else if (way % 3 == 1)
                kmem_view_free(view, object);
        else
                kmem_cache_free(cache, object);
}

static void check_objects(void)
{
        static unsigned char *objects[OBJECTS];
        struct kmem_cache *cache = new_cache(0);

        for (unsigned int round = 0; round < ROUNDS; round++) {
                unsigned int count = 1 + round * 37 % OBJECTS;

                for (unsigned int i = 0; i < count; i++) {
                        objects[i] = take(cache, i + round);
                        CHECK(objects[i]);
                        if ((i + round) % 4 == 2)
                                for (unsigned int k = 0; k < BYTES; k++)
                                        CHECK(objects[i][k] == 0);
                        memset(objects[i], (int)(i % 251), BYTES);
                }
                for (unsigned int i = 0; i < count; i++) {
                        CHECK(objects[i][0] == i % 251 && objects[i][BYTES - 1] == i % 251);
                        give(cache, i * 7 + round, objects[i]);
                }
        }
        kmem_cache_free_inline(cache, NULL);
        CHECK(kmem_cache_shrink(cache) == 0);
        kmem_cache_destroy(cache);
}

/* A loop long enough for slow paths, interrupts and moves to other CPUs. */
static void check_pairs(void)
{
        struct kmem_cache *cache = new_cache(0);
        struct kmem_view view = kmem_view_of(cache);

        for (unsigned int i = 0; i < 3000000; i++) {
                unsigned int *object = kmem_view_alloc(view, GFP_KERNEL);

                *object = i;
                __asm__ volatile("" : : "r"(object) : "memory");
                CHECK(*object == i);
                kmem_view_free(view, object);
        }
        CHECK(kmem_cache_shrink(cache) == 0);
        kmem_cache_destroy(cache);
}

/*
 * An object is charged to its group whatever code allocates it, even if the cache was open
 * before.
 */
static void check_accounts(void)
{
        struct kmem_cache *cache = new_cache(SLAB_ACCOUNT);
        void *early = kmem_cache_alloc_inline(cache, GFP_KERNEL);
        struct kmem_group *group = kmem_group_create("inlined", NULL, 0);
        struct kmem_group_stats stats;
        void *object;

        CHECK(group);
        kmem_group_set(group);
        object = kmem_cache_alloc_inline(cache, GFP_KERNEL);
        CHECK(object && kmem_group_stats(group, &stats) == 0 && stats.objects == 1);
        kmem_cache_free_inline(cache, object);
        CHECK(kmem_group_stats(group, &stats) == 0 && stats.objects == 0);
        kmem_cache_free_inline(cache, early);
        kmem_group_set(NULL);
        CHECK(kmem_group_destroy(group) == 0);
        kmem_cache_destroy(cache);

        cache = new_cache(0);
        group = kmem_group_create("wished", NULL, 0);
        kmem_group_set(group);
        object = kmem_cache_alloc_inline(cache, GFP_KERNEL_ACCOUNT);
        CHECK(object && kmem_group_stats(group, &stats) == 0 && stats.objects == 1);
        kmem_cache_free_inline(cache, object);
        CHECK(kmem_group_stats(group, &stats) == 0 && stats.objects == 0);
        kmem_cache_destroy(cache);
}

static void check_counts(void)
{
        struct kmem_cache *cache = new_cache(0);
        void *objects[10];

        for (unsigned int i = 0; i < 10; i++)
                objects[i] = kmem_cache_alloc_inline(cache, GFP_KERNEL);
        CHECK(attribute("object_size") == BYTES);
        for (unsigned int i = 0; i < 10; i++)
                kmem_cache_free_inline(cache, objects[i]);
        kmem_cache_destroy(cache);
}

static void misuse(const char *how)
{
        struct kmem_cache *cache = new_cache(0);
        void *object = kmem_cache_alloc_inline(cache, GFP_KERNEL);
        long local = 0;

        if (strcmp(how, "double") == 0) {
                kmem_cache_free_inline(cache, object);
                kmem_cache_free_inline(cache, object);
        } else if (strcmp(how, "stranger") == 0) {
                kmem_cache_free_inline(cache, &local);
        } else if (strcmp(how, "left") == 0) {
                kmem_cache_destroy(cache);
        } else {
                fprintf(stderr, "%s: expected double, stranger or left\n", how);
                exit(2);
        }
}

int main(int argc, char **argv)
{
        if (argc > 1) {
                misuse(argv[1]);
                return 0;
        }
        check_objects();
        check_pairs();
        check_accounts();
        check_counts();
        puts(KMEM_INLINES ? "ok, inlined" : "ok, called");
        return 0;
}
