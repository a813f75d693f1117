/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Order, placement of the free list, colours and tunables of caches of engine slab, against S6.
 */
#include "child.h"

#include "heap/heap.h"
#include "base/options.h"
#include "engines/slab/slab.h"
#include "process/start.h"

#include <errno.h>
#include <string.h>

/* The result of a cache's setup, kept after its nodes have been freed. */
static struct kmem_cache layout_of(const char *name, uint32_t object_size, uint32_t align,
                                   uint32_t flags, void (*ctor)(void *), struct slab_cache *data)
{
        struct kmem_cache probe = {
                .object_size = object_size, .align = align, .flags = flags, .ctor = ctor};

        strcpy(probe.name, name);
        check_equal(slab_setup(&probe), 0);
        memcpy(data, slab_data(&probe), slab_data_bytes());
        slab_data_free(&probe);
        return probe;
}

static void no_constructor(void *object)
{
        (void)object;
}

/* S6-11, S6-12, S6-20: worked out by hand from the rules, for machines above 32 MiB. */
static void orders_and_placements(void **state)
{
        static const struct {
                uint32_t size, flags;
                bool ctor;
                uint32_t stride, order, objects;
                enum slab_placement placement;
        } rows[] = {
                {8, 0, false, 16, 0, 240, PLACE_ON_SLAB}, /* 256 indexes of a byte are too many */
                {16, 0, false, 16, 0, 240, PLACE_ON_SLAB},
                {32, 0, false, 32, 0, 124, PLACE_ON_SLAB}, /* 128 indexes exceed 32 bytes */
                {60, 0, false, 64, 0, 63, PLACE_ON_SLAB},  /* the list would exceed the object */
                {64, 0, false, 64, 0, 64, PLACE_OBJECT},
                {96, 0, false, 96, 0, 42, PLACE_OBJECT},
                {192, 0, false, 192, 0, 21, PLACE_OBJECT},
                {700, 0, false, 704, 1, 11, PLACE_OBJECT}, /* 576 bytes left at order 0: > 1/8 */
                {700, SLAB_RECLAIM_ACCOUNT, false, 704, 0, 5, PLACE_OBJECT},
                {3584, 0, false, 3584, 0, 1, PLACE_OBJECT}, /* just 1/8 left */
                {4096, 0, false, 4096, 0, 1, PLACE_OBJECT},
                {5000, 0, false, 5000, 1, 1, PLACE_OBJECT},
                {20000, 0, false, 20000, 3, 1,
                 PLACE_OBJECT}, /* above the maximum order: first fit */
                {4 << 20, 0, false, 4 << 20, 10, 1, PLACE_OBJECT},
                {512, 0, true, 512, 0, 8, PLACE_OFF_SLAB},
                {512, SLAB_TYPESAFE_BY_RCU, false, 512, 0, 8, PLACE_OFF_SLAB},
                {512, SLAB_NOLEAKTRACE, true, 512, 0, 7, PLACE_ON_SLAB},
                {96, 0, true, 96, 0, 42, PLACE_ON_SLAB}, /* 64 bytes left would hold the list */
        };

        for (size_t row = 0; row < array_size(rows); row++) {
                struct slab_cache data;
                struct kmem_cache probe = layout_of("probe", rows[row].size, 0, rows[row].flags,
                                                    rows[row].ctor ? no_constructor : NULL, &data);

                check_equal(probe.size, rows[row].stride);
                check_equal(probe.order, rows[row].order);
                check_equal(probe.objects, rows[row].objects);
                check_equal(data.placement, rows[row].placement);
        }
}

static void too_large(void **state)
{
        struct kmem_cache probe = {.object_size = (4u << 20) + 1, .name = "probe"};

        check_equal(slab_setup(&probe), EINVAL);
}

/* S6-20: the boot option. */
static void max_order_option(void **state)
{
        struct slab_cache data;
        struct kmem_cache probe;

        options.slab_max_order = 0;
        probe = layout_of("probe", 700, 0, 0, NULL, &data);
        check_equal(probe.order, 0);
        options.slab_max_order = 3;
        probe = layout_of("probe", 2800, 0, 0, NULL, &data);
        check_equal(probe.order, 3); /* the first to leave less than an eighth */
        check_equal(probe.objects, 11);
        options.slab_max_order = SLAB_MAX_ORDER_AUTO;
}

