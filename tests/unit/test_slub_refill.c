/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Caches without CPU slabs, and sheaves and barns by the rule of Linux 7.0: which slabs a refill
 * takes, where frees put slabs, what passes the sheaves, and that nothing stays behind. A single
 * thread on a single CPU; walks over all descriptors follow the steps.
 */
#define _GNU_SOURCE
#include "child.h"
#include "walker.h"

#include "engines/slub/slab.h"
#include "heap/rcu.h"
#include "percpu/barn.h"
#include "percpu/kernel_rule.h"
#include "percpu/percpu.h"
#include "percpu/rcu_sheaf.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { SLABS = 4, EACH = 8, OBJECTS = SLABS * EACH, SHEAVES = 30 };

#define LISTS "engine=slub,kernel=7.2,slab_merge=0,refill.sheaf_capacity=0,slub_max_order=0"
#define WHOLE "engine=slub,kernel=7.2,slab_merge=0"

static struct kmem_cache *cache;
static struct engine_slot slot = {.freelist = ENGINE_NO_OBJECT, .home = 1};

static struct walk_counts walk(void)
{
        struct walk_counts counts;

        walk_heap(cache, &counts);
        return counts;
}

static void stay_on_cpu(void)
{
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET((unsigned int)sched_getcpu(), &set);
        check_equal(sched_setaffinity(0, sizeof(set), &set), 0);
}

static void begin(size_t least_partial)
{
        stay_on_cpu();
        cache = kmem_cache_create("refill", PAGE_SIZE / EACH, 0, 0, NULL);
        check(cache && cache->engine == &slub_node_engine && cache->objects == EACH);
        cache->min_partial = least_partial;
}

static void end(void)
{
        check_equal(kmem_cache_shrink(cache), 0);
        check_equal(walk().slabs, 0);
        kmem_cache_destroy(cache);
}

static void give(void *const *objects, unsigned int count)
{
        void *copy[OBJECTS];

        memcpy(copy, objects, count * sizeof(*objects));
        cache->engine->give(cache, &slot, copy, count);
        walk();
}

static struct page *slab_at(const void *object)
{
        return slub_slab_of(cache, object);
}

static struct page *nth_partial(unsigned int n)
{
        struct page *slab = page_list_first(&cache->node[0].partial);

        while (slab && n--)
                slab = page_list_next(slab);
        return slab;
}

static size_t length(void)
{
        return cache->node[0].partial.length;
}

/* Full slabs; the objects of each lie together. */
static void take_full_slabs(void **objects)
{
        check_equal(slub_refill(cache, &slot, objects, OBJECTS, OBJECTS), OBJECTS);
        for (unsigned int i = 0; i < OBJECTS; i++)
                check(slab_at(objects[i]) == slab_at(objects[i / EACH * EACH]));
        check_equal(walk().full, SLABS);
        check_equal(length(), 0);
}

/* Slabs in the order of their frees, with @count free objects each. */
static void make_partial(void **objects, unsigned int count)
{
        take_full_slabs(objects);
        for (unsigned int s = 0; s < SLABS; s++) {
                give(objects + s * EACH, count);
                /* The first free of a full slab links it to the tail (S1-33, S13-06). */
                check(nth_partial(s) == slab_at(objects[s * EACH]));
        }
}

/* Slabs leave the list's head until @min is reached; none that would exceed @max (S13-07). */
static void child_min_and_max(void)
{
        void *objects[OBJECTS], *taken[OBJECTS];

        begin(100);
        make_partial(objects, 2);
        check_equal(slub_refill(cache, &slot, taken, 3, 5), 4);
        /* Objects fill the array from its end. */
        check(slab_at(taken[3]) == slab_at(objects[0]) && slab_at(taken[2]) == slab_at(objects[0]));
        check(slab_at(taken[1]) == slab_at(objects[EACH]));
        check_equal(length(), 2);
        check_equal(walk().full, 2);
        give(taken, 4);
        check(nth_partial(0) == slab_at(objects[2 * EACH]));
        check_equal(length(), 4);
        /* A slab that exceeds the most is taken only for the least. */
        check_equal(slub_refill(cache, &slot, taken, 2, 3), 2);
        check(slab_at(taken[0]) == slab_at(objects[2 * EACH]));
        check_equal(length(), 3);
        check_equal(slub_refill(cache, &slot, taken + 2, 3, 3), 3);
        /* The object that was too many is back, and its slab at the tail. */
        check_equal(length(), 2);
        check_equal(state_unpack(nth_partial(1)->state).inuse, EACH - 1);
        walk();
        give(taken, 5);
        for (unsigned int s = 0; s < SLABS; s++)
                give(objects + s * EACH + 2, EACH - 2);
        end();
}

