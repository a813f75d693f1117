/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A process with a single thread forks in signal handlers that interrupt its calls, also in the
 * middle of a fork. Every child goes on with the interrupted call. The watchdog ends a call that
 * waits for itself.
 */
#define _GNU_SOURCE
#include "check.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 300, BLOCKS = 512, STEPS_A_FORK = 64, STEPS_IN_CHILD = 300, SECONDS = 120 };

static volatile sig_atomic_t forks;
static volatile sig_atomic_t steps_left = -1; /* in a child */

static void fork_here(int number)
{
        pid_t child;

        (void)number;
        if (steps_left >= 0 || forks >= FORKS)
                return;
        forks++;
        child = fork();
        check(child >= 0);
        if (child == 0)
                steps_left = STEPS_IN_CHILD;
        else
                wait_for(child);
}

/* Blocks of many sizes, so that most calls take their slow paths. */
static void step(char **blocks, unsigned int *seed)
{
        *seed = *seed * 1103515245u + 12345u;
        size_t place = (*seed >> 8) % BLOCKS;
        size_t bytes = 1 + ((*seed >> 4) % 64) * ((*seed >> 17) % 2000);

        if (blocks[place]) {
                check(blocks[place][0] == (char)place);
                free(blocks[place]);
        }
        blocks[place] = malloc(bytes);
        check(blocks[place]);
        memset(blocks[place], (int)(char)place, bytes);
        if (*seed % 1024 == 0)
                malloc_trim(0);
}

/* A child that the handler makes meanwhile comes back here too; the other child is not its own. */
static void fork_outside(void)
{
        pid_t child = fork();
        int status;

        check(child >= 0);
        if (child == 0)
                _exit(0);
        if (waitpid(child, &status, 0) == child)
                check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        else
                check(steps_left >= 0 && errno == ECHILD);
}

int main(void)
{
        static char *blocks[BLOCKS];
        struct sigaction action = {.sa_handler = fork_here, .sa_flags = SA_RESTART};
        struct itimerval timer = {.it_interval = {.tv_usec = 700}, .it_value = {.tv_usec = 700}};
        unsigned int seed = 1;

        watchdog(SECONDS);
        check(sigaction(SIGPROF, &action, NULL) == 0);
        check(setitimer(ITIMER_PROF, &timer, NULL) == 0);
        while (forks < FORKS && steps_left != 0) {
                step(blocks, &seed);
                if (steps_left > 0)
                        steps_left--;
                else if (seed / 1024 % STEPS_A_FORK == 0)
                        fork_outside();
        }
        if (steps_left < 0)
                puts("ok");
        return 0;
}
