/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Faults on purpose (heap/failslab.h): which requests fail by which rule, and that others do not.
 */
#include "unit.h"

#include "child.h"
#include "engines/engine.h"
#include "kmem.h"
#include "lang/bits.h"

#include <errno.h>
#include <stdio.h>

static struct kmem_cache *marked, *plain;

static void make_caches(void)
{
        marked = kmem_cache_create("marked", 64, 0, 0, NULL);
        plain = kmem_cache_create("plain", 64, 0, 0, NULL);
        check(marked && plain && marked->failslab && !plain->failslab);
}

/* Whether a request fails, as expected; a block that it gets is given back. */
static bool fails(void)
{
        void *object;

        errno = 0;
        object = kmem_cache_alloc(marked, GFP_KERNEL);
        if (object)
                kmem_cache_free(marked, object);
        else
                check_equal(errno, ENOMEM);
        return !object;
}

static unsigned int failures(unsigned int count)
{
        unsigned int failed = 0;

        while (count--)
                failed += fails();
        return failed;
}

/* FAULT-1: and the cache stays open. */
static void child_no_rule(void)
{
        make_caches();
        check_equal(failures(100), 0);
        check(!cache_is_closed(marked));
}

/* FAULT-2, FAULT-3 */
static void child_always(void)
{
        void *objects[8];
        void *object;

        make_caches();
        check(cache_is_closed(marked) && !cache_is_closed(plain));
        check_equal(failures(100), 100);
        check_equal(kmem_cache_alloc_bulk(marked, GFP_KERNEL, 8, objects), 0);
        check(!kmem_cache_alloc_node(marked, GFP_KERNEL, 0));
        object = kmem_cache_alloc(marked, GFP_KERNEL | __GFP_NOFAIL);
        check(object != NULL);
        kmem_cache_free(marked, object);
        object = kmem_cache_alloc(plain, GFP_KERNEL);
        check(object != NULL);
        kmem_cache_free(plain, object);
        check_equal(kmem_cache_alloc_bulk(plain, GFP_KERNEL, 8, objects), 8);
        kmem_cache_free_bulk(plain, 8, objects);
}

/* A mark is set and taken away while objects are in use. */
static void child_attribute(void)
{
        void *object;

        marked = kmem_cache_create("later", 64, 0, 0, NULL);
        object = kmem_cache_alloc(marked, GFP_KERNEL);
        check(object && !fails());
        check_equal(kmem_attr_write("later", "failslab", "1"), 0);
        check_equal(failures(10), 10);
        kmem_cache_free(marked, object);
        check_equal(failures(10), 10);
        check_equal(kmem_attr_write("later", "failslab", "0"), 0);
        check_equal(failures(10), 0);
        kmem_cache_destroy(marked);
}

static void child_interval(void)
{
        make_caches();
        for (unsigned int i = 1; i <= 9; i++)
                check(fails() == (i % 3 == 0));
}

/* The first two; a bulk call is a single request. */
static void child_times(void)
{
        void *objects[8];

        make_caches();
        check_equal(kmem_cache_alloc_bulk(marked, GFP_KERNEL, 8, objects), 0);
        check_equal(failures(100), 1);
        check_equal(kmem_cache_alloc_bulk(marked, GFP_KERNEL, 8, objects), 8);
        kmem_cache_free_bulk(marked, 8, objects);
}

/* 640 bytes: nine times 64 leave something of them. */
static void child_space(void)
{
        make_caches();
        check_equal(failures(9), 0);
        check_equal(failures(10), 10);
}

static void child_probability(void)
{
        unsigned int failed;

        make_caches();
        failed = failures(1000);
        check(failed >= 200 && failed <= 400);
}

static void child_kmalloc(void)
{
        void *block;

        check(!kmalloc(64, GFP_KERNEL) && errno == ENOMEM);
        check(!kzalloc(64, GFP_KERNEL));
        block = kmalloc(64, GFP_KERNEL | __GFP_NOFAIL);
        check(block != NULL);
        kfree(block);
        block = kmalloc(16, GFP_KERNEL);
        check(block && !krealloc(block, 64, GFP_KERNEL));
        block = krealloc(block, 64, GFP_KERNEL | __GFP_NOFAIL);
        check(block != NULL);
        kfree(block);
        kfree(kmalloc(100000, GFP_KERNEL));
}

/* For a test that its requests, which want no line, have none. */
static void child_no_warning(void)
{
        void *block = kmalloc(16, GFP_KERNEL);

        make_caches();
        for (unsigned int i = 0; i < 3; i++) {
                check(!kmalloc(64, GFP_KERNEL | __GFP_NOWARN));
                check(!kzalloc(64, GFP_KERNEL | __GFP_NOWARN));
                check(!kmalloc_node(64, GFP_KERNEL | __GFP_NOWARN, 0));
                check(!krealloc(block, 64, GFP_KERNEL | __GFP_NOWARN));
                check(!kmem_cache_alloc(marked, GFP_KERNEL | __GFP_NOWARN));
        }
        kfree(block);
}

static void test_rules(void **state)
{
        child_passes("no_rule", "marked.debug=A");
        child_passes("no_rule", "marked.debug=A,failslab=1:0");
        child_passes("always", "marked.debug=A,failslab=1:100");
        child_passes("attribute", "failslab=1:100");
        child_passes("interval", "marked.debug=A,failslab=3:100");
        child_passes("times", "marked.debug=A,failslab=1:100:0:2");
        child_passes("space", "marked.debug=A,failslab=1:100:640");
        child_passes("probability", "marked.debug=A,failslab=1:30");
        child_prints("always", "marked.debug=A,failslab=1:100",
                     "cache \"marked\": option failslab makes a request fail");
}

static void test_engines(void **state)
{
        child_passes("always", "engine=slab,marked.debug=A,failslab=1:100");
        child_passes("always", "engine=slob,marked.debug=A,failslab=1:100");
        child_passes("always", "slots=locked,marked.debug=A,failslab=1:100");
        child_passes("always", "marked.debug=FZPUA,failslab=1:100");
        child_passes("times", "engine=slab,marked.debug=A,failslab=1:100:0:2");
}

static void test_kmalloc(void **state)
{
        child_passes("kmalloc", "kmalloc-64.debug=A,failslab=1:100");
        child_passes("kmalloc", "engine=slab,kmalloc-64.debug=A,failslab=1:100");
}

static void test_no_warning(void **state)
{
        static struct child_result result;

        child_run("no_warning", "marked.debug=A,kmalloc-64.debug=A,failslab=1:100", &result);
        assert_int_equal(result.status, 0);
        assert_string_equal(result.output, "");
}

static void test_wrong(void **state)
{
        static const char *const wrong[] = {
                "", "1", "0:1", "1:101", "1:1:", ":", "1:1:1:1:", "1:1:1:1:1", "a:1", "1:-1"};
        char options[64];

        for (size_t i = 0; i < array_size(wrong); i++) {
                snprintf(options, sizeof(options), "marked.debug=A,failslab=%s", wrong[i]);
                child_prints("no_rule", options, "expected INTERVAL:PROBABILITY");
        }
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"no_rule", child_no_rule},
                {"always", child_always},
                {"attribute", child_attribute},
                {"interval", child_interval},
                {"times", child_times},
                {"space", child_space},
                {"probability", child_probability},
                {"kmalloc", child_kmalloc},
                {"no_warning", child_no_warning},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_rules),   cmocka_unit_test(test_engines),
                cmocka_unit_test(test_kmalloc), cmocka_unit_test(test_no_warning),
                cmocka_unit_test(test_wrong),
        };

        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