/* New slabs only below the least number; the rest of one goes to the head (S13-04). */
static void child_new_slabs(void)
{
        void *objects[OBJECTS], *taken[OBJECTS];

        begin(100);
        make_partial(objects, 2);
        check_equal(slub_refill(cache, &slot, taken, 8, 20), 8);
        check_equal(walk().slabs, SLABS);
        check_equal(slub_refill(cache, &slot, taken + 8, 1, 3), 3);
        check_equal(walk().slabs, SLABS + 1);
        check(nth_partial(0) == slab_at(taken[8]));
        give(taken, 11);
        for (unsigned int s = 0; s < SLABS; s++)
                give(objects + s * EACH + 2, EACH - 2);
        end();
}

/* A request for a single object leaves the slab on the list until that is full (S13-04). */
static void child_single(void)
{
        void *objects[OBJECTS], *taken[2];

        begin(100);
        make_partial(objects, 2);
        for (unsigned int i = 0; i < 2; i++) {
                check_equal(cache->engine->take(cache, &slot, &taken[i], 1), 1);
                check(slab_at(taken[i]) == slab_at(objects[0]));
                check_equal(length(), SLABS - i);
                walk();
        }
        check(taken[0] != taken[1]);
        give(taken, 2);
        for (unsigned int s = 0; s < SLABS; s++)
                give(objects + s * EACH + 2, EACH - 2);
        end();
}

/*
 * An emptied slab ends if its node has min_partial slabs, itself included if it is on the list
 * (S1-33, S1-35).
 */
static void child_emptied(void)
{
        void *objects[OBJECTS];

        begin(2);
        take_full_slabs(objects);
        for (unsigned int s = 0; s < SLABS; s++)
                for (unsigned int i = 0; i < EACH; i++)
                        give(objects + s * EACH + i, 1);
        check_equal(length(), 1);
        check_equal(walk().slabs, 1);
        check_equal(kmem_cache_shrink(cache), 0);
        take_full_slabs(objects);
        for (unsigned int s = 0; s < SLABS; s++)
                give(objects + s * EACH, EACH);
        check_equal(length(), 2);
        check_equal(walk().slabs, 2);
        check_equal(walk().node_partial, 2);
        end();
}

/* Many sheaves of objects, allocated and freed one by one; returns their number. */
static unsigned int make_objects(void ***objects)
{
        unsigned int count = SHEAVES * cache->sheaf_capacity;

        *objects = kmalloc(count * sizeof(void *), GFP_KERNEL);
        for (unsigned int i = 0; i < count; i++)
                check((*objects)[i] = kmem_cache_alloc(cache, GFP_KERNEL));
        return count;
}

/* At most 10 full sheaves stay, and at most 10 empty ones when they are used up (S13-02). */
static void child_barn_limits(void)
{
        struct barn *barn;
        void **objects;
        unsigned int count;

        stay_on_cpu();
        cache = kmem_cache_create("sheaves", 256, 0, 0, NULL);
        barn = barn_here(cache);
        check_equal(cache->sheaf_capacity, 28);
        count = make_objects(&objects);
        for (unsigned int i = 0; i < count; i++)
                kmem_cache_free(cache, objects[i]);
        check_equal(barn->full_size, KERNEL_BARN_FULL_MAX);
        for (const struct sheaf *sheaf = barn->full; sheaf; sheaf = sheaf->next)
                check_equal(sheaf->size, sheaf->capacity);
        check_equal(walk().inuse, (KERNEL_BARN_FULL_MAX + 2) * 28);
        for (unsigned int i = 0; i < count; i++)
                check(objects[i] = kmem_cache_alloc(cache, GFP_KERNEL));
        check_equal(barn->full_size, 0);
        check_equal(barn->empty_size, 10);
        for (unsigned int i = 0; i < count; i++)
                kmem_cache_free(cache, objects[i]);
        kfree(objects);
        end();
}

