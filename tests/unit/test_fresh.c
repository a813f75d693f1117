/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Fresh objects (engines/fresh.h): kmalloc leaves memory alone that nobody has touched, clears the mark
 * of all other blocks, and never hands out a pointer with the bit.
 */
#define _GNU_SOURCE
#include "engines.h"
#include "resident.h"

#include "heap/reclaim.h"
#include "percpu/freed.h"

#include <string.h>

enum { BYTES = 2 << 20, BLOCKS_MAX = BYTES / 24 + 1, SIZES = 6 };

static const size_t sizes[SIZES] = {24, 200, 1000, 5000, 8192, 20000};
static unsigned char *blocks[BLOCKS_MAX];

static bool is_touched(const void *block)
{
        uintptr_t page = (uintptr_t)block & ~(uintptr_t)(system_page_bytes() - 1);
        size_t resident = resident_bytes((const void *)page, system_page_bytes());

        check(resident != SIZE_MAX); /* no address that a program can have */
        return resident != 0;
}

static size_t take_all(size_t size)
{
        size_t count = BYTES / size;

        for (size_t i = 0; i < count; i++) {
                blocks[i] = kmalloc(size, GFP_KERNEL);
                check(blocks[i] != NULL);
        }
        return count;
}

/* Each block is of use, and is nobody else's. */
static void fill_and_free(size_t size, size_t count)
{
        for (size_t i = 0; i < count; i++)
                memset(blocks[i], (int)(i % 251), size);
        for (size_t i = 0; i < count; i++) {
                check_equal(blocks[i][0], i % 251);
                check_equal(blocks[i][size - 1], i % 251);
                kfree(blocks[i]);
        }
}

static void child_not_touched(void)
{
        for (int s = 0; s < SIZES; s++) {
                size_t count = take_all(sizes[s]);
                size_t touched = 0;

                for (size_t i = 0; i < count; i++)
                        touched += is_touched(blocks[i]);
                check(touched < count / 4);
                fill_and_free(sizes[s], count);
                heap_trim(0); /* the next size finds no page that was touched */
        }
}

static void not_touched(void **state)
{
        (void)state;
        skip_unless_engine(slub_engine);
        skip_on_larger_pages();
        child_passes("not_touched", "debug=-");
        child_passes("not_touched", "debug=-,sheaf_capacity=0");
}

/* Slabs end, and new ones of the class have their pages, where the marks of freed blocks still stand. */
static void child_marks_are_cleared(void)
{
        for (int s = 0; s < SIZES; s++) {
                size_t count = take_all(sizes[s]);
                uintptr_t first = UINTPTR_MAX;
                uintptr_t last = 0;
                size_t again = 0;

                for (size_t i = 0; i < count; i++) {
                        first = min_of(first, (uintptr_t)blocks[i]);
                        last = max_of(last, (uintptr_t)blocks[i]);
                }
                for (size_t i = 1; i < count; i++)
                        kfree(blocks[i]);
                kmem_cache_shrink(cache_of(blocks[0]));
                kfree(blocks[0]);
                count = take_all(sizes[s]);
                for (size_t i = 0; i < count; i++) {
                        again += (uintptr_t)blocks[i] >= first && (uintptr_t)blocks[i] <= last;
                        check(!freed_is_marked(blocks[i]));
                }
                check(again > count / 2);
                fill_and_free(sizes[s], count);
        }
}

static void marks_are_cleared(void **state)
{
        (void)state;
        skip_unless_engine(slub_engine);
        child_passes("marks_are_cleared", "debug=-,purge_delay=1h");
        child_passes("marks_are_cleared", "debug=-,purge_delay=1h,sheaf_capacity=0");
        child_passes("marks_are_cleared", "debug=-,purge_delay=1h,cpu_slabs=0");
}

/* Objects of a sheaf that nobody has had go back to their slabs, and are handed out by all ways. */
static void child_go_back(void)
{
        for (int s = 0; s < SIZES; s++) {
                void *block = kmalloc(sizes[s], GFP_KERNEL);
                size_t count;

                check(block != NULL);
                if (cache_of(block)) /* a sample has none */
                        kmem_cache_shrink(cache_of(block));
                count = take_all(sizes[s]);
                blocks[count] = kmalloc_node(sizes[s], GFP_KERNEL, 0);
                check(blocks[count] != NULL);
                fill_and_free(sizes[s], count + 1);
                kfree(block);
                heap_trim(0);
                blocks[0] = kmalloc_node(sizes[s], GFP_KERNEL, 0);
                blocks[1] = kzalloc(sizes[s], GFP_KERNEL);
                blocks[2] = krealloc(kmalloc(1, GFP_KERNEL), sizes[s], GFP_KERNEL);
                check(blocks[0] && blocks[1] && blocks[2]);
                fill_and_free(sizes[s], 3);
        }
}

static void go_back(void **state)
{
        (void)state;
        child_passes("go_back", "");
        child_passes("go_back", "numa_fake=2");
        child_passes("go_back", "slots=locked");
        child_passes("go_back", "sheaf_capacity=0");
        child_passes("go_back", "cpu_slabs=0");
        child_passes("go_back", "profile_interval=4096");
        child_passes("go_back", "guard_sampling=3");
}

static const struct child_case children[] = {
        {"not_touched", child_not_touched},
        {"marks_are_cleared", child_marks_are_cleared},
        {"go_back", child_go_back},
};

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(not_touched),
                cmocka_unit_test(marks_are_cleared),
                cmocka_unit_test(go_back),
        };

        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests_name("fresh", tests, NULL, NULL);
}
