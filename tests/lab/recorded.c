/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Programs for test_record.py, chosen by the first argument, with known allocations and frees. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HANDED = 20000, THREADS = 4, INHERITED = 100, MANY = 200000 };

/* Keeps the compiler from knowing that it is malloc. */
static void *volatile sink;

static void *keep(void *block)
{
        if (!block)
                abort();
        sink = block;
        return block;
}

/* Sizes from 7001 on cannot be confused with libc's own allocations. */
static void calls(void)
{
        char *grown = keep(malloc(7001));
        char *aligned;

        keep(calloc(1, 7002));
        grown = keep(realloc(grown, 7003));     /* in place: its class has the room */
        grown = keep(realloc(grown, 70004));    /* moves, to pages of its own */
        grown = keep(realloc(grown, 40000005)); /* to a mapping of its own */
        grown = keep(realloc(grown, 80000006)); /* which grows, and may move */
        free(grown);
        if (posix_memalign((void **)&aligned, 256, 7007))
                abort();
        keep(aligned);
        free(keep(memalign(64, 7008)));
        free(keep(realloc(NULL, 7009)));
        free(NULL);
}

static void *_Atomic handed[THREADS][HANDED];

static void *hand_over(void *argument)
{
        long self = (long)argument;
        long next = (self + 1) % THREADS;

        for (int i = 0; i < HANDED; i++) {
                void *block;

                handed[self][i] = keep(malloc(16 + (size_t)i % 200));
                /* The neighbour's newest that is there; freed by whoever takes it. */
                block = __atomic_exchange_n((void **)&handed[next][i], NULL, __ATOMIC_ACQ_REL);
                free(block);
        }
        return NULL;
}

static void threads(void)
{
        pthread_t thread[THREADS];

        for (long i = 0; i < THREADS; i++)
                if (pthread_create(&thread[i], NULL, hand_over, (void *)i))
                        abort();
        for (int i = 0; i < THREADS; i++)
                pthread_join(thread[i], NULL);
        for (int t = 0; t < THREADS; t++)
                for (int i = 0; i < HANDED; i++)
                        free((void *)handed[t][i]);
}

/* The child frees half of the inherited objects, the parent the other half; both get more. */
static void forks(void)
{
        void *inherited[INHERITED];
        pid_t child;

        for (int i = 0; i < INHERITED; i++)
                inherited[i] = keep(malloc(7100));
        child = fork();
        for (int i = child == 0; i < INHERITED; i += 2)
                free(inherited[i]);
        for (int i = 0; i < 10; i++)
                keep(malloc(child == 0 ? 7200 : 7300));
        if (child == 0)
                _exit(0);
        waitpid(child, NULL, 0);
}

/* Until a signal ends it. */
static void waits(void)
{
        calls();
        if (write(STDOUT_FILENO, "waits\n", 6) == 6)
                pause();
}

static void many(void)
{
        for (int i = 0; i < MANY; i++)
                keep(malloc(24));
}

/*
 * Bulks until a call fails in the middle, in a heap with room for some hundreds of these
 * objects.
 */
static void bulks(void)
{
        enum { BULK = 50 };
        void *(*create)(const char *, unsigned int, unsigned int, unsigned int, void *);
        int (*take)(void *, unsigned int, size_t, void **);
        void (*give)(void *, size_t, void **);
        static void *objects[MANY + BULK];
        void *cache;
        size_t taken = 0;

        *(void **)&create = keep(dlsym(RTLD_DEFAULT, "kmem_cache_create"));
        *(void **)&take = keep(dlsym(RTLD_DEFAULT, "kmem_cache_alloc_bulk"));
        *(void **)&give = keep(dlsym(RTLD_DEFAULT, "kmem_cache_free_bulk"));
        cache = keep(create("bulk", 30000, 0, 0, NULL));
        while (taken < MANY && take(cache, 0, BULK, objects + taken) == BULK)
                taken += BULK;
        if (taken == MANY)
                abort();
        give(cache, taken, objects);
}

int main(int argc, char **argv)
{
        if (argc < 2)
                return 2;
        if (strcmp(argv[1], "calls") == 0)
                calls();
        else if (strcmp(argv[1], "threads") == 0)
                threads();
        else if (strcmp(argv[1], "forks") == 0)
                forks();
        else if (strcmp(argv[1], "many") == 0)
                many();
        else if (strcmp(argv[1], "bulks") == 0)
                bulks();
        else if (strcmp(argv[1], "killed") == 0)
                calls(), raise(SIGKILL);
        else if (strcmp(argv[1], "exits") == 0)
                calls(), _exit(3);
        else if (strcmp(argv[1], "waits") == 0)
                waits();
        else if (strcmp(argv[1], "execs") == 0)
                many(), execl(argv[0], argv[0], "calls", NULL);
        else
                return 2;
        return 0;
}