/* Options barn_full and barn_empty stand for the kernel's two limits. */
static void child_barn_options(void)
{
        struct barn *barn;
        void **objects;
        unsigned int count;

        stay_on_cpu();
        cache = kmem_cache_create("sheaves", 256, 0, 0, NULL);
        barn = barn_here(cache);
        count = make_objects(&objects);
        for (unsigned int i = 0; i < count; i++)
                kmem_cache_free(cache, objects[i]);
        check_equal(barn->full_size, 2);
        check_equal(barn->empty_max, 1);
        kfree(objects);
        end();
}

/* Option remote_frees=sheaf: objects of another node are pushed as all others. */
static void child_remote_to_sheaf(void)
{
        void *object;

        stay_on_cpu();
        cache = kmem_cache_create("remote", 64, 0, 0, NULL);
        check(object = kmem_cache_alloc_node(cache, GFP_KERNEL, (int)(1 - system_current_node())));
        kmem_cache_free(cache, object);
        check(kmem_cache_alloc(cache, GFP_KERNEL) == object);
        kmem_cache_free(cache, object);
        end();
}

static uint32_t inuse(const void *object)
{
        return state_unpack(load_relaxed(&slab_at(object)->state)).inuse;
}

/* Objects of another node go straight to their slabs, and wrong pointers are reported (S13-05). */
static void child_remote(void)
{
        unsigned int here, there;
        void *objects[40], *local;
        uint32_t before;
        int outside;

        stay_on_cpu();
        cache = kmem_cache_create("remote", 64, 0, 0, NULL);
        here = system_current_node();
        there = 1 - here;
        for (unsigned int i = 0; i < 40; i++) {
                check(objects[i] = kmem_cache_alloc_node(cache, GFP_KERNEL, (int)there));
                check_equal(cache->engine->node_of(cache, objects[i]), there);
        }
        check(local = kmem_cache_alloc_node(cache, GFP_KERNEL, (int)here));
        before = inuse(objects[39]);
        kmem_cache_free(cache, objects[39]);
        check_equal(inuse(objects[39]), before - 1);
        /* The objects of a bulk, and a bulk of both nodes. */
        check(slab_at(objects[0]) == slab_at(objects[38]));
        before = inuse(objects[0]);
        objects[39] = local;
        kmem_cache_free_bulk(cache, 40, objects);
        check_equal(before, 39);
        check_equal(cache->node[there].partial.length, 1);
        kmem_cache_free(cache, &outside);
        kmem_cache_free(cache, NULL);
        walk();
        end();
}

/* A program with samples on several nodes: a sample is of no node. */
static void child_remote_samples(void)
{
        void *objects[400];

        stay_on_cpu();
        cache = kmem_cache_create("remote", 64, 0, 0, NULL);
        for (unsigned int round = 0; round < 10; round++) {
                for (unsigned int i = 0; i < 400; i++)
                        check(objects[i] = kmem_cache_alloc(cache, GFP_KERNEL));
                for (unsigned int i = 0; i < 200; i++)
                        kmem_cache_free(cache, objects[i]);
                kmem_cache_free_bulk(cache, 200, objects + 200);
        }
        end();
}

