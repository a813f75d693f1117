/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Times single allocator operations for `kmem bench micro`, in rounds (cycles.h). A process of this
 * program runs under each allocator (LD_PRELOAD).
 *
 * The figures:
 *  - `X_pair/S`: allocate an object of S bytes and free it at once, PAIRS times in a row, while 64
 *    other objects of that size are held; malloc with 64 KiB too. Time / PAIRS: an operation is an
 *    allocation and a free.
 *  - `X_pair_empty/S`: as `X_pair/S`, with no other object of that size held.
 *  - `malloc_burst/S`: allocate 32 objects, then free them, oldest first, with 64 others held. Time
 *    / 32: an operation is again an allocation and a free.
 *  - `malloc_many/S`: allocate 16,384 objects, write to each, then read and free them, oldest first.
 *    More than caches of free objects hold. Time / 16384.
 *  - `malloc_many_mixed/S`: as `malloc_many/S`, freed in an order drawn at the start.
 *  - `X_remote/S`: a thread allocates, another frees; the pointers go through a ring. Time until
 *    the last is free / REMOTE. The threads run on two CPUs, if there are as many; the cost of the
 *    ring is inside.
 *  - `aligned_pair/S`: posix_memalign of S bytes at a multiple of 64, and free, with 64 others
 *    held.
 *  - `realloc_moved/S`: malloc of S bytes, realloc to twice as many, and free.
 *  - `realloc_inside/S`: a realloc of one of 64 blocks of S bytes, to seven eighths of them and at
 *    the next turn back.
 *  - `usable_size/S`: malloc_usable_size of one of 64 blocks of S bytes.
 *  - `call_pair/S`: two calls of functions that do nothing, in the same loop: the part of every
 *    pair above that is not the allocator's.
 *
 * X is malloc (malloc and free), kmalloc (kmalloc and kfree), kmem_cache (kmem_cache_alloc and
 * kmem_cache_free of a cache of that size), kmem_inline (these two inlined, kmem-inline.h) or
 * kmem_view (inlined, with a view of the cache in a local variable of the loop).
 *
 * Loops of pairs are there in four places, and each sample is of all four.
 *
 * The cost of the loop, about a cycle an operation, is inside all figures; nothing is subtracted.
 * Other objects are not written to. Every function but the inlined ones is called through a pointer,
 * whatever the allocator. Each sample follows an untimed tenth of itself. The compiler must not
 * know malloc (-fno-builtin), or it would remove the pairs.
 *
 * Nothing here allocates but the tests themselves and the start of the thread that frees: the
 * output is written without stdio, the input read into a fixed buffer.
 */

#define _GNU_SOURCE
#include "cycles.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KMEM_INLINE_NODELETE /* linked with no libkmem: it is opened */
#include <kmem-inline.h>

/* Under other allocators nothing of libkmem is there, and the inlined tests do not run. */
#pragma weak kmem_cache_alloc
#pragma weak kmem_cache_free
__asm__(".weak kmem_inline_layout_1");

enum {
        PAIRS = 50000,
        PLACES = 4,
        BURST = 32,
        BURSTS = PAIRS / BURST,
        LIVE = 64, /* objects held during a test */
        MANY = 16384,
        ALIGN = 64,
        RING = 256,     /* pointers on their way to the thread that frees */
        RING_STEP = 32, /* as many are made visible at a time */
        REMOTE_WARM = 64 * RING_STEP,
        REMOTE = 320 * RING_STEP,
};

_Static_assert(PAIRS % (10 * PLACES) == 0,
               "each place has as many pairs, in the untimed tenth too");

static const unsigned int sizes[] = {16, 64, 256, 1024};

/* Pointers, so that a single program serves allocators that have only malloc. */
static struct {
        typeof(malloc) *malloc;
        typeof(free) *free;
        typeof(realloc) *realloc;
        typeof(posix_memalign) *posix_memalign;
        typeof(malloc_usable_size) *usable_size;
        typeof(kmalloc) *kmalloc;
        typeof(kfree) *kfree;
        typeof(kmem_cache_create) *cache_create;
        typeof(kmem_cache_alloc) *cache_alloc;
        typeof(kmem_cache_free) *cache_free;
        typeof(kmem_cache_alloc) *take_nothing;
        typeof(kmem_cache_free) *give_nothing;
} calls;

static __attribute__((noinline)) void *take_nothing(struct kmem_cache *cache, gfp_t flags)
{
        keep(cache);
        (void)flags;
        return cache;
}

static __attribute__((noinline)) void give_nothing(struct kmem_cache *cache, void *object)
{
        keep(object);
        (void)cache;
}

static struct kmem_cache *caches[sizeof(sizes) / sizeof(sizes[0])];

