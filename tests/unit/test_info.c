/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Figures for the program itself: kmem_stats_get, kmem_cache_info and kmem_cache_next. The test
 * compares them with its own operations, with each other, and with the attributes of equal names.
 */
#define _GNU_SOURCE
#include "child.h"

#include "lang/bits.h"
#include "kmem.h"
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

enum { OBJECTS = 1000, SIZE = 200, LARGE_BYTES = 1 << 20, HUGE_BYTES = 64 << 20 };

static struct kmem_stats stats_now(void)
{
        struct kmem_stats stats = {.size = sizeof(stats)};

        check_equal(kmem_stats_get(&stats), 0);
        check_equal(stats.size, sizeof(stats));
        return stats;
}

static struct kmem_cache_info info_of(struct kmem_cache *cache)
{
        struct kmem_cache_info info = {.size = sizeof(info)};

        check_equal(kmem_cache_info(cache, &info), 0);
        check_equal(info.size, sizeof(info));
        return info;
}

static void test_stats_follow_the_program(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("info-stats", SIZE, 0, SLAB_NO_MERGE, NULL);
        struct kmem_stats before = stats_now();
        struct kmem_stats after;
        void *objects[OBJECTS];
        uint64_t stride = info_of(cache).slab_size;
        void *large;
        void *huge;

        for (unsigned int i = 0; i < OBJECTS; i++)
                check(objects[i] = kmem_cache_alloc(cache, GFP_KERNEL));
        large = kmalloc(LARGE_BYTES, GFP_KERNEL);
        huge = kmalloc(HUGE_BYTES, GFP_KERNEL);
        check(large && huge);
        after = stats_now();
        check_equal(after.caches, before.caches);
        check_equal(after.objects_inuse - before.objects_inuse, OBJECTS);
        check_equal(after.object_bytes_inuse - before.object_bytes_inuse, OBJECTS * stride);
        check_equal(after.large_blocks - before.large_blocks, 1);
        check_equal(after.large_bytes - before.large_bytes, LARGE_BYTES);
        check_equal(after.huge_blocks - before.huge_blocks, 1);
        check_equal(after.huge_bytes - before.huge_bytes, HUGE_BYTES);
        check_equal(after.bytes_inuse - before.bytes_inuse,
                    OBJECTS * stride + LARGE_BYTES + HUGE_BYTES);
        check_equal(after.large_taken - before.large_taken, 2);
        check(after.objects_taken - before.objects_taken >= OBJECTS);
        check(after.objects_resting <= after.objects_free);
        check_equal(after.page_bytes, 4096);
        check_equal(after.pages_used + after.pages_free, after.pages_accessible);
        check(after.pages_free_touched <= after.pages_free);
        check(after.pages_used * after.page_bytes >= after.object_bytes_inuse + after.large_bytes);
        check(after.metadata_used_bytes > 0 && after.metadata_used_bytes <= after.metadata_bytes);
        kfree(large);
        kfree(huge);
        for (unsigned int i = 0; i < OBJECTS; i++)
                kmem_cache_free(cache, objects[i]);
        after = stats_now();
        check_equal(after.objects_inuse, before.objects_inuse);
        check_equal(after.bytes_inuse, before.bytes_inuse);
        kmem_cache_destroy(cache);
        check_equal(stats_now().caches, before.caches - 1);
}

static uint64_t attribute(const char *name)
{
        char text[KMEM_ATTR_BYTES];

        check(kmem_attr_read("info-one", name, text, sizeof(text)) > 0);
        return strtoul(text, NULL, 10);
}

static void test_info_agrees_with_attributes(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("info-one", SIZE, 64, SLAB_NO_MERGE, NULL);
        void *objects[OBJECTS];
        struct kmem_cache_info info;

        for (unsigned int i = 0; i < OBJECTS; i++)
                check(objects[i] = kmem_cache_alloc(cache, GFP_KERNEL));
        info = info_of(cache);
        check(strcmp(info.name, "info-one") == 0);
        check_equal(info.objects_inuse, OBJECTS);
        check_equal(info.objects_inuse, attribute("objects_inuse"));
        check_equal(info.object_size, attribute("object_size"));
        check_equal(info.slab_size, attribute("slab_size"));
        check_equal(info.align, attribute("align"));
        check_equal(info.objperslab, attribute("objs_per_slab"));
        check_equal(info.pagesperslab, 1u << attribute("order"));
        check_equal(info.num_objs, attribute("total_objects"));
        check_equal(info.num_slabs, attribute("slabs"));
        check_equal(info.partial_slabs, attribute("partial"));
        check_equal(info.cpu_partial, attribute("cpu_partial"));
        check_equal(info.min_partial, attribute("min_partial"));
        check_equal(info.sheaf_capacity, attribute("sheaf_capacity"));
        check_equal(info.aliases, attribute("aliases"));
        check_equal(info.taken - info.given, info.objects_inuse + info.objects_resting);
        check(info.active_objs >= info.objects_inuse || strcmp(info.engine, "slob") == 0);
        for (unsigned int i = 0; i < OBJECTS; i++)
                kmem_cache_free(cache, objects[i]);
        check_equal(info_of(cache).objects_inuse, 0);
        check_equal(info_of(cache).id, info.id);
        kmem_cache_destroy(cache);
}

