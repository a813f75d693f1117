/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Bulk frees of objects of several caches, in the classic allocator: how many slow frees they take
 * (S5-20, S5-21), and what becomes of NULL among the objects (S5-07).
 */
#include "engines.h"
#include "random.h"

#include "introspect/totals.h"
#include "machine/message.h"

#include <stdlib.h>
#include <string.h>

enum { CACHES = 3, SLABS = 4, OBJECTS = 16, LOOK_AHEAD = 3, ARRAY_MOST = 40 };

#define CLASSIC "engine=slub,sheaf_capacity=0,stats=1,slab_merge=0,order_rule=6.12,slub_max_order=0"

/* Objects 256 bytes apart, 16 in a slab of a page; a slab is full while its objects are in use. */
static struct kmem_cache *caches[CACHES];
static void *full[CACHES][SLABS][OBJECTS];

static void make_full_slabs(void)
{
        static const char *const names[CACHES] = {"red", "green", "blue"};

        for (unsigned int c = 0; c < CACHES; c++) {
                check(caches[c] = kmem_cache_create(names[c], 256, 0, 0, NULL));
                for (unsigned int s = 0; s < SLABS; s++)
                        for (unsigned int i = 0; i < OBJECTS; i++)
                                check(full[c][s][i] = kmem_cache_alloc(caches[c], GFP_KERNEL));
                /* Another slab is the CPU slab from now on. */
                check(kmem_cache_alloc(caches[c], GFP_KERNEL));
                for (unsigned int s = 0; s < SLABS; s++)
                        for (unsigned int i = 0; i < OBJECTS; i++)
                                check_equal((uintptr_t)full[c][s][i] / PAGE_SIZE,
                                            (uintptr_t)full[c][s][0] / PAGE_SIZE);
        }
        /* The first free after the heap has grown finds no entry in the page map. */
        kfree(kmalloc(8, GFP_KERNEL));
}

static uint64_t slow_frees(void)
{
        uint64_t sum = 0;

        for (unsigned int c = 0; c < CACHES; c++) {
                char text[4096];

                check(kmem_attr_read(caches[c]->name, "free_slowpath", text, sizeof(text)) > 0);
                sum += strtoul(text, NULL, 10);
        }
        return sum;
}

/* Slow frees that a call takes for the objects. */
static uint64_t slow_frees_of(void **objects, unsigned int count)
{
        uint64_t before = slow_frees();

        kfree_bulk(count, objects);
        return slow_frees() - before;
}

static uintptr_t slab_of(const void *object)
{
        return (uintptr_t)object / PAGE_SIZE;
}

static unsigned int cache_number(const void *object)
{
        unsigned int c = 0;

        while (slab_of(full[c / SLABS][c % SLABS][0]) != slab_of(object))
                c++;
        return c / SLABS;
}

static void remove_at(void **objects, unsigned int *count, unsigned int at)
{
        (*count)--;
        for (unsigned int i = at; i < *count; i++)
                objects[i] = objects[i + 1];
}

/*
 * The chains of the last object's cache, by the rule: from its last object down, each chain takes
 * the objects of the slab of its first, and ends at the third other that it meets. The others that
 * a chain ended at stay in front of those that it passed over, as the entries are swapped.
 */
static unsigned int model_chains_of_cache(void **objects, unsigned int *count, void **others,
                                          unsigned int *other_count)
{
        unsigned int cache = cache_number(objects[*count - 1]);
        unsigned int chains = 0;

        while (*count) {
                uintptr_t slab = slab_of(objects[*count - 1]);
                unsigned int seen = 0;

                if (cache_number(objects[*count - 1]) != cache) {
                        others[(*other_count)++] = objects[--*count];
                        continue;
                }
                chains++;
                --*count;
                for (unsigned int i = *count; i-- > 0 && seen < LOOK_AHEAD;) {
                        if (slab_of(objects[i]) != slab) {
                                seen++;
                        } else {
                                objects[i] = objects[*count - 1];
                                remove_at(objects, count, *count - 1);
                        }
                }
        }
        return chains;
}

static unsigned int model_chains(void *const *given, unsigned int count)
{
        void *objects[ARRAY_MOST];
        void *others[ARRAY_MOST];
        unsigned int chains = 0;

        memcpy(objects, given, count * sizeof(*given));
        while (count) {
                unsigned int left = 0;

                chains += model_chains_of_cache(objects, &count, others, &left);
                while (left)
                        objects[count++] = others[--left];
        }
        return chains;
}

/* Two slabs of two caches take turns: 4 slow frees in place of 16. */
static void child_turns(void)
{
        void *objects[OBJECTS];

        make_full_slabs();
        for (unsigned int i = 0; i < OBJECTS; i++)
                objects[i] = full[i % 2][0][i / 2];
        check_equal(model_chains(objects, OBJECTS), 4);
        check_equal(slow_frees_of(objects, OBJECTS), 4);
}

