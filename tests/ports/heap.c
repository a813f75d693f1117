/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program for any libc, with its malloc from libkmem. Threads that are joined, threads that are
 * detached, whose ends race with the kernel's use of their storage, and children of fork that make
 * threads write and check blocks. Exit status 0, or 1 with a line.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern size_t malloc_usable_size(void *block);

/* A slow port or option takes fewer. */
#ifndef STEPS
#define STEPS 20000
#endif
#ifndef DETACHED
#define DETACHED 200
#endif

enum { THREADS = 4, FORKS = 10, BLOCKS = 128, BYTES = 3000 };

static unsigned int detached_done; /* release and acquire */

#define check(condition)                                                                           \
        do {                                                                                       \
                if (!(condition)) {                                                                \
                        printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);       \
                        exit(1);                                                                   \
                }                                                                                  \
        } while (0)

static void check_block(const unsigned char *block, size_t bytes, unsigned int mark)
{
        for (size_t i = 0; block && i < bytes; i += 97)
                check(block[i] == (unsigned char)mark);
}

static void work(uint32_t number)
{
        unsigned char *blocks[BLOCKS] = {0};
        size_t sizes[BLOCKS] = {0};

        for (int step = 0; step < STEPS; step++) {
                unsigned int at = (number >> 16) % BLOCKS;

                check_block(blocks[at], sizes[at], at);
                free(blocks[at]);
                sizes[at] = (number >> 8) % BYTES;
                blocks[at] = malloc(sizes[at]);
                check(blocks[at]);
                memset(blocks[at], (int)at, sizes[at]);
                number = number * 1103515245u + 12345;
        }
        for (int at = 0; at < BLOCKS; at++)
                free(blocks[at]);
}

static void *run(void *number)
{
        work((uint32_t)(uintptr_t)number);
        return NULL;
}

static void *run_detached(void *number)
{
        run(number);
        __atomic_add_fetch(&detached_done, 1, __ATOMIC_ACQ_REL);
        return NULL;
}

static void join_threads(void)
{
        pthread_t threads[THREADS];

        for (uintptr_t i = 0; i < THREADS; i++)
                check(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
        for (int i = 0; i < THREADS; i++)
                check(pthread_join(threads[i], NULL) == 0);
}

static void detach_threads(void)
{
        pthread_t thread;

        for (uintptr_t i = 0; i < DETACHED; i++) {
                check(pthread_create(&thread, NULL, run_detached, (void *)i) == 0);
                check(pthread_detach(thread) == 0);
                while (i + 1 > THREADS + __atomic_load_n(&detached_done, __ATOMIC_ACQUIRE))
                        usleep(100);
        }
        while (__atomic_load_n(&detached_done, __ATOMIC_ACQUIRE) < DETACHED)
                usleep(100);
}

static void fork_children(void)
{
        for (uint32_t i = 0; i < FORKS; i++) {
                pid_t child = fork();
                int status;

                if (child == 0) {
                        work(i);
#ifndef EMULATED /* qemu ends children of fork that start threads */
                        join_threads();
#endif
                        _exit(5);
                }
                check(waitpid(child, &status, 0) == child);
                check(WIFEXITED(status) && WEXITSTATUS(status) == 5);
        }
}

/* The child runs in the parent's memory. */
static void vfork_child(void)
{
        pid_t child = vfork();
        int status;

        if (child == 0)
                _exit(6);
        check(waitpid(child, &status, 0) == child);
        check(WIFEXITED(status) && WEXITSTATUS(status) == 6);
        free(malloc(100));
}

int main(void)
{
        void *aligned = NULL;

        /* An object of the class of 48 bytes: other allocators have other sizes. */
        check(malloc_usable_size(malloc(33)) == 48);
        check(posix_memalign(&aligned, 4096, 100) == 0 && (uintptr_t)aligned % 4096 == 0);
        free(aligned);
        join_threads();
        detach_threads();
        vfork_child();
        fork_children();
        return 0;
}
