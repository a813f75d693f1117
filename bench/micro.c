/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Times single allocator operations for `kmem bench micro`, in rounds (cycles.h). One
 * process of this program runs under each allocator (LD_PRELOAD).
 *
 * What a figure means:
 *  - `X_pair/S`: allocate one object of S bytes and free it at once, PAIRS times
 *    in a row, while 64 other objects of that size are held. Time / PAIRS: one
 *    operation is one allocation and one free.
 *  - `X_pair_empty/S`: the same with no other object of that size held.
 *  - `malloc_burst/S`: allocate 32 objects, then free them, oldest first, with
 *    64 others held. Time / 32: one operation is again one allocation and one free.
 * X is malloc (malloc and free), kmalloc (kmalloc and kfree) or kmem_cache
 * (kmem_cache_alloc and kmem_cache_free of a cache of that size).
 *
 * The cost of the loop, about a cycle an operation, is inside all figures;
 * nothing is subtracted. Objects are not written to. Every function is called
 * through a pointer, whatever the allocator. Each sample follows an untimed
 * tenth of itself. The compiler must not know malloc (-fno-builtin), or it
 * would remove the pairs.
 *
 * Single-threaded. Nothing here allocates but the tests themselves: the output
 * is written without stdio, the input read into a fixed buffer.
 */

#define _GNU_SOURCE
#include "cycles.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kmem.h>

enum {
        PAIRS = 50000,
        BURST = 32,
        BURSTS = PAIRS / BURST,
        LIVE = 64, /* objects held during a test */
};

static const unsigned int sizes[] = {16, 64, 256, 1024};

/* Pointers, so that one program serves allocators that have only malloc. */
static struct {
        typeof(malloc) *malloc;
        typeof(free) *free;
        typeof(kmalloc) *kmalloc;
        typeof(kfree) *kfree;
        typeof(kmem_cache_create) *cache_create;
        typeof(kmem_cache_alloc) *cache_alloc;
        typeof(kmem_cache_free) *cache_free;
} calls;

static struct kmem_cache *caches[sizeof(sizes) / sizeof(sizes[0])];

enum family { MALLOC, KMALLOC, KMEM_CACHE };

struct object_source {
        enum family family;
        unsigned int bytes;
        struct kmem_cache *cache; /* KMEM_CACHE only */
};

/* Always inlined with a constant family, so that a loop holds just its two calls. */
static inline __attribute__((always_inline)) void *take(const struct object_source *source,
                                                        enum family family)
{
        if (family == MALLOC)
                return calls.malloc(source->bytes);
        if (family == KMALLOC)
                return calls.kmalloc(source->bytes, GFP_KERNEL);
        return calls.cache_alloc(source->cache, GFP_KERNEL);
}

static inline __attribute__((always_inline)) void give(const struct object_source *source,
                                                       enum family family, void *object)
{
        if (family == MALLOC)
                calls.free(object);
        else if (family == KMALLOC)
                calls.kfree(object);
        else
                calls.cache_free(source->cache, object);
}

static inline __attribute__((always_inline)) void pairs_of(const struct object_source *source,
                                                           enum family family, unsigned int count)
{
        for (unsigned int i = 0; i < count; i++) {
                void *object = take(source, family);

                keep(object);
                give(source, family, object);
        }
}

static void run_pairs(const struct object_source *source, unsigned int count)
{
        switch (source->family) {
        case MALLOC:
                pairs_of(source, MALLOC, count);
                break;
        case KMALLOC:
                pairs_of(source, KMALLOC, count);
                break;
        case KMEM_CACHE:
                pairs_of(source, KMEM_CACHE, count);
                break;
        }
}

static void run_bursts(const struct object_source *source, unsigned int count)
{
        void *objects[BURST];

        for (unsigned int i = 0; i < count; i++) {
                for (unsigned int k = 0; k < BURST; k++) {
                        objects[k] = take(source, MALLOC);
                        keep(objects[k]);
                }
                for (unsigned int k = 0; k < BURST; k++)
                        give(source, MALLOC, objects[k]);
        }
}

struct test {
        const char *name;
        enum family family;
        bool burst;
        bool empty;
};

static const struct test tests[] = {
        {"malloc_pair_empty", MALLOC, false, true},
        {"malloc_pair", MALLOC, false, false},
        {"malloc_burst", MALLOC, true, false},
        {"kmalloc_pair_empty", KMALLOC, false, true},
        {"kmalloc_pair", KMALLOC, false, false},
        {"kmem_cache_pair_empty", KMEM_CACHE, false, true},
        {"kmem_cache_pair", KMEM_CACHE, false, false},
};

static double sample(const struct test *test, const struct object_source *source)
{
        void *live[LIVE];
        uint64_t start, end;

        if (!test->empty) {
                for (unsigned int i = 0; i < LIVE; i++) {
                        live[i] = take(source, source->family);
                        keep(live[i]);
                }
        }
        if (test->burst) {
                run_bursts(source, BURSTS / 10);
                start = now_cycles();
                run_bursts(source, BURSTS);
                end = now_cycles();
        } else {
                run_pairs(source, PAIRS / 10);
                start = now_cycles();
                run_pairs(source, PAIRS);
                end = now_cycles();
        }
        if (!test->empty) {
                for (unsigned int i = 0; i < LIVE; i++)
                        give(source, source->family, live[i]);
        }
        return (double)(end - start) / (test->burst ? BURSTS * BURST : PAIRS);
}

static void run_round(void)
{
        for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
                const struct test *test = &tests[i];

                if (test->family != MALLOC && !calls.cache_create)
                        continue;
                for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
                        struct object_source source = {test->family, sizes[k], caches[k]};

                        dprintf(STDOUT_FILENO, "%s/%u %.3f\n", test->name, sizes[k],
                                sample(test, &source));
                }
        }
}

static void look_up_calls(void)
{
        calls.malloc = malloc;
        calls.free = free;
        calls.kmalloc = dlsym(RTLD_DEFAULT, "kmalloc");
        calls.kfree = dlsym(RTLD_DEFAULT, "kfree");
        calls.cache_create = dlsym(RTLD_DEFAULT, "kmem_cache_create");
        calls.cache_alloc = dlsym(RTLD_DEFAULT, "kmem_cache_alloc");
        calls.cache_free = dlsym(RTLD_DEFAULT, "kmem_cache_free");
        if (!calls.kmalloc || !calls.kfree || !calls.cache_alloc || !calls.cache_free)
                calls.cache_create = NULL;
}

static bool create_caches(void)
{
        for (size_t k = 0; calls.cache_create && k < sizeof(sizes) / sizeof(sizes[0]); k++) {
                char name[32];

                snprintf(name, sizeof(name), "bench-%u", sizes[k]);
                caches[k] = calls.cache_create(name, sizes[k], 0, 0, NULL);
                if (!caches[k])
                        return false;
        }
        return true;
}

int main(void)
{
        look_up_calls();
        if (!create_caches()) {
                dprintf(STDERR_FILENO, "micro: kmem_cache_create failed\n");
                return 1;
        }
        run_rounds(run_round);
        return 0;
}