static void *live[LIVE];

enum family { MALLOC, KMALLOC, KMEM_CACHE, KMEM_INLINE, KMEM_VIEW, NOTHING };

struct object_source {
        enum family family;
        unsigned int bytes;
        struct kmem_cache *cache; /* from KMEM_CACHE on */
};

/*
 * Always inlined with a constant family, so that a loop holds just its two calls. Objects of the
 * inlined tests that are only held come from the calls.
 */
static inline __attribute__((always_inline)) void *take(const struct object_source *source,
                                                        enum family family)
{
        if (family == MALLOC)
                return calls.malloc(source->bytes);
        if (family == KMALLOC)
                return calls.kmalloc(source->bytes, GFP_KERNEL);
        if (family == NOTHING)
                return calls.take_nothing(source->cache, GFP_KERNEL);
        return calls.cache_alloc(source->cache, GFP_KERNEL);
}

static inline __attribute__((always_inline)) void give(const struct object_source *source,
                                                       enum family family, void *object)
{
        if (family == MALLOC)
                calls.free(object);
        else if (family == KMALLOC)
                calls.kfree(object);
        else if (family == NOTHING)
                calls.give_nothing(source->cache, object);
        else
                calls.cache_free(source->cache, object);
}

/*
 * The place of a loop in a line of the instruction cache decides which of its branches share a
 * line. That changes a pair with calls by up to a tenth, and differently for each allocator. So
 * each loop of pairs is there PLACES times, in places a quarter of a line apart, with a part of the
 * operations each.
 */
#if defined(__x86_64__)
#define NOPS_A_QUARTER 16
#else
#define NOPS_A_QUARTER 4
#endif
#define IN_PLACE(place)                                                                            \
        __asm__ volatile(".p2align 6\n\t.rept %c0\n\tnop\n\t.endr" : : "i"((place)*NOPS_A_QUARTER))

#define DEFINE_PAIRS_IN_PLACE(name, place, SET_UP, TAKE, GIVE)                                     \
        static __attribute__((noinline)) void name##_##place(const struct object_source *source,   \
                                                             unsigned int count)                   \
        {                                                                                          \
                SET_UP;                                                                            \
                                                                                                   \
                IN_PLACE(place);                                                                   \
                for (unsigned int i = 0; i < count; i++) {                                         \
                        void *object = TAKE;                                                       \
                                                                                                   \
                        keep(object);                                                              \
                        GIVE;                                                                      \
                }                                                                                  \
        }

#define DEFINE_PAIRS(name, SET_UP, TAKE, GIVE)                                                     \
        DEFINE_PAIRS_IN_PLACE(name, 0, SET_UP, TAKE, GIVE)                                         \
        DEFINE_PAIRS_IN_PLACE(name, 1, SET_UP, TAKE, GIVE)                                         \
        DEFINE_PAIRS_IN_PLACE(name, 2, SET_UP, TAKE, GIVE)                                         \
        DEFINE_PAIRS_IN_PLACE(name, 3, SET_UP, TAKE, GIVE)                                         \
        static void name(const struct object_source *source, unsigned int count)                   \
        {                                                                                          \
                name##_0(source, count / PLACES);                                                  \
                name##_1(source, count / PLACES);                                                  \
                name##_2(source, count / PLACES);                                                  \
                name##_3(source, count / PLACES);                                                  \
        }

#define DEFINE_PAIRS_OF(name, family)                                                              \
        DEFINE_PAIRS(name, , take(source, family), give(source, family, object))

DEFINE_PAIRS_OF(malloc_pairs, MALLOC)
DEFINE_PAIRS_OF(kmalloc_pairs, KMALLOC)
DEFINE_PAIRS_OF(kmem_cache_pairs, KMEM_CACHE)
DEFINE_PAIRS_OF(call_pairs, NOTHING)
DEFINE_PAIRS(inline_pairs, struct kmem_cache *cache = source->cache,
             kmem_cache_alloc_inline(cache, GFP_KERNEL), kmem_cache_free_inline(cache, object))
DEFINE_PAIRS(view_pairs, struct kmem_view view = kmem_view_of(source->cache),
             kmem_view_alloc(view, GFP_KERNEL), kmem_view_free(view, object))

/* Runs @count turns of BURST operations each. */
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

static unsigned int mixed[MANY]; /* the numbers below MANY in random order */

static void mix(void)
{
        uint64_t state = 1;

        for (unsigned int i = 0; i < MANY; i++) {
                unsigned int j;

                state = state * 6364136223846793005u + 1442695040888963407u;
                j = (unsigned int)((state >> 33) % (i + 1));
                mixed[i] = mixed[j];
                mixed[j] = i;
        }
}

