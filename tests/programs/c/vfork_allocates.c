/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A child of vfork, which shares its parent's memory and thread block, allocates and frees while
 * its only parent thread waits. Blocks that it leaves belong to the parent.
 */
#define _GNU_SOURCE
#include <sys/wait.h>

#include "check.h"

#define ROUNDS 50

static struct churn churn;
static char *volatile left_behind;

static __attribute__((noinline)) void one_child(void)
{
        pid_t child = vfork();
        int status;

        check(child >= 0);
        if (child == 0) {
                churn_run(&churn, 200);
                left_behind = strdup("left by the child");
                _exit(0);
        }
        check(waitpid(child, &status, 0) == child && status == 0);
        check(strcmp(left_behind, "left by the child") == 0);
        free(left_behind);
}

int main(void)
{
        watchdog(120);
        churn_init(&churn, 3);
        for (int round = 0; round < ROUNDS; round++) {
                churn_run(&churn, 100);
                one_child();
        }
        churn_end(&churn);
        puts("ok");
        return 0;
}