/* The third neighbour of another slab ends a chain, wherever the neighbour is from. */
static void child_look_ahead(void)
{
        for (unsigned int others = 0; others < 5; others++) {
                void *objects[8];
                unsigned int count = 0;
                bool joined = others < LOOK_AHEAD;

                make_full_slabs();
                objects[count++] = full[0][0][0];
                for (unsigned int i = 0; i < others; i++)
                        objects[count++] = full[1][0][i];
                objects[count++] = full[0][0][1];
                check_equal(slow_frees_of(objects, count), (others ? 1u : 0u) + (joined ? 1u : 2u));
        }
}

/* Objects of all caches and slabs, in any order and number. */
static void child_random(void)
{
        struct random random = {.state = 20211};

        for (unsigned int round = 0; round < 200; round++) {
                void *objects[ARRAY_MOST];
                unsigned int taken[CACHES][SLABS] = {{0}};
                unsigned int count = 0;
                unsigned int wanted = 1 + (unsigned int)random_below(&random, ARRAY_MOST);
                unsigned int chains;

                make_full_slabs();
                while (count < wanted) {
                        size_t c = random_below(&random, CACHES);
                        size_t s = random_below(&random, SLABS);

                        if (taken[c][s] < OBJECTS)
                                objects[count++] = full[c][s][taken[c][s]++];
                }
                chains = model_chains(objects, count);
                check_equal(slow_frees_of(objects, count), chains);
        }
}

/* Large blocks and objects of a cache with sheaves lie between; all are freed. */
static void child_mixture(void)
{
        struct kmem_cache *sheaves = kmem_cache_create("sheaves", 256, 0, 0, NULL);
        struct kmem_cache *classic = kmem_cache_create("classic", 256, 0, 0, NULL);
        void *objects[60];

        for (unsigned int i = 0; i < 60; i += 5) {
                objects[i] = kmem_cache_alloc(classic, GFP_KERNEL);
                objects[i + 1] = NULL;
                objects[i + 2] = kmem_cache_alloc(sheaves, GFP_KERNEL);
                objects[i + 3] = kmalloc(100000, GFP_KERNEL);
                objects[i + 4] = i % 2 ? ZERO_SIZE_PTR : kmalloc(300, GFP_KERNEL);
        }
        kfree_bulk(60, objects);
        check_equal(kmem_cache_shrink(sheaves), 0);
        check_equal(kmem_cache_shrink(classic), 0);
        kmem_cache_destroy(sheaves);
        kmem_cache_destroy(classic);
}

static void free_with_null(void)
{
        struct kmem_cache *cache = kmem_cache_create("some", 256, 0, 0, NULL);
        void *objects[] = {NULL, kmem_cache_alloc(cache, GFP_KERNEL), NULL};

        if (getenv("BULK_WITH_CACHE"))
                kmem_cache_free_bulk(cache, 3, objects);
        else
                kfree_bulk(3, objects);
        check_equal(kmem_cache_shrink(cache), 0);
}

static void free_only_null(void)
{
        struct kmem_cache *cache = kmem_cache_create("some", 256, 0, 0, NULL);
        void *object = NULL;

        if (getenv("BULK_WITH_CACHE"))
                kmem_cache_free_bulk(cache, 1, &object);
        else
                kfree_bulk(1, &object);
}

static void chains(void **state)
{
        skip_unless_engine(slub_engine);
        child_passes("turns", CLASSIC);
        child_passes("random", CLASSIC);
        child_passes("random", CLASSIC ",freeze=eager");
        child_passes("look_ahead", CLASSIC);
        child_passes("mixture", "sheaf_capacity=0,sheaves.sheaf_capacity=10");
        child_passes("mixture", "sheaf_capacity=0,classic.debug=FZPU");
        child_passes("mixture", "classic.sheaf_capacity=0");
}

static void null_entries(void **state)
{
        static const char *const calls[] = {"kfree_bulk(0x0): ", "kmem_cache_free_bulk(0x0): "};

        for (unsigned int with_cache = 0; with_cache < 2; with_cache++) {
                if (with_cache)
                        setenv("BULK_WITH_CACHE", "1", 1);
                for (unsigned int only = 0; only < 2; only++) {
                        const char *name = only ? "only_null" : "with_null";

                        child_passes(name, "");
                        child_passes(name, "kernel=5.17");
                        child_prints(name, "bulk_null=refuse,bad_free=ignore", calls[with_cache]);
                        child_aborts(name, "bulk_null=refuse", calls[with_cache]);
                        child_aborts(name, "kernel=6.1", calls[with_cache]);
                }
        }
        unsetenv("BULK_WITH_CACHE");
}

int main(int argc, char **argv)
{
        static const struct child_case cases[] = {
                {"turns", child_turns},        {"look_ahead", child_look_ahead},
                {"random", child_random},      {"mixture", child_mixture},
                {"with_null", free_with_null}, {"only_null", free_only_null},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(chains),
                cmocka_unit_test(null_entries),
        };

        child_main(argc, argv, cases, array_size(cases));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