static inline __attribute__((always_inline)) void many(const struct object_source *source,
                                                       unsigned int count, bool in_order)
{
        static uint64_t *objects[MANY];

        for (unsigned int i = 0; i < count; i++) {
                for (unsigned int k = 0; k < MANY; k++) {
                        objects[k] = take(source, MALLOC);
                        *objects[k] = k;
                }
                for (unsigned int k = 0; k < MANY; k++) {
                        uint64_t *object = objects[in_order ? k : mixed[k]];

                        keep((void *)*object);
                        give(source, MALLOC, object);
                }
        }
}

static void run_many(const struct object_source *source, unsigned int count)
{
        many(source, count, true);
}

static void run_many_mixed(const struct object_source *source, unsigned int count)
{
        many(source, count, false);
}

static void run_aligned(const struct object_source *source, unsigned int count)
{
        for (unsigned int i = 0; i < count; i++) {
                void *object = NULL;

                calls.posix_memalign(&object, ALIGN, source->bytes);
                keep(object);
                calls.free(object);
        }
}

static void run_moves(const struct object_source *source, unsigned int count)
{
        for (unsigned int i = 0; i < count; i++) {
                void *object = calls.realloc(calls.malloc(source->bytes), 2 * source->bytes);

                keep(object);
                calls.free(object);
        }
}

static void run_resizes(const struct object_source *source, unsigned int count)
{
        const unsigned int bytes[] = {source->bytes - source->bytes / 8, source->bytes};

        for (unsigned int i = 0; i < count; i++) {
                void **object = &live[i % LIVE];

                *object = calls.realloc(*object, bytes[i / LIVE % 2]);
        }
}

static void run_usable_sizes(const struct object_source *source, unsigned int count)
{
        (void)source;
        for (unsigned int i = 0; i < count; i++)
                keep((void *)calls.usable_size(live[i % LIVE]));
}

/*
 * Pointers from the thread that allocates (it writes `put`) to the thread that frees (it writes
 * `got`). Both are counts, stored with release and loaded with acquire.
 */
static struct {
        _Alignas(64) uint64_t put;
        _Alignas(64) uint64_t got;
        _Alignas(64) void *objects[RING];
} ring;