/* A sheafful waits as a whole and becomes a full sheaf of the barn; a part of one comes back too. */
static void child_rcu(void)
{
        void **objects;
        unsigned int count, capacity;
        struct barn *barn;

        stay_on_cpu();
        cache = kmem_cache_create("rcu", 256, 0, 0, NULL);
        barn = barn_here(cache);
        capacity = cache->sheaf_capacity;
        count = make_objects(&objects);
        kmem_rcu_read_lock();
        for (unsigned int i = 0; i < capacity; i++)
                kfree_rcu(objects[i]);
        check_equal(barn->full_size, 0);
        kmem_rcu_read_unlock();
        kmem_synchronize_rcu();
        check_equal(barn->full_size, 1);
        check_equal(barn->full->size, capacity);
        /* A sheaf that does not fill waits for nobody, until somebody asks. */
        for (unsigned int i = capacity; i < capacity + 5; i++)
                kfree_rcu(objects[i]);
        kmem_synchronize_rcu();
        check_equal(barn->full_size, 1);
        kfree_rcu_barrier();
        check(!rcu_sheaves_take(cache));
        for (unsigned int i = capacity + 5; i < count; i++)
                kfree_rcu(objects[i]);
        kfree_rcu_barrier();
        check_equal(barn->full_size, KERNEL_BARN_FULL_MAX);
        check(objects[0] = kmem_cache_alloc(cache, GFP_KERNEL));
        kfree_rcu(objects[0]);
        kmem_cache_shrink(cache);
        kmem_synchronize_rcu();
        kfree(objects);
        end();
}

/* Destroy itself brings back what waits. */
static void child_rcu_destroy(void)
{
        struct kmem_cache *other = kmem_cache_create("other", 256, 0, 0, NULL);

        for (unsigned int i = 0; i < 100; i++)
                kfree_rcu(kmem_cache_alloc(other, GFP_KERNEL));
        kmem_cache_destroy(other);
        walk_heap(NULL, &(struct walk_counts){0});
}

/* A cache that no leak tracer may see has no sheaves, even if it asks (S13-03). */
static void child_no_leak_trace(void)
{
        struct kmem_cache_args args = {.sheaf_capacity = 100};

        cache = kmem_cache_create_args("untraced", 256, &args, SLAB_NOLEAKTRACE);
        check_equal(cache->sheaf_capacity, 0);
        kmem_cache_destroy(cache);
        cache = kmem_cache_create_args("asks", 256, &args, 0);
        check_equal(cache->sheaf_capacity, 100);
        kmem_cache_destroy(cache);
}

static void lists(void **state)
{
        child_passes("min_and_max", LISTS);
        child_passes("new_slabs", LISTS);
        child_passes("single", LISTS);
        child_passes("emptied", LISTS);
        child_passes("emptied", LISTS ",stats=1");
}

static void sheaves(void **state)
{
        child_passes("barn_limits", WHOLE);
        child_passes("barn_limits", WHOLE ",stats=1");
        child_passes("barn_limits", WHOLE ",slots=locked");
        child_passes("barn_options", WHOLE ",barn_full=2,barn_empty=1");
        child_passes("no_leak_trace", WHOLE);
}

static void nodes(void **state)
{
        child_prints("remote", WHOLE ",numa_fake=2,bad_free=ignore",
                     "not the start of a block of this heap; ignored");
        child_passes("remote_samples", WHOLE ",numa_fake=2,profile_interval=256");
        child_passes("remote_to_sheaf", WHOLE ",numa_fake=2,remote_frees=sheaf");
}

static void rcu_sheaves(void **state)
{
        child_passes("rcu", WHOLE);
        child_passes("rcu", WHOLE ",stats=1");
        child_passes("rcu", WHOLE ",slots=locked");
        child_passes("rcu_destroy", WHOLE);
        child_passes("rcu_destroy", WHOLE ",numa_fake=2");
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"min_and_max", child_min_and_max},
                {"new_slabs", child_new_slabs},
                {"single", child_single},
                {"emptied", child_emptied},
                {"barn_limits", child_barn_limits},
                {"remote", child_remote},
                {"remote_to_sheaf", child_remote_to_sheaf},
                {"barn_options", child_barn_options},
                {"remote_samples", child_remote_samples},
                {"rcu", child_rcu},
                {"rcu_destroy", child_rcu_destroy},
                {"no_leak_trace", child_no_leak_trace},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(lists),
                cmocka_unit_test(sheaves),
                cmocka_unit_test(nodes),
                cmocka_unit_test(rcu_sheaves),
        };

        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests_name("slub refill", tests, NULL, NULL);
}
