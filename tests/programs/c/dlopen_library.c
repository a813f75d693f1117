/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * dlopen and dlclose of libkmem by a program that is not linked with it. Usage:
 *
 *   dlopen_library LIBRARY [LIBRARY]
 *
 * Opens each library, allocates from one and frees to the other, closes them, and goes on under a
 * storm of signals: unloading code that holds restartable sequences would end the process at the
 * next preemption. Then opens them again. Two libraries share the first library's heap, which the
 * second finds because the first was opened with RTLD_GLOBAL.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

#include <kmem.h>

#include "check.h"

#define OBJECTS 3000
#define SIGNALS 500
#define WORKERS 2

static atomic_uint signals;
static atomic_bool stop;

struct heap {
        void *library;
        __typeof__(&kmalloc) allocate;
        __typeof__(&kfree) release;
        __typeof__(&ksize) size_of;
};

static void on_signal(int number)
{
        (void)number;
        atomic_fetch_add(&signals, 1);
}

static void storm(long microseconds)
{
        struct itimerval timer = {{0, microseconds}, {0, microseconds}};
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

        check(sigaction(SIGVTALRM, &action, NULL) == 0);
        check(sigaction(SIGPROF, &action, NULL) == 0);
        check(setitimer(ITIMER_VIRTUAL, &timer, NULL) == 0);
        check(setitimer(ITIMER_PROF, &timer, NULL) == 0);
}

/* Preempted and interrupted all the time, before and after the libraries are closed. */
static void *worker(void *seed)
{
        struct churn churn;

        churn_init(&churn, (uintptr_t)seed);
        while (!atomic_load(&stop))
                churn_run(&churn, 50);
        churn_end(&churn);
        return NULL;
}

static void wait_for_signals(unsigned int count)
{
        struct churn churn;

        churn_init(&churn, count);
        for (unsigned int first = atomic_load(&signals); atomic_load(&signals) - first < count;)
                churn_run(&churn, 50);
        churn_end(&churn);
}

static void heap_open(struct heap *heap, const char *path, int scope)
{
        heap->library = dlopen(path, RTLD_NOW | scope);
        if (!heap->library)
                dprintf(STDERR_FILENO, "%s\n", dlerror());
        check(heap->library != NULL);
        heap->allocate = (__typeof__(&kmalloc))dlsym(heap->library, "kmalloc");
        heap->release = (__typeof__(&kfree))dlsym(heap->library, "kfree");
        heap->size_of = (__typeof__(&ksize))dlsym(heap->library, "ksize");
        check(heap->allocate && heap->release && heap->size_of);
}

/* Objects of a heap, looked at and freed through the other library. */
static void exchange(struct heap *from, struct heap *to)
{
        static void *objects[OBJECTS];

        for (size_t i = 0; i < OBJECTS; i++) {
                objects[i] = from->allocate(i % 3000 + 1, GFP_KERNEL);
                check(objects[i] != NULL);
                fill(objects[i], i % 3000 + 1, (unsigned char)i);
        }
        for (size_t i = 0; i < OBJECTS; i++) {
                check(to->size_of(objects[i]) >= i % 3000 + 1);
                check(intact(objects[i], i % 3000 + 1, (unsigned char)i));
                to->release(objects[i]);
        }
}

/* A cache of our own, through whichever library. */
static void use_cache(struct heap *heap)
{
        struct kmem_cache *(*create)(const char *, unsigned int, unsigned int, slab_flags_t,
                                     void (*)(void *));
        void *(*take)(struct kmem_cache *, gfp_t);
        void (*give)(struct kmem_cache *, void *);
        void (*destroy)(struct kmem_cache *);
        void *objects[200];
        struct kmem_cache *cache;

        *(void **)&create = dlsym(heap->library, "kmem_cache_create");
        *(void **)&take = dlsym(heap->library, "kmem_cache_alloc");
        *(void **)&give = dlsym(heap->library, "kmem_cache_free");
        *(void **)&destroy = dlsym(heap->library, "kmem_cache_destroy");
        check(create && take && give && destroy);
        cache = create("opened", 72, 0, 0, NULL);
        check(cache != NULL);
        for (size_t i = 0; i < 200; i++) {
                objects[i] = take(cache, GFP_KERNEL);
                check(objects[i] != NULL);
                fill(objects[i], 72, (unsigned char)i);
        }
        for (size_t i = 0; i < 200; i++) {
                check(intact(objects[i], 72, (unsigned char)i));
                give(cache, objects[i]);
        }
        destroy(cache);
}

int main(int argc, char **argv)
{
        pthread_t workers[WORKERS];
        struct heap first, second;
        void *kept;

        check(argc == 2 || argc == 3);
        watchdog(120);
        for (uintptr_t i = 0; i < WORKERS; i++)
                check(pthread_create(&workers[i], NULL, worker, (void *)(i + 1)) == 0);
        storm(300);
        heap_open(&first, argv[1], argc == 3 ? RTLD_GLOBAL : RTLD_LOCAL);
        heap_open(&second, argv[argc - 1], RTLD_LOCAL);
        exchange(&first, &second);
        exchange(&second, &first);
        use_cache(&first);
        use_cache(&second);
        kept = second.allocate(1000, GFP_KERNEL);
        check(kept != NULL);
        fill(kept, 1000, 0x3d);
        check(dlclose(first.library) == 0);
        check(dlclose(second.library) == 0);

        wait_for_signals(SIGNALS);

        heap_open(&second, argv[argc - 1], RTLD_LOCAL);
        heap_open(&first, argv[1], RTLD_LOCAL);
        check(intact(kept, 1000, 0x3d));
        first.release(kept);
        exchange(&first, &second);
        check(dlclose(first.library) == 0);
        check(dlclose(second.library) == 0);
        wait_for_signals(SIGNALS / 4);
        atomic_store(&stop, 1);
        for (size_t i = 0; i < WORKERS; i++)
                check(pthread_join(workers[i], NULL) == 0);
        puts("ok");
        return 0;
}
