/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Stride, order and list limits of SLUB caches against the tables and formulas of S1, S2, S3, S4.
 */
#define _GNU_SOURCE
#include "child.h"
#include "order_rows.h"
#include "skip.h"
#include "steps.h"

#include "heap/heap.h"
#include "base/options.h"
#include "engines/slub/slab.h"
#include "process/start.h"

#include <stdio.h>
#include <string.h>

static struct kmem_cache layout(uint32_t object_size, uint32_t align, uint32_t flags)
{
        struct kmem_cache probe = {
                .object_size = object_size, .align = align, .flags = flags, .name = "probe"};

        check_equal(slub_setup(&probe), 0);
        return probe;
}

/* S3.5, with min_objects of 1, 8, 64 and 256 CPUs (S3-13). */
static void order_table(void **state)
{
        for (size_t column = 0; column < ORDER_COLUMNS; column++) {
                options.slub_min_objects = order_columns[column].min_objects;
                for (size_t row = 0; row < array_size(order_rows); row++) {
                        struct kmem_cache probe = layout(order_rows[row].size, 0, 0);

                        check_equal(probe.order, order_rows[row].of[column].order);
                        check_equal(probe.objects, order_rows[row].of[column].objects);
                }
        }
        options.slub_min_objects = 0;
}

/* S3-13 and S3-10: without slub_min_objects the CPU count decides. */
static void cpu_count(void **state)
{
        unsigned int cpus = system_cpus((enum cpu_count)options.order_cpus);
        struct kmem_cache by_cpus = layout(256, 0, 0);
        struct kmem_cache by_number;

        options.slub_min_objects = 4 * (fls(cpus) + 1);
        by_number = layout(256, 0, 0);
        options.slub_min_objects = 0;
        check_equal(by_cpus.order, by_number.order);
        check_equal(by_cpus.objects, by_number.objects);
}

/* S3-20 to S3-22, written down a second time; 11 if the object fits no slab. */
static unsigned int model_order(uint32_t size, uint32_t min_objects)
{
        unsigned int max = (unsigned int)options.slub_max_order;
        size_t most = (PAGE_SIZE << max) / size;
        size_t wanted = min_objects;
        unsigned int floor;

        if (wanted > (most ? most : 1))
                wanted = most ? most : 1;
        for (floor = 0; PAGE_SIZE << floor < wanted * size; floor++)
                ;
        if (floor < options.slub_min_order)
                floor = (unsigned int)options.slub_min_order;
        if ((PAGE_SIZE << floor) / size > 32767) {
                for (floor = 0; PAGE_SIZE << floor < (size_t)size * 32767; floor++)
                        ;
                return floor - 1;
        }
        for (unsigned int fraction = 16; fraction >= 2; fraction /= 2)
                for (unsigned int order = floor; order <= max; order++)
                        if ((PAGE_SIZE << order) % size <= (PAGE_SIZE << order) / fraction)
                                return order;
        for (floor = 0; PAGE_SIZE << floor < size; floor++)
                ;
        return floor;
}

static void order_against_model(void **state)
{
        static const struct {
                uint32_t min_objects, min_order, max_order;
        } settings[] = {{8, 0, 3},  {12, 0, 3}, {20, 0, 3}, {32, 0, 3}, {40, 0, 3},   {56, 0, 3},
                        {12, 0, 0}, {12, 2, 2}, {1, 0, 10}, {40, 5, 8}, {500, 0, 10}, {1, 10, 10}};

        for (size_t i = 0; i < array_size(settings); i++) {
                options.slub_min_objects = settings[i].min_objects;
                options.slub_min_order = settings[i].min_order;
                options.slub_max_order = settings[i].max_order;
                for (uint32_t size = 8; size <= 5 * PAGE_SIZE; size += 8) {
                        struct kmem_cache probe = layout(size, 0, 0);
                        size_t objects = (PAGE_SIZE << probe.order) / size;

                        check_equal(probe.order, model_order(size, settings[i].min_objects));
                        /* S1-02; 255 and 256 objects would double the index table. */
                        objects = objects > 32767 ? 32767 : objects;
                        objects = objects == 255 || objects == 256 ? 254 : objects;
                        check_equal(probe.objects, objects);
                        check(probe.objects * (size_t)probe.size <= PAGE_SIZE << probe.order);
                        check(PAGE_SIZE << probe.min_order >= probe.size);
                        check(probe.min_order == 0 ||
                              PAGE_SIZE << (probe.min_order - 1) < probe.size);
                        check(probe.min_order_objects >= 1);
                }
        }
        options.slub_min_objects = options.slub_min_order = 0;
        options.slub_max_order = 3;
}

