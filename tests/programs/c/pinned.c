/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * pinned [THREADS]: takes 150 MB in small blocks, frees all but one in 64, so that each slab keeps
 * some, and takes 140 MB in larger blocks. Prints the peak of resident bytes.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 480000, SMALL_BYTES = 300, LARGE = 35000, LARGE_BYTES = 4000, KEPT = 64 };

static pthread_barrier_t all_filled, all_freed;

static void *take(size_t bytes)
{
        void *block = malloc(bytes);

        if (!block)
                abort();
        return memset(block, 1, bytes);
}

/* Not by getrusage: its peak counts the memory of the parent that was forked before exec. */
static long peak_bytes(void)
{
        FILE *status = fopen("/proc/self/status", "r");
        char line[256];
        long kib = 0;

        while (status && fgets(line, sizeof(line), status))
                if (sscanf(line, "VmHWM: %ld kB", &kib) == 1)
                        break;
        if (!kib)
                abort();
        return kib * 1024;
}

static void *work(void *argument)
{
        size_t part = *(size_t *)argument;
        void **small = malloc(SMALL / part * sizeof(*small));

        for (size_t i = 0; i < SMALL / part; i++)
                small[i] = take(SMALL_BYTES);
        pthread_barrier_wait(&all_filled);
        for (size_t i = 0; i < SMALL / part; i++)
                if (i % KEPT)
                        free(small[i]);
        pthread_barrier_wait(&all_freed);
        for (size_t i = 0; i < LARGE / part; i++)
                take(LARGE_BYTES);
        return NULL;
}

int main(int argc, char **argv)
{
        size_t threads = argc > 1 ? (size_t)atoi(argv[1]) : 0;
        size_t part = threads ? threads : 1;
        pthread_t started[64];

        pthread_barrier_init(&all_filled, NULL, (unsigned int)part);
        pthread_barrier_init(&all_freed, NULL, (unsigned int)part);
        for (size_t i = 0; i < threads; i++)
                if (pthread_create(&started[i], NULL, work, &part))
                        abort();
        for (size_t i = 0; i < threads; i++)
                pthread_join(started[i], NULL);
        if (!threads)
                work(&part);
        printf("%ld\n", peak_bytes());
        return 0;
}