/* S6-21: the unit is a line, or the alignment above it. */
static void colours(void **state)
{
        struct slab_cache data;

        layout_of("probe", 700, 0, SLAB_RECLAIM_ACCOUNT, NULL, &data);
        check_equal(data.colour_lines * COLOUR_BYTES, 64);
        check_equal(data.colours, 9);
        layout_of("probe", 1300, 256, 0, NULL, &data); /* stride 1536: 2 objects, 1024 left */
        check_equal(data.colour_lines * COLOUR_BYTES, 256);
        layout_of("probe", 64, 0, 0, NULL, &data);
        check_equal(data.colours, 0);
}

/* S6.6, S6-50, S6-43 */
static void default_tunables(void **state)
{
        static const struct {
                uint32_t size, limit, batchcount, shared;
        } rows[] = {
                {8, 120, 60, 8},   {256, 120, 60, 8}, {257, 54, 27, 8},
                {1024, 54, 27, 8}, {1025, 24, 12, 8}, {4096, 24, 12, 8},
                {4097, 8, 4, 0},   {131072, 8, 4, 0}, {131073, 1, 1, 0},
        };

        for (size_t row = 0; row < array_size(rows); row++) {
                struct slab_cache data;
                struct kmem_cache probe = layout_of("probe", rows[row].size, 0, 0, NULL, &data);
                bool many_cpus = system_cpus(CPUS_POSSIBLE) > 1;

                check_equal(probe.sheaf_capacity, rows[row].limit);
                check_equal(probe.batchcount, rows[row].batchcount);
                check_equal(probe.shared, many_cpus ? rows[row].shared : 0);
                check_equal(data.node[0].free_limit,
                            (uint64_t)(1 + system_cpus(CPUS_ONLINE)) * probe.batchcount +
                                    probe.objects);
        }
}

/* S6-51: options of single caches; a child, as options are read at the start. */
static void tunables_given(void)
{
        static const struct {
                const char *name;
                uint32_t limit, batchcount, shared;
        } rows[] = {
                {"limit", 30, 15, 8},     {"all", 30, 7, 3},    {"batch", 120, 100, 8},
                {"toobig", 120, 60, 8},  /* batchcount above limit */
                {"zero", 120, 60, 8},    /* limit 0 */
                {"nobatch", 120, 60, 8}, /* batchcount 0 */
                {"unshared", 120, 60, 0}, {"sheaf", 40, 20, 8}, {"none", 0, 1, 0},
        };

        for (size_t row = 0; row < array_size(rows); row++) {
                struct slab_cache data;
                struct kmem_cache probe = layout_of(rows[row].name, 64, 0, 0, NULL, &data);

                check_equal(probe.sheaf_capacity, rows[row].limit);
                check_equal(probe.batchcount, rows[row].batchcount);
                if (system_cpus(CPUS_POSSIBLE) > 1)
                        check_equal(probe.shared, rows[row].shared);
        }
}

static void tunables_by_option(void **state)
{
        child_passes("tunables_given", "limit.limit=30,all.limit=30,all.batchcount=7,all.shared=3,"
                                       "batch.batchcount=100,toobig.limit=30,toobig.batchcount=31,"
                                       "zero.limit=0,nobatch.batchcount=0,unshared.shared=0,"
                                       "sheaf.sheaf_capacity=40,none.sheaf_capacity=0");
}

/* The engine is chosen by name, and others keep theirs. */
static void engines_chosen(void)
{
        struct kmem_cache *slab = kmem_cache_create("my-slab", 100, 0, 0, NULL);
        struct kmem_cache *slub = kmem_cache_create("other", 100, 0, 0, NULL);

        check(slab->engine == &slab_engine && slub->engine == &slub_engine);
        kmem_cache_free(slab, kmem_cache_alloc(slab, GFP_KERNEL));
        kmem_cache_free(slub, kmem_cache_alloc(slub, GFP_KERNEL));
        kmem_cache_destroy(slab);
        kmem_cache_destroy(slub);
}

static void engine_by_name(void **state)
{
        child_passes("engines_chosen", "engine=slub,my-*.engine=slab");
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"tunables_given", tunables_given},
                {"engines_chosen", engines_chosen},
        };
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(orders_and_placements), cmocka_unit_test(too_large),
                cmocka_unit_test(max_order_option),      cmocka_unit_test(colours),
                cmocka_unit_test(default_tunables),      cmocka_unit_test(tunables_by_option),
                cmocka_unit_test(engine_by_name),
        };

        child_main(argc, argv, children, array_size(children));
        heap_ready();
        return cmocka_run_group_tests(tests, NULL, NULL);
}