/* S3-23: the sizes for which the rules differ. */
static void child_rule_6_12(void)
{
        for (uint32_t size = 10928; size <= 12280; size += 8) {
                struct kmem_cache probe = layout(size, 0, 0);

                check_equal(probe.order, 3);
                check_equal(probe.objects, 2);
        }
}

static void child_rule_5_10(void)
{
        for (uint32_t size = 10928; size <= 12280; size += 8) {
                struct kmem_cache probe = layout(size, 0, 0);

                check_equal(probe.order, 2);
                check_equal(probe.objects, 1);
        }
}

static void order_rule(void **state)
{
        child_passes("rule_6_12", "");
        child_passes("rule_6_12", "order_rule=6.12");
        child_passes("rule_5_10", "order_rule=5.10");
}

static void too_large(void **state)
{
        struct kmem_cache probe = {.object_size = (4u << 20) + 1, .name = "probe"};

        check(slub_setup(&probe) != 0);
        probe = layout(4u << 20, 0, 0);
        check_equal(probe.order, 10);
        check_equal(probe.objects, 1);
}

/* Classes of the finer table have larger slabs, but where that makes the table of small objects wide. */
static void fine_classes(void **state)
{
        static const uint32_t expected[][3] = {/* size, order, objects per slab */
                                               {8, 0, 512},   {16, 0, 254},  {24, 0, 170},
                                               {32, 1, 254},  {40, 1, 204},  {56, 1, 146},
                                               {64, 3, 512},  {72, 3, 455},  {256, 3, 128},
                                               {1024, 3, 32}, {2048, 3, 16}, {4096, 3, 8}};

        for (size_t i = 0; i < array_size(expected); i++) {
                struct kmem_cache probe = layout(expected[i][0], 0, SLAB_KMALLOC);

                check_equal(probe.order, expected[i][1]);
                check_equal(probe.objects, expected[i][2]);
        }
        options.slub_max_order = 1;
        check_equal(layout(64, 0, SLAB_KMALLOC).order, 1);
        options.slub_max_order = 3;
        options.slub_min_order = 2;
        check_equal(layout(16, 0, SLAB_KMALLOC).order, 2);
        options.slub_min_order = 0;
        options.slub_min_objects = 64;
        check_equal(layout(64, 0, SLAB_KMALLOC).order, 0);
        options.slub_min_objects = 0;
}

/* S1-09 */
static void min_partial(void **state)
{
        static const uint32_t expected[][2] = {
                {8, 5},     {4088, 5},  {4096, 6},    {16376, 6},    {16384, 7},
                {65528, 7}, {65536, 8}, {1 << 18, 9}, {1 << 20, 10}, {4 << 20, 10}};

        for (size_t i = 0; i < array_size(expected); i++)
                check_equal(layout(expected[i][0], 0, 0).min_partial, expected[i][1]);
}

/* S2.3, later kernels; S2-11. */
static void cpu_partial_table(void **state)
{
        static const uint32_t expected[][4] = {
                /* size, objects per slab, cpu_partial, slabs */
                {8, 512, 120, 1},  {32, 128, 120, 2}, {64, 64, 120, 4}, {96, 42, 120, 6},
                {128, 32, 120, 8}, {192, 42, 120, 6}, {256, 32, 52, 4}, {512, 32, 52, 4},
                {1024, 32, 24, 2}, {2048, 16, 24, 3}, {4096, 8, 6, 2},  {8192, 4, 6, 3}};

        options.slub_min_objects = 32;
        for (size_t i = 0; i < array_size(expected); i++) {
                struct kmem_cache probe = layout(expected[i][0], 0, 0);

                check_equal(probe.objects, expected[i][1]);
                check_equal(probe.cpu_partial, expected[i][2]);
                check_equal(probe.cpu_partial_slabs, expected[i][3]);
        }
        options.slub_min_objects = 0;
}

/* S2-11: ceil(2 * cpu_partial / objects), also after a change. */
static void cpu_partial_slabs(void **state)
{
        struct kmem_cache probe = layout(64, 0, 0);

        for (uint32_t objects = 0; objects < 400; objects++) {
                slub_set_cpu_partial(&probe, objects);
                check_equal(probe.cpu_partial, objects);
                check(probe.cpu_partial_slabs * probe.objects >= 2 * objects);
                check(probe.cpu_partial_slabs == 0 ||
                      (probe.cpu_partial_slabs - 1) * probe.objects < 2 * objects);
        }
}

