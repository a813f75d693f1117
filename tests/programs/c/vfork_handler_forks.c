/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A signal came while a child of vfork ran. Its handler runs as soon as that is gone, in front of
 * anything that the parent does after the call, and forks: the new process is nobody's borrower, and is
 * shown as any other.
 */
#define _GNU_SOURCE
#include <signal.h>

#include "check.h"
#include "shown.h"

enum { BLOCKS = 500 };

static volatile pid_t forked = -1;

static void fork_here(int number)
{
        (void)number;
        forked = fork();
        check(forked >= 0);
}

static __attribute__((noinline)) void run_child(void)
{
        pid_t child = vfork();

        if (child == 0) {
                kill(getppid(), SIGUSR1);
                _exit(0);
        }
        check(child > 0);
}

static void allocate(void)
{
        static void *blocks[BLOCKS];

        for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = malloc(3000);
                check(blocks[i]);
        }
        for (int i = 0; i < BLOCKS; i++)
                free(blocks[i]);
}

int main(void)
{
        watchdog(60);
        check(signal(SIGUSR1, fork_here) != SIG_ERR);
        run_child();
        check(forked >= 0);
        allocate();
        check(is_shown(getpid(), 0));
        if (forked == 0)
                return 0;
        wait_for(forked);
        puts("ok");
        return 0;
}
