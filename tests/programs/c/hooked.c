/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The work of a program that has another library in front of libc's functions: blocks of all sizes,
 * threads, children of fork and vfork, a trim, the end. The test puts the hooks of hooks.c in
 * front, which allocate.
 */
#define _GNU_SOURCE
#include "check.h"

#include <malloc.h>
#include <pthread.h>
#include <spawn.h>

enum { THREADS = 3, ROUNDS = 500 };

extern char **environ;

static void churn_some(uint64_t seed)
{
        struct churn churn;

        churn_init(&churn, seed);
        churn_run(&churn, ROUNDS);
        churn_end(&churn);
}

static void *work(void *seed)
{
        churn_some((uintptr_t)seed);
        return NULL;
}

static void run_threads(void)
{
        pthread_t threads[THREADS];

        for (uintptr_t i = 0; i < THREADS; i++)
                check(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
        churn_some(9);
        for (int i = 0; i < THREADS; i++)
                check(pthread_join(threads[i], NULL) == 0);
}

static void run_children(void)
{
        char *const arguments[] = {"true", NULL};
        pid_t child;

        if (is_forked_child()) {
                churn_some(5);
                run_threads();
                _exit(0);
        }
        child = vfork();
        if (child == 0) {
                execve("/bin/true", arguments, environ);
                _exit(127);
        }
        check(child > 0);
        wait_for(child);
        check(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) == 0);
        wait_for(child);
}

int main(void)
{
        void *large = opaque(malloc(100 << 20));

        check(large);
        churn_some(1);
        run_children();
        run_threads();
        run_children();
        malloc_trim(0);
        free(large);
        malloc_trim(0);
        run_threads();
        puts("ok");
        return 0;
}
