/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * vforks_at_once THREADS told|untold: THREADS threads, or with 0 the first thread alone, make
 * children by vfork that allocate, spawn programs and fork. Each does so while another thread is in
 * vfork too, if there is another, and moves to another CPU each time; told: after prctl has given
 * up rights, as before a sandbox.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>

#include "check.h"

enum { THREADS_MAX = 16, ROUNDS = 16 };

extern char **environ;

static cpu_set_t allowed;
static int at_work;  /* threads that have rounds to do */
static int in_vfork; /* children of theirs that run now */

static void wait_for_company(void)
{
        while (__atomic_load_n(&at_work, __ATOMIC_RELAXED) > 1 &&
               __atomic_load_n(&in_vfork, __ATOMIC_RELAXED) < 2)
                usleep(500);
}

/* Moves to the CPU after the CPU of this thread. */
static void move(void)
{
        cpu_set_t next;
        int cpu = sched_getcpu();

        check(cpu >= 0);
        do
                cpu = (cpu + 1) % CPU_SETSIZE;
        while (!CPU_ISSET(cpu, &allowed));
        CPU_ZERO(&next);
        CPU_SET(cpu, &next);
        check(sched_setaffinity(0, sizeof(next), &next) == 0);
}

static __attribute__((noinline)) void run_child(struct churn *churn, int round)
{
        pid_t child = vfork();

        check(child >= 0);
        if (child == 0) {
                __atomic_add_fetch(&in_vfork, 1, __ATOMIC_RELAXED);
                if (round % 4 == 0)
                        wait_for_company();
                churn_run(churn, 50);
                __atomic_sub_fetch(&in_vfork, 1, __ATOMIC_RELAXED);
                if (round % 4 == 2)
                        execl("/bin/true", "true", (char *)NULL);
                _exit(0);
        }
        wait_for(child);
}

static void spawn(void)
{
        char *arguments[] = {"true", NULL};
        pid_t child;

        check(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) == 0);
        wait_for(child);
}

static void *work(void *seed)
{
        struct churn churn;

        churn_init(&churn, (uint64_t)(uintptr_t)seed);
        for (int round = 0; round < ROUNDS; round++) {
                churn_run(&churn, 50);
                move();
                run_child(&churn, round);
                move();
                if (round % 8 == 0)
                        spawn();
                if (round % 8 == 4 && is_forked_child()) {
                        at_work = 1;
                        churn_run(&churn, 50);
                        run_child(&churn, round);
                        _exit(0);
                }
        }
        __atomic_sub_fetch(&at_work, 1, __ATOMIC_RELAXED);
        churn_end(&churn);
        return NULL;
}

int main(int count, char **arguments)
{
        pthread_t made[THREADS_MAX];
        int threads;

        check(count == 3);
        watchdog(300);
        threads = atoi(arguments[1]);
        check(threads <= THREADS_MAX);
        at_work = threads ? threads : 1;
        check(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
        free(opaque(malloc(100)));
        if (strcmp(arguments[2], "told") == 0)
                check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        for (int i = 0; i < threads; i++)
                check(pthread_create(&made[i], NULL, work, (void *)(uintptr_t)(i + 1)) == 0);
        if (threads == 0)
                work(NULL);
        for (int i = 0; i < threads; i++)
                check(pthread_join(made[i], NULL) == 0);
        puts("ok");
        return 0;
}