/* S4-20 to S4-23, S4-01, S4-08 */
static void stride_and_align(void **state)
{
        static const struct {
                uint32_t object_size, align, flags, expected_align, expected_size;
        } rows[] = {
                {1, 0, 0, 8, 8},
                {8, 0, 0, 8, 8},
                {9, 0, 0, 8, 16},
                {100, 0, 0, 8, 104},
                {100, 4, 0, 8, 104},
                {100, 32, 0, 32, 128},
                {5, 0, SLAB_HWCACHE_ALIGN, 8, 8},
                {9, 0, SLAB_HWCACHE_ALIGN, 16, 16},
                {16, 0, SLAB_HWCACHE_ALIGN, 16, 16},
                {17, 0, SLAB_HWCACHE_ALIGN, 32, 32},
                {32, 0, SLAB_HWCACHE_ALIGN, 32, 32},
                {33, 0, SLAB_HWCACHE_ALIGN, 64, 64},
                {65, 0, SLAB_HWCACHE_ALIGN, 64, 128},
                {200, 0, SLAB_HWCACHE_ALIGN, 64, 256},
                {20, 128, SLAB_HWCACHE_ALIGN, 128, 128},
                {24, 4096, 0, 4096, 4096},
        };

        for (size_t i = 0; i < array_size(rows); i++) {
                struct kmem_cache probe = layout(rows[i].object_size, rows[i].align, rows[i].flags);

                check_equal(probe.align, rows[i].expected_align);
                check_equal(probe.size, rows[i].expected_size);
        }
}

/* Division by the reciprocal: exact for every object start, none for anything else. */
static void index_of_address(void **state)
{
        for (uint32_t size = 8; size <= 5 * PAGE_SIZE; size += size < 600 ? 8 : 264) {
                struct kmem_cache cache = layout(size, 0, 0);
                struct page *slab = page_at(CHUNK_PAGES);
                char *start = page_address(slab);
                size_t bytes = PAGE_SIZE << cache.order;

                check_equal(cache.slab_mask, bytes - 1);
                for (size_t offset = 0; offset < bytes; offset += size < 4096 ? 1 : 7) {
                        uint32_t index = slub_index(&cache, slab, cache.objects, start + offset);
                        bool is_start = offset % size == 0 && offset / size < cache.objects;

                        check_equal(index, is_start ? offset / size : INDEX_END);
                        check_equal(cache_is_object(&cache, start + offset), is_start);
                }
        }
}

static void state_word(void **state)
{
        uint64_t random = 88172645463325252ull;

        for (int i = 0; i < 100000; i++) {
                uint64_t word = random_step(&random) << 16 ^ random_step(&random);

                check_equal(state_pack(state_unpack(word)), word);
        }
}

/* A whole child each, since the options are read once at its start. */
static void child_options(void)
{
        struct kmem_cache probe = layout(256, 0, 0);

        check_equal(options.slub_min_objects, 32);
        check_equal(probe.order, 1);
        check_equal(probe.min_partial, 17);
        check_equal(probe.cpu_partial, 40);
        check_equal(probe.cpu_partial_slabs, 3); /* ceil(80 / 32) */
        check_equal(layout(64, 0, 0).order, 1);
}

static void options_reach_layout(void **state)
{
        child_passes("options", "slub_min_objects=32,slub_min_order=1,probe.min_partial=17,"
                                "probe.cpu_partial=40");
}

/*
 * Slabs of exact pages leave holes that are shorter than the slabs that another cache prefers, and
 * that lie where such a slab would begin. Blocks that this cache puts into a hole are not theirs.
 */
static void child_exact_slabs(void)
{
        static void *blocks[1000],
                *objects[1 << 16]; /* 20 MB; objects that do not fit lie elsewhere */
        struct kmem_cache *cache = kmem_cache_create("fallback", 3000, 0, SLAB_NO_MERGE, NULL);
        size_t made = 0;

        check(cache && cache->order > cache->min_order);
        for (size_t i = 0; i < array_size(blocks); i++)
                check(blocks[i] = kmalloc(5 * PAGE_SIZE, GFP_KERNEL));
        for (size_t i = 0; i < array_size(blocks); i += 2)
                kfree(blocks[i]);
        while (made < array_size(objects) &&
               (objects[made] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN)))
                made++;
        check(made && made < array_size(objects));
        for (size_t i = 0; i < made; i++) {
                const struct page *slab = slub_slab_of(cache, objects[i]);

                check_equal(fast.map[slab - heap.pages], cache->pair_offset);
                check(slub_is_object(cache, objects[i]));
                check(cache_is_object(cache, objects[i]));
                check(!cache_is_object(cache, (char *)objects[i] + 8));
                kmem_cache_free(cache, objects[i]);
        }
        check_equal(kmem_cache_shrink(cache), 0);
        for (size_t i = 1; i < array_size(blocks); i += 2)
                kfree(blocks[i]);
        kmem_cache_destroy(cache);
}

