/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A signal came while a child of vfork ran. Its handler runs as soon as that is gone, in front of
 * anything that the parent does after the call, and forks: the new process is nobody's borrower, and is
 * shown as any other.
 */
#define _GNU_SOURCE
#include <glob.h>
#include <signal.h>

#include "check.h"

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

/* Whether there is a table of the process's figures. */
static int is_shown(pid_t process)
{
        char pattern[80];
        glob_t found;
        int failed;

        snprintf(pattern, sizeof(pattern), "/dev/shm/kmem-%u/*.%d", geteuid(), (int)process);
        failed = glob(pattern, 0, NULL, &found);
        globfree(&found);
        return !failed;
}

int main(void)
{
        watchdog(60);
        check(signal(SIGUSR1, fork_here) != SIG_ERR);
        run_child();
        check(forked >= 0);
        allocate();
        check(is_shown(getpid()));
        if (forked == 0)
                return 0;
        wait_for(forked);
        puts("ok");
        return 0;
}