/* Pins the thread to the process's CPU of this number, modulo the number of its CPUs. */
static void pin_to(const cpu_set_t *usable, unsigned int number)
{
        cpu_set_t one;

        CPU_ZERO(&one);
        for (unsigned int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
                if (CPU_ISSET(cpu, usable) && seen++ == number % (unsigned int)CPU_COUNT(usable))
                        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

static cpu_set_t usable_cpus;

/*
 * A thread that waits on a CPU of its own stays there: if both gave up theirs, on a busy machine,
 * they would wait for each other all the time.
 */
static void wait_a_little(void)
{
        if (CPU_COUNT(&usable_cpus) == 1)
                sched_yield();
}

static inline __attribute__((always_inline)) void free_from_ring(const struct object_source *source,
                                                                 enum family family)
{
        for (uint64_t got = 0; got < REMOTE_WARM + REMOTE;) {
                uint64_t put = __atomic_load_n(&ring.put, __ATOMIC_ACQUIRE);

                if (got == put)
                        wait_a_little();
                for (; got < put; got++)
                        give(source, family, ring.objects[got % RING]);
                __atomic_store_n(&ring.got, got, __ATOMIC_RELEASE);
        }
}

static void *free_all(void *argument)
{
        const struct object_source *source = argument;

        pin_to(&usable_cpus, 1);
        if (source->family == MALLOC)
                free_from_ring(source, MALLOC);
        else
                free_from_ring(source, KMEM_CACHE);
        return NULL;
}

static void wait_until_got(uint64_t count)
{
        while (__atomic_load_n(&ring.got, __ATOMIC_ACQUIRE) < count)
                wait_a_little();
}

static inline __attribute__((always_inline)) void send(const struct object_source *source,
                                                       enum family family, unsigned int count)
{
        uint64_t put = ring.put;

        for (unsigned int i = 0; i < count; i += RING_STEP) {
                if (put + RING_STEP > RING)
                        wait_until_got(put + RING_STEP - RING);
                for (unsigned int k = 0; k < RING_STEP; k++)
                        ring.objects[put++ % RING] = take(source, family);
                __atomic_store_n(&ring.put, put, __ATOMIC_RELEASE);
        }
        wait_until_got(put);
}

static double remote_sample(struct object_source *source)
{
        uint64_t start, end;
        pthread_t thread;

        ring.put = ring.got = 0;
        if (sched_getaffinity(0, sizeof(usable_cpus), &usable_cpus) ||
            pthread_create(&thread, NULL, free_all, source)) {
                dprintf(STDERR_FILENO, "micro: no thread\n");
                exit(1);
        }
        pin_to(&usable_cpus, 0);
        if (source->family == MALLOC) {
                send(source, MALLOC, REMOTE_WARM);
                start = now_cycles();
                send(source, MALLOC, REMOTE);
                end = now_cycles();
        } else {
                send(source, KMEM_CACHE, REMOTE_WARM);
                start = now_cycles();
                send(source, KMEM_CACHE, REMOTE);
                end = now_cycles();
        }
        pthread_join(thread, NULL);
        sched_setaffinity(0, sizeof(usable_cpus), &usable_cpus);
        return (double)(end - start) / REMOTE;
}

struct test {
        const char *name;
        enum family family;
        void (*run)(const struct object_source *source,
                    unsigned int count); /* NULL: by another thread */
        bool empty;
        unsigned int bytes; /* 0: each of `sizes` */
};

static const struct test tests[] = {
        {"malloc_pair_empty", MALLOC, malloc_pairs, true, 0},
        {"malloc_pair", MALLOC, malloc_pairs, false, 0},
        {"malloc_pair", MALLOC, malloc_pairs, false, 65536},
        {"malloc_burst", MALLOC, run_bursts, false, 0},
        {"malloc_many", MALLOC, run_many, true, 64},
        {"malloc_many_mixed", MALLOC, run_many_mixed, true, 64},
        {"malloc_remote", MALLOC, NULL, false, 0},
        {"aligned_pair", MALLOC, run_aligned, false, 0},
        {"realloc_moved", MALLOC, run_moves, false, 0},
        {"realloc_inside", MALLOC, run_resizes, false, 0},
        {"usable_size", MALLOC, run_usable_sizes, false, 0},
        {"kmalloc_pair_empty", KMALLOC, kmalloc_pairs, true, 0},
        {"kmalloc_pair", KMALLOC, kmalloc_pairs, false, 0},
        {"kmem_cache_pair_empty", KMEM_CACHE, kmem_cache_pairs, true, 0},
        {"kmem_cache_pair", KMEM_CACHE, kmem_cache_pairs, false, 0},
        {"kmem_cache_remote", KMEM_CACHE, NULL, false, 0},
        {"kmem_inline_pair_empty", KMEM_INLINE, inline_pairs, true, 0},
        {"kmem_inline_pair", KMEM_INLINE, inline_pairs, false, 0},
        {"kmem_view_pair", KMEM_VIEW, view_pairs, false, 0},
        {"call_pair", NOTHING, call_pairs, true, 0},
};

/* Operations in a turn of the test. */
static unsigned int operations_of(const struct test *test)
{
        if (test->run == run_bursts)
                return BURST;
        return test->run == run_many || test->run == run_many_mixed ? MANY : 1;
}

static double local_sample(const struct test *test, const struct object_source *source)
{
        unsigned int operations = operations_of(test);
        unsigned int turns = PAIRS / operations;
        uint64_t start, end;

        test->run(source, turns < 10 ? 1 : turns / 10);
        start = now_cycles();
        test->run(source, turns);
        end = now_cycles();
        return (double)(end - start) / (turns * operations);
}

static void run_test(const struct test *test, unsigned int bytes, struct kmem_cache *cache)
{
        struct object_source source = {test->family, bytes, cache};
        double cycles;

        for (unsigned int i = 0; i < LIVE && !test->empty; i++) {
                live[i] = take(&source, source.family);
                keep(live[i]);
        }
        cycles = test->run ? local_sample(test, &source) : remote_sample(&source);
        for (unsigned int i = 0; i < LIVE && !test->empty; i++)
                give(&source, source.family, live[i]);
        dprintf(STDOUT_FILENO, "%s/%u %.3f\n", test->name, bytes, cycles);
}

static void run_round(void)
{
        for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
                const struct test *test = &tests[i];

                if (test->family != MALLOC && !calls.cache_create)
                        continue;
                if (test->bytes)
                        run_test(test, test->bytes, NULL);
                for (size_t k = 0; !test->bytes && k < sizeof(sizes) / sizeof(sizes[0]); k++)
                        run_test(test, sizes[k], caches[k]);
        }
}

static void look_up_calls(void)
{
        calls.take_nothing = take_nothing;
        calls.give_nothing = give_nothing;
        calls.malloc = malloc;
        calls.free = free;
        calls.realloc = realloc;
        calls.posix_memalign = posix_memalign;
        calls.usable_size = malloc_usable_size;
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
        mix();
        look_up_calls();
        if (!create_caches()) {
                dprintf(STDERR_FILENO, "micro: kmem_cache_create failed\n");
                return 1;
        }
        run_rounds(run_round);
        return 0;
}
