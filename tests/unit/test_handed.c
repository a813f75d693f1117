/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Option check=sheaf: a free finds a first copy wherever it rests (percpu/handed.h). Each child frees
 * objects that it has freed before, is told so once for each, and is handed out none twice afterwards.
 */
#define _GNU_SOURCE
#include "engines.h"

#include "kmem-inline.h"
#include "percpu/barn.h"
#include "percpu/handed.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 4000, FEW = 300, STEP = 10 };

static struct kmem_cache *cache;
static void *objects[2 * MANY];

static void begin(void (*ctor)(void *object))
{
        cache = kmem_cache_create("handed", 64, 0, 0, ctor);
        check(cache != NULL);
        check(cache_is_checked(cache) == (cache->engine->caching != CACHING_NONE));
}

static void take(unsigned int from, unsigned int to)
{
        for (unsigned int i = from; i < to; i++) {
                objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
                check(objects[i] != NULL);
        }
}

static void free_all(unsigned int from, unsigned int to)
{
        for (unsigned int i = from; i < to; i++)
                kmem_cache_free(cache, objects[i]);
}

static int by_address(const void *left, const void *right)
{
        uintptr_t a = (uintptr_t) * (void *const *)left;
        uintptr_t b = (uintptr_t) * (void *const *)right;

        return (a > b) - (a < b);
}

/* The @count objects handed out now are all different, and all of them can be freed. */
static void end(unsigned int count)
{
        take(0, count);
        qsort(objects, count, sizeof(*objects), by_address);
        for (unsigned int i = 1; i < count; i++)
                check(objects[i - 1] != objects[i]);
        free_all(0, count);
        check_equal(kmem_cache_shrink(cache), 0);
        kmem_cache_destroy(cache);
}

static unsigned int count_reports(const char *output)
{
        unsigned int count = 0;

        for (const char *at = output; (at = strstr(at, "; ignored\n")); at++)
                count++;
        return count;
}

/* The child must end well, and have been told of so many wrong calls. */
static void reports(const char *child, unsigned int expected)
{
        static const char *const rows[] = {"",
                                           "slots=locked",
                                           "sheaf_capacity=3",
                                           "sheaf_capacity=0",
                                           "memory_limit=1G",
                                           "profile_interval=4096"};
        static struct child_result result;
        char row[200];

        for (size_t i = 0; i < array_size(rows); i++) {
                snprintf(row, sizeof(row), "check=sheaf,bad_free=ignore,%s", rows[i]);
                child_run(child, row, &result);
                if (result.status || count_reports(result.output) != expected)
                        fprintf(stderr, "%s:\n%s", row, result.output);
                assert_int_equal(result.status, 0);
                assert_int_equal(count_reports(result.output), expected);
        }
}

/* In main, spare, stock, barn and slabs at once, or in the engine's own places. */
static void child_everywhere(void)
{
        struct slot *slot = slot_current();
        struct slot_cache *record;

        begin(NULL);
        cache->barn->full_max_few = cache->barn->full_max;
        take(0, MANY);
        free_all(0, MANY);
        record = slot_record(&slot, cache);
        if (cache->engine->caching == CACHING_SHEAVES && cache->sheaf_capacity > 3)
                check(record->stock_size && cache->barn->full_size && record->engine.given);
        for (unsigned int i = 0; i < MANY; i += STEP)
                kmem_cache_free(cache, objects[i]);
        end(2 * MANY);
}

static void everywhere(void **state)
{
        reports("everywhere", MANY / STEP);
}

static void *free_elsewhere(void *argument)
{
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET((size_t)(uintptr_t)argument, &set);
        sched_setaffinity(0, sizeof(set), &set);
        free_all(0, FEW);
        return NULL;
}

/* Where another CPU freed them. */
static void child_other_slot(void)
{
        pthread_t thread;

        begin(NULL);
        take(0, FEW);
        for (uintptr_t cpu = 0; cpu < 2; cpu++) {
                check(pthread_create(&thread, NULL, free_elsewhere, (void *)cpu) == 0);
                check(pthread_join(thread, NULL) == 0);
        }
        end(MANY);
}

static void other_slot(void **state)
{
        reports("other_slot", FEW);
}

