/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program with a clock_gettime of its own, like libraries that fake the time. It allocates;
 * malloc and free, which ask for the time on slow paths, must not call it.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 4000 };

static volatile int inside;
static volatile int calls;

int clock_gettime(clockid_t clock, struct timespec *now)
{
        calls++;
        check(!inside);
        inside = 1;
        free(malloc(1 << 20));
        inside = 0;
        return (int)syscall(SYS_clock_gettime, clock, now);
}

static void use_heap(size_t bytes)
{
        static void *blocks[BLOCKS];

        for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = malloc(bytes);
                check(blocks[i]);
                memset(blocks[i], 1, bytes < 64 ? bytes : 64);
        }
        for (int i = 0; i < BLOCKS; i++)
                free(blocks[i]);
}

int main(void)
{
        struct timespec now;

        errno = 0;
        for (size_t bytes = 16; bytes <= 64 << 10; bytes *= 4)
                use_heap(bytes);
        for (int i = 0; i < 100; i++)
                free(malloc((size_t)1 << 20 << i % 7));
        malloc_trim(0);
        check(calls == 0);
        check(errno == 0);
        check(clock_gettime(CLOCK_MONOTONIC, &now) == 0 && calls == 1 && now.tv_sec > 0);
        puts("ok");
        return 0;
}
