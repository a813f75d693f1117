/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * timed [-p LIBRARY] FILE PROGRAM [ARGUMENTS]: runs PROGRAM and writes to FILE "WALL_NS CPU_NS
 * PEAK_KIB MINOR_FAULTS MAJOR_FAULTS": the time from just before fork and exec to the end, the time
 * on CPUs in user and kernel mode, the largest resident set of any single process, and the page
 * faults without and with input. All but the first are sums of PROGRAM and of its descendants that
 * were waited for. Ends with PROGRAM's exit code, 128 + signal if it was killed.
 *
 * It is a process of its own because the peak of a program includes its parent's resident memory at
 * the time of the fork, and this program's is small. LIBRARY is preloaded into PROGRAM only.
 *
 * The process that started it may be killed in the middle. Then PROGRAM, which may be a server,
 * ends with it.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long timeval_ns(const struct timeval *time)
{
        return time->tv_sec * 1000000000LL + time->tv_usec * 1000LL;
}

/* Returns 0, or -1 with errno set. */
static int write_result(const char *name, long long wall_ns, const struct rusage *usage)
{
        FILE *file = fopen(name, "w");

        if (!file)
                return -1;
        if (fprintf(file, "%lld %lld %ld %ld %ld\n", wall_ns,
                    timeval_ns(&usage->ru_utime) + timeval_ns(&usage->ru_stime), usage->ru_maxrss,
                    usage->ru_minflt, usage->ru_majflt) < 0) {
                fclose(file);
                return -1;
        }
        return fclose(file);
}

int main(int argc, char **argv)
{
        const char *library = NULL;
        struct rusage usage;
        long long start;
        int status;
        pid_t child;

        if (argc > 2 && strcmp(argv[1], "-p") == 0) {
                library = argv[2];
                argc -= 2;
                argv += 2;
        }
        if (argc < 3) {
                fprintf(stderr, "usage: timed [-p LIBRARY] FILE PROGRAM [ARGUMENTS]\n");
                return 2;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        /*
         * Set before the clock starts: a write after a fork copies pages, which no run without
         * LIBRARY pays.
         */
        if (library)
                setenv("LD_PRELOAD", library, 1);
        start = now_ns();
        child = fork();
        if (child < 0) {
                perror("timed: fork");
                return 125;
        }
        if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                execvp(argv[2], argv + 2);
                fprintf(stderr, "timed: %s: %s\n", argv[2], strerror(errno));
                _exit(127);
        }
        while (wait4(child, &status, 0, &usage) < 0) {
                if (errno != EINTR) {
                        perror("timed: wait4");
                        return 125;
                }
        }
        if (write_result(argv[1], now_ns() - start, &usage)) {
                fprintf(stderr, "timed: %s: %s\n", argv[1], strerror(errno));
                return 125;
        }
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
