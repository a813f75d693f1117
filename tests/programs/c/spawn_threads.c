/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * posix_spawn, vfork with exec, system and popen in a process with other threads that allocate all
 * the time. The started programs inherit the drop-in.
 */
#define _GNU_SOURCE
#include <spawn.h>
#include <sys/wait.h>

#include "churners.h"

#define ROUNDS 40

extern char **environ;

static int exit_status(pid_t child)
{
        int status;

        check(waitpid(child, &status, 0) == child);
        check(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void spawn_shell(const char *script, int expected)
{
        char *argv[] = {"sh", "-c", (char *)script, NULL};
        pid_t child;

        check(posix_spawn(&child, "/bin/sh", NULL, NULL, argv, environ) == 0);
        check(exit_status(child) == expected);
}

static void spawn_missing(void)
{
        char *argv[] = {"missing", NULL};
        pid_t child;

        check(posix_spawn(&child, "/nonexistent/missing", NULL, NULL, argv, environ) == ENOENT);
}

static void vfork_and_exec(void)
{
        pid_t child = vfork();

        check(child >= 0);
        if (child == 0) {
                execl("/bin/true", "true", (char *)NULL);
                _exit(127);
        }
        check(exit_status(child) == 0);
}

static void read_from_popen(int round)
{
        char script[64];
        char line[64] = "";
        char expected[64];
        FILE *pipe;

        snprintf(script, sizeof(script), "echo round $((%d + 1))", round);
        snprintf(expected, sizeof(expected), "round %d\n", round + 1);
        pipe = popen(script, "r");
        check(pipe != NULL);
        check(fgets(line, sizeof(line), pipe) != NULL);
        check(strcmp(line, expected) == 0);
        check(pclose(pipe) == 0);
}

int main(void)
{
        struct churners churners;
        struct churn churn;

        watchdog(300);
        churners_start(&churners, 4);
        churn_init(&churn, 7);
        for (int round = 0; round < ROUNDS; round++) {
                spawn_shell("exit 7", 7);
                spawn_shell("x=$(echo a b c | wc -w); test $x = 3", 0);
                spawn_missing();
                vfork_and_exec();
                check(WEXITSTATUS(system("exit 3")) == 3);
                read_from_popen(round);
                churn_run(&churn, 100);
        }
        churn_end(&churn);
        churners_stop(&churners);
        puts("ok");
        return 0;
}
