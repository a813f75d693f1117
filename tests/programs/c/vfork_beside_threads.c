/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Children of vfork allocate a little, as programs do before they exec, while other threads of
 * their parent allocate and give memory back. No block may have two owners.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

#include "check.h"

#define ROUNDS 400
#define BLOCKS 32

static int stop;

static void use_blocks(unsigned long mark)
{
        unsigned long *blocks[BLOCKS];

        for (unsigned long i = 0; i < BLOCKS; i++) {
                check((blocks[i] = malloc(64 + i * 16)) != NULL);
                for (int k = 0; k < 8; k++)
                        blocks[i][k] = mark + i;
        }
        for (unsigned long i = 0; i < BLOCKS; i++) {
                for (int k = 0; k < 8; k++)
                        check(blocks[i][k] == mark + i);
                free(blocks[i]);
        }
}

static void *work(void *argument)
{
        unsigned long mark = (unsigned long)argument;

        while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
                use_blocks(mark);
                if (mark == 1000)
                        malloc_trim(0);
        }
        return NULL;
}

static __attribute__((noinline)) void one_child(int round)
{
        pid_t child = vfork();
        int status;

        check(child >= 0);
        if (child == 0) {
                for (int rounds = 0; rounds < 200; rounds++)
                        use_blocks(1000000ul * (unsigned long)round);
                _exit(0);
        }
        check(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
        pthread_t threads[3];

        watchdog(120);
        for (unsigned long i = 0; i < 3; i++)
                check(pthread_create(&threads[i], NULL, work, (void *)((i + 1) * 1000)) == 0);
        for (int round = 0; round < ROUNDS; round++)
                one_child(round);
        __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        for (int i = 0; i < 3; i++)
                check(pthread_join(threads[i], NULL) == 0);
        puts("ok");
        return 0;
}