/* A struct of another version: of a program that is older, or newer, than the library. */
static void test_sizes(void **state)
{
        struct {
                struct kmem_stats stats;
                uint64_t newer[2];
        } wide = {.stats.size = sizeof(wide), .newer = {7, 7}};
        size_t lone[2] = {sizeof(size_t), 99};
        struct kmem_cache_info info;
        uint64_t position = 0;

        check_equal(kmem_stats_get(&wide.stats), 0);
        check_equal(wide.stats.size, sizeof(wide.stats));
        check(!wide.newer[0] && !wide.newer[1]);
        check_equal(kmem_stats_get((struct kmem_stats *)(void *)lone), 0);
        check_equal(lone[0], sizeof(size_t));
        check_equal(lone[1], 99);
        info.size = 4;
        check_equal(kmem_cache_next(&position, &info), -1);
        check_equal(errno, EINVAL);
        check_equal(position, 0);
        check_equal(kmem_stats_get(NULL), -1);
        check_equal(errno, EINVAL);
        info.size = sizeof(info);
        check_equal(kmem_cache_info(NULL, &info), -1);
        check_equal(errno, EINVAL);
        check_equal(kmem_cache_info((struct kmem_cache *)(void *)&info, &info), -1);
        check_equal(errno, EINVAL);
}

/* Sums of a walk equal the heap's. */
static void test_walk_is_complete(void **state)
{
        struct kmem_stats stats;
        struct kmem_cache_info info = {.size = sizeof(info)};
        uint64_t position = 0;
        uint64_t objects = 0;
        uint64_t caches = 0;
        uint64_t slabs = 0;
        uint64_t last = UINT64_MAX;

        stats = stats_now();
        while (kmem_cache_next(&position, &info) == 1) {
                check(info.id < last);
                last = info.id;
                objects += info.objects_inuse;
                slabs += info.num_slabs;
                caches++;
                info.size = sizeof(info);
        }
        check_equal(caches, stats.caches);
        check_equal(objects, stats.objects_inuse);
        check_equal(slabs, stats.slabs);
        check_equal(kmem_cache_next(&position, &info), 0);
}

enum { KEPT = 8, ROUNDS = 300 };
static bool stop;

static void *come_and_go(void *unused)
{
        while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
                struct kmem_cache *cache =
                        kmem_cache_create("info-brief", 64, 0, SLAB_NO_MERGE, NULL);
                void *object = kmem_cache_alloc(cache, GFP_KERNEL);

                kmem_cache_free(cache, object);
                kmem_cache_destroy(cache);
        }
        return unused;
}

static void test_walk_while_caches_come_and_go(void **state)
{
        struct kmem_cache *kept[KEPT];
        pthread_t thread;

        for (unsigned int i = 0; i < KEPT; i++) {
                char name[16];

                snprintf(name, sizeof(name), "info-kept-%u", i);
                kept[i] = kmem_cache_create(name, 64, 0, SLAB_NO_MERGE, NULL);
                check(kept[i]);
        }
        check_equal(pthread_create(&thread, NULL, come_and_go, NULL), 0);
        for (unsigned int round = 0; round < ROUNDS; round++) {
                struct kmem_cache_info info = {.size = sizeof(info)};
                uint64_t position = 0;
                unsigned int found = 0;

                while (kmem_cache_next(&position, &info) == 1) {
                        found += strncmp(info.name, "info-kept-", 10) == 0;
                        check(info.given <= info.taken);
                        info.size = sizeof(info);
                }
                check_equal(found, KEPT);
        }
        __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
        pthread_join(thread, NULL);
        for (unsigned int i = 0; i < KEPT; i++)
                kmem_cache_destroy(kept[i]);
}

/* The walk goes on behind a cache that the walker itself destroys. */
static void test_walk_and_destroy(void **state)
{
        struct kmem_cache *caches[3];
        struct kmem_cache_info info = {.size = sizeof(info)};
        uint64_t position = 0;
        unsigned int found = 0;

        for (unsigned int i = 0; i < 3; i++)
                check(caches[i] = kmem_cache_create("info-gone", 96, 0, SLAB_NO_MERGE, NULL));
        while (kmem_cache_next(&position, &info) == 1) {
                if (strcmp(info.name, "info-gone") == 0 && ++found == 2) {
                        kmem_cache_destroy(caches[0]);
                        kmem_cache_destroy(caches[1]);
                }
                info.size = sizeof(info);
        }
        check_equal(found, 2);
        kmem_cache_destroy(caches[2]);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_stats_follow_the_program),
                cmocka_unit_test(test_info_agrees_with_attributes),
                cmocka_unit_test(test_sizes),
                cmocka_unit_test(test_walk_is_complete),
                cmocka_unit_test(test_walk_while_caches_come_and_go),
                cmocka_unit_test(test_walk_and_destroy),
        };

        child_main(argc, argv, NULL, 0);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
