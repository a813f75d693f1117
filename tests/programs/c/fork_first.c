/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Forks of a process that has allocated nothing: the heap starts in a child, or in a fork handler
 * of the program, which may allocate as at any other time.
 */
#include <pthread.h>

#include "check.h"

static struct churn churn;
static int handlers_run;

/* More than any CPU keeps, so that locks are taken. */
static void allocate(void)
{
        static char *blocks[500];

        handlers_run++;
        for (int i = 0; i < 500; i++) {
                blocks[i] = malloc(3000);
                check(blocks[i]);
                memset(blocks[i], handlers_run, 3000);
        }
        for (int i = 0; i < 500; i++)
                free(blocks[i]);
}

static void fork_and_wait(void (*in_child)(void))
{
        if (!is_forked_child())
                return;
        watchdog(60);
        in_child();
        _exit(0);
}

static void use_heap(void)
{
        churn_init(&churn, 3);
        churn_run(&churn, 2000);
        churn_end(&churn);
}

static void fork_again(void)
{
        fork_and_wait(use_heap);
}

int main(void)
{
        watchdog(60);
        fork_and_wait(fork_again);
        check(pthread_atfork(allocate, allocate, allocate) == 0);
        fork_and_wait(use_heap);
        check(handlers_run == 2);
        use_heap();
        fork_and_wait(use_heap);
        check(handlers_run == 4);
        puts("ok");
        return 0;
}
