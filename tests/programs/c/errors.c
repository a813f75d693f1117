/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Calls of the malloc family that fail, and some that succeed: their results, and errno afterwards.
 * The lines must be equal on libc's malloc and on another malloc.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define BEFORE 77

static volatile size_t most = SIZE_MAX;
static volatile size_t half = SIZE_MAX / 2 + 1;
static volatile size_t longest = PTRDIFF_MAX;
static volatile size_t too_much = (size_t)1 << 46;
static void *volatile block;

/* Shows the result of the call, and frees it. */
#define SHOW(call)                                                                                 \
        do {                                                                                       \
                errno = BEFORE;                                                                    \
                block = (call);                                                                    \
                printf("%s: %s, errno %d\n", #call, block ? "block" : "NULL", errno);              \
                free(block);                                                                       \
        } while (0)

#define SHOW_NUMBER(call)                                                                          \
        do {                                                                                       \
                long number;                                                                       \
                                                                                                   \
                errno = BEFORE;                                                                    \
                number = (long)(call);                                                             \
                printf("%s: %ld, errno %d\n", #call, number, errno);                               \
        } while (0)

static void plain(void)
{
        SHOW(malloc(0));
        SHOW(malloc(most));
        SHOW(malloc(half));
        SHOW(malloc(longest));
        SHOW(malloc(longest - 100));
        SHOW(malloc(too_much));
        SHOW(calloc(half, 2));
        SHOW(calloc(half, 3));
        SHOW(calloc(1, most));
        SHOW(calloc(0, most));
        SHOW(calloc(most, 0));
        SHOW(realloc(NULL, most));
        SHOW(realloc(NULL, 0));
        SHOW(reallocarray(NULL, half, 2));
        SHOW(reallocarray(NULL, 1, most));
        SHOW(reallocarray(NULL, 0, most));
}

/* A block stays if its resizing fails. */
static void resized(size_t bytes)
{
        void *kept = malloc(bytes);

        SHOW_NUMBER(realloc(kept, most) == NULL);
        SHOW_NUMBER(realloc(kept, half) == NULL);
        SHOW_NUMBER(realloc(kept, too_much) == NULL);
        SHOW_NUMBER(reallocarray(kept, half, 2) == NULL);
        SHOW_NUMBER((kept = realloc(kept, bytes * 2)) != NULL);
        SHOW_NUMBER(realloc(kept, 0) == NULL);
        kept = malloc(bytes);
        SHOW_NUMBER(reallocarray(kept, 0, 5) == NULL);
}

static void aligned(void)
{
        SHOW(memalign(64, most));
        SHOW(memalign(64, half));
        SHOW(memalign(64, longest));
        SHOW(memalign(4096, too_much));
        SHOW(memalign(half, 10));
        SHOW(memalign(half + 1, 10));
        SHOW(memalign(most, 10));
        SHOW(memalign(8, most));
        SHOW(memalign(0, 10));
        SHOW(memalign(3, 10));
        SHOW(memalign(48, 10));
        SHOW(aligned_alloc(64, most));
        SHOW(aligned_alloc(64, half));
        SHOW(aligned_alloc(half, 10));
        SHOW(aligned_alloc(16, most));
        SHOW(aligned_alloc(64, 64));
        SHOW(valloc(most));
        SHOW(valloc(half));
        SHOW(valloc(longest));
        SHOW(valloc(0));
        SHOW(pvalloc(most));
        SHOW(pvalloc(most - 4096));
        SHOW(pvalloc(half));
        SHOW(pvalloc(longest));
        SHOW(pvalloc(0));
}

static void by_posix(void)
{
        static const size_t aligns[] = {0, 3, 4, 8, 16, 24, 64, 4096, SIZE_MAX / 2 + 1, SIZE_MAX};
        const size_t sizes[] = {0, 10, too_much, longest, half, most};

        for (size_t i = 0; i < sizeof(aligns) / sizeof(*aligns); i++)
                for (size_t j = 0; j < sizeof(sizes) / sizeof(*sizes); j++) {
                        void *result = &result;
                        int error;

                        errno = BEFORE;
                        error = posix_memalign(&result, aligns[i], sizes[j]);
                        printf("posix_memalign(%zu, %zu): %d, errno %d, %s\n", aligns[i], sizes[j],
                               error, errno, result == &result ? "left alone" : "block");
                        if (!error)
                                free(result);
                }
}

static void others(void)
{
        FILE *nowhere = fopen("/dev/null", "w");
        void *freed = malloc(100);
        void *large = malloc(1 << 20);

        SHOW_NUMBER((free(freed), 0));
        SHOW_NUMBER((free(large), 0));
        SHOW_NUMBER((free(NULL), 0));
        SHOW_NUMBER(malloc_usable_size(NULL));
        SHOW_NUMBER(malloc_info(0, nowhere));
        SHOW_NUMBER((malloc_trim(0), 0));
        SHOW_NUMBER((mallinfo2().arena, 0));
        SHOW_NUMBER(mallopt(M_MMAP_THRESHOLD, 1 << 20));
        SHOW_NUMBER((malloc_stats(), 0));
        fclose(nowhere);
}

int main(void)
{
        plain();
        resized(10);
        resized(100000);
        resized(40 << 20);
        aligned();
        by_posix();
        others();
        return 0;
}