static void exact_slabs_beside_fallback_orders(void **state)
{
        child_passes("exact_slabs", "engine=slub,reserve=8M");
}

/*
 * A page of a slab with the fallback order, behind a slab and then another block of other caches.
 */
static struct kmem_cache of_address;
static struct page *aligned_page;
static const void *address;
static const struct page *found;

static void find_slab(void)
{
        found = slub_slab_of(&of_address, address);
}

/* The stores at the end of a slab there, and at the making of a block of fewer pages. */
static void neighbour_changes(void)
{
        store_relaxed(&aligned_page->kind, PAGE_UNUSED);
        aligned_page->order = (uint8_t)of_address.order;
}

static void slab_of_address_beside_change(void **state)
{
        const struct page *last;
        unsigned int step = 0;
        bool changed;

        skip_without_steps();
        of_address = layout(1024, 0, 0);
        check(of_address.order > of_address.min_order && of_address.min_order == 0);
        aligned_page = pages_alloc(of_address.order, NODE_ANY, NULL);
        check(aligned_page != NULL);
        last = aligned_page + order_pages(of_address.order) - 1;
        address = page_address(last);
        do {
                store_relaxed(&aligned_page->kind, PAGE_SLAB);
                aligned_page->order = 0;
                changed = run_with_act_at(step++, find_slab, neighbour_changes);
                check(found == last);
        } while (changed);
        check(step > 10); /* that many instructions it takes at least */
        store_relaxed(&aligned_page->kind, PAGE_UNUSED);
        pages_free(aligned_page, order_pages(of_address.order));
}

static void child_max_order(void)
{
        check_equal(options.slub_max_order, 5); /* S3-02: setting min above max raises max */
        check_equal(layout(8192, 0, 0).order, 5);
        options.slub_min_order = 0;
        options.slub_max_order = 0;
        check_equal(layout(64, 0, 0).order, 0);
        check_equal(layout(8192, 0, 0).order, 1); /* S3-22 */
}

static void min_order_raises_max(void **state)
{
        child_passes("max_order", "slub_min_order=5");
}

static void child_order_cpus(void)
{
        unsigned int cpus = system_cpus((enum cpu_count)options.order_cpus);
        unsigned int order = layout(1024, 0, 0).order;

        options.slub_min_objects = 4 * (fls(cpus) + 1);
        check_equal(layout(1024, 0, 0).order, order);
}

static void order_cpus(void **state)
{
        child_passes("order_cpus", "order_cpus=usable");
        child_passes("order_cpus", "order_cpus=online");
        child_passes("order_cpus", "order_cpus=present");
        child_passes("order_cpus", "order_cpus=possible");
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"options", child_options},       {"rule_6_12", child_rule_6_12},
                {"rule_5_10", child_rule_5_10},   {"max_order", child_max_order},
                {"order_cpus", child_order_cpus}, {"exact_slabs", child_exact_slabs},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(order_table),
                cmocka_unit_test(cpu_count),
                cmocka_unit_test(order_against_model),
                cmocka_unit_test(order_rule),
                cmocka_unit_test(too_large),
                cmocka_unit_test(fine_classes),
                cmocka_unit_test(min_partial),
                cmocka_unit_test(cpu_partial_table),
                cmocka_unit_test(cpu_partial_slabs),
                cmocka_unit_test(stride_and_align),
                cmocka_unit_test(index_of_address),
                cmocka_unit_test(state_word),
                cmocka_unit_test(options_reach_layout),
                cmocka_unit_test(min_order_raises_max),
                cmocka_unit_test(order_cpus),
                cmocka_unit_test(exact_slabs_beside_fallback_orders),
                cmocka_unit_test(slab_of_address_beside_change),
        };

        if (!heap_ready()) /* reads the options */
                return 1;
        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests_name("slub layout", tests, NULL, NULL);
}
