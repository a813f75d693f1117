/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * bulk [groups]: times bulk calls for `kmem bench bulk`, in rounds (cycles.h), with the sizes and
 * the calls of the table in the mail "new API kfree_bulk() for SLAB+SLUB allocators".
 *
 * All objects come from a cache of 256 bytes, which has no other object in use. With `groups` the
 * cache is accounted and the thread in a memory group. KMEM_OPTIONS chooses back end and sheaves. A
 * figure is the time of an object's allocation and free together:
 *  - `fast_path`: an object is allocated and freed at once, again and again.
 *  - `fallback/N`: N single allocations, then N single frees, oldest first.
 *  - `cache_bulk/N`: kmem_cache_alloc_bulk of N objects, then kmem_cache_free_bulk.
 *  - `kfree_bulk/N`: kmem_cache_alloc_bulk of N objects, then kfree_bulk.
 *
 * The cost of the loops is inside; nothing is subtracted. Objects are not written to. Each sample
 * follows an untimed tenth of itself. The program is linked with libkmem.so, as users link it.
 *
 * Single-threaded. An allocation that fails ends the program with a message.
 */
#define _GNU_SOURCE
#include "cycles.h"

#include <stdlib.h>
#include <string.h>

#include <kmem.h>

enum {
        OBJECT_BYTES = 256,
        OBJECTS_A_SAMPLE = 20000,
        BULK_MAX = 250,
};

static const unsigned int bulk_sizes[] = {1, 2, 3, 4, 8, 16, 30, 32, 34, 48, 64, 128, 158, 250};

static struct kmem_cache *cache;

static void __attribute__((noreturn, cold)) fail(const char *what)
{
        dprintf(STDERR_FILENO, "bulk: %s\n", what);
        exit(1);
}

static void take_bulk(unsigned int bulk, void **objects)
{
        if (kmem_cache_alloc_bulk(cache, GFP_KERNEL, bulk, objects) != (int)bulk)
                fail("kmem_cache_alloc_bulk failed");
}

static void run_fast_path(unsigned int bulk, unsigned int turns)
{
        for (unsigned int i = 0; i < turns; i++) {
                void *object = kmem_cache_alloc(cache, GFP_KERNEL);

                if (!object)
                        fail("kmem_cache_alloc failed");
                keep(object);
                kmem_cache_free(cache, object);
        }
}

static void run_fallback(unsigned int bulk, unsigned int turns)
{
        void *objects[BULK_MAX];

        for (unsigned int i = 0; i < turns; i++) {
                for (unsigned int k = 0; k < bulk; k++) {
                        objects[k] = kmem_cache_alloc(cache, GFP_KERNEL);
                        if (!objects[k])
                                fail("kmem_cache_alloc failed");
                }
                for (unsigned int k = 0; k < bulk; k++)
                        kmem_cache_free(cache, objects[k]);
        }
}

static void run_cache_bulk(unsigned int bulk, unsigned int turns)
{
        void *objects[BULK_MAX];

        for (unsigned int i = 0; i < turns; i++) {
                take_bulk(bulk, objects);
                kmem_cache_free_bulk(cache, bulk, objects);
        }
}

static void run_kfree_bulk(unsigned int bulk, unsigned int turns)
{
        void *objects[BULK_MAX];

        for (unsigned int i = 0; i < turns; i++) {
                take_bulk(bulk, objects);
                kfree_bulk(bulk, objects);
        }
}

typedef void run_test(unsigned int bulk, unsigned int turns);

/* Cycles for each object. */
static double sample(run_test *run, unsigned int bulk)
{
        unsigned int turns = OBJECTS_A_SAMPLE / bulk;
        uint64_t start;
        uint64_t cycles;

        run(bulk, turns / 10 + 1);
        start = now_cycles();
        run(bulk, turns);
        cycles = now_cycles() - start;
        return (double)cycles / (turns * bulk);
}

static void run_round(void)
{
        static const struct {
                const char *name;
                run_test *run;
        } tests[] = {
                {"fallback", run_fallback},
                {"cache_bulk", run_cache_bulk},
                {"kfree_bulk", run_kfree_bulk},
        };

        dprintf(STDOUT_FILENO, "fast_path %.3f\n", sample(run_fast_path, 1));
        for (size_t i = 0; i < sizeof(bulk_sizes) / sizeof(bulk_sizes[0]); i++) {
                for (size_t k = 0; k < sizeof(tests) / sizeof(tests[0]); k++)
                        dprintf(STDOUT_FILENO, "%s/%u %.3f\n", tests[k].name, bulk_sizes[i],
                                sample(tests[k].run, bulk_sizes[i]));
        }
}

/* Enters a group, and checks that the thread's objects are really charged to it. */
static void enter_group(void)
{
        struct kmem_group *group = kmem_group_create("bulk", NULL, 0);
        struct kmem_group_stats stats;
        void *object;

        if (!group)
                fail("kmem_group_create failed");
        kmem_group_set(group);
        cache = kmem_cache_create("bench-bulk", OBJECT_BYTES, 0, SLAB_ACCOUNT, NULL);
        object = cache ? kmem_cache_alloc(cache, GFP_KERNEL) : NULL;
        if (!object || kmem_group_stats(group, &stats) || stats.objects != 1)
                fail("the object of an accounted cache is not charged");
        kmem_cache_free(cache, object);
}

int main(int argc, char **argv)
{
        if (argc == 2 && strcmp(argv[1], "groups") == 0)
                enter_group();
        else if (argc == 1)
                cache = kmem_cache_create("bench-bulk", OBJECT_BYTES, 0, 0, NULL);
        else
                fail("usage: bulk [groups]");
        if (!cache)
                fail("kmem_cache_create failed");
        run_rounds(run_round);
        return 0;
}