static pthread_barrier_t barrier;

static void *free_at_once(void *unused)
{
        (void)unused;
        for (unsigned int i = 0; i < FEW; i++) {
                if (i % STEP == 0)
                        pthread_barrier_wait(&barrier);
                kmem_cache_free(cache, objects[i]);
        }
        return NULL;
}

/*
 * HANDED-3: if two threads free a set of objects at once, each object is freed by a single thread.
 */
static void child_race(void)
{
        pthread_t threads[2];

        begin(NULL);
        pthread_barrier_init(&barrier, NULL, 2);
        take(0, FEW);
        for (unsigned int i = 0; i < 2; i++)
                check(pthread_create(&threads[i], NULL, free_at_once, NULL) == 0);
        for (unsigned int i = 0; i < 2; i++)
                check(pthread_join(threads[i], NULL) == 0);
        end(MANY);
}

static void race(void **state)
{
        reports("race", FEW);
}

/* HANDED-2: bulk calls, and inlined calls. */
static void child_every_call(void)
{
        struct kmem_view view;
        void *again[FEW];

        begin(NULL);
        view = kmem_view_of(cache);
        check_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL, FEW, objects), FEW);
        memcpy(again, objects, sizeof(again));
        kmem_cache_free_bulk(cache, FEW, objects);
        kmem_cache_free_bulk(cache, FEW, again);
        objects[0] = kmem_view_alloc(view, GFP_KERNEL);
        kmem_view_free(view, objects[0]);
        kmem_view_free(view, objects[0]);
        objects[0] = kmem_cache_alloc_inline(cache, GFP_KERNEL);
        free_all(0, 1);
        kmem_view_free(view, objects[0]);
        end(MANY);
}

static void every_call(void **state)
{
        reports("every_call", FEW + 2);
}

static void child_by_pointer(void)
{
        void *blocks[2];
        void *block;

        for (unsigned int i = 0; i < 2; i++)
                blocks[i] = kmalloc(200, GFP_KERNEL);
        block = blocks[0];
        kfree_bulk(2, blocks);
        check_equal(ksize(block), 0);
        check(!krealloc(block, 100, GFP_KERNEL) && !krealloc(block, 300, GFP_KERNEL));
        kfree(block);
        blocks[0] = blocks[1] = block;
        kfree_bulk(2, blocks);
        block = kmalloc(200, GFP_KERNEL);
        kfree_rcu(block);
        kfree_rcu(block);
        kfree_rcu_barrier();
        block = krealloc(kmalloc(200, GFP_KERNEL), 1000, GFP_KERNEL);
        kfree(block);
        kfree_sensitive(block);
}

static void by_pointer(void **state)
{
        reports("by_pointer", 7);
}

static void construct(void *object)
{
        memset(object, 0x5a, 64);
}

/* Once constructed, the object is nobody's before the first call that hands it out. */
static void child_constructed(void)
{
        begin(construct);
        take(0, 1);
        check(((char *)objects[0])[63] == 0x5a);
        kmem_cache_free(cache, (char *)objects[0] + 8);
        free_all(0, 1);
        free_all(0, 1);
        end(FEW);
}

static void constructed(void **state)
{
        reports("constructed", 2);
}

/* A child of fork frees its parent's objects, once. */
static void child_forked(void)
{
        pid_t child;

        begin(NULL);
        take(0, 2);
        free_all(0, 1);
        child = fork();
        check(child >= 0);
        free_all(0, 2);
        if (!child)
                _exit(0);
        child_wait(child);
        end(FEW);
}

static void forked(void **state)
{
        reports("forked", 2);
}

static const struct child_case children[] = {
        {"everywhere", child_everywhere},
        {"other_slot", child_other_slot},
        {"race", child_race},
        {"every_call", child_every_call},
        {"by_pointer", child_by_pointer},
        {"constructed", child_constructed},
        {"forked", child_forked},
};

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(everywhere), cmocka_unit_test(other_slot),
                cmocka_unit_test(race),       cmocka_unit_test(every_call),
                cmocka_unit_test(by_pointer), cmocka_unit_test(constructed),
                cmocka_unit_test(forked),
        };

        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests_name("handed", tests, NULL, NULL);
}
