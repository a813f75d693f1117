/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * timed [-p LIBRARY] FILE PROGRAM [ARGUMENTS]: runs PROGRAM and writes to FILE "WALL_NS CPU_NS
 * PEAK_KIB MINOR_FAULTS MAJOR_FAULTS KIB_MS": the time from just before fork and exec to the end, the
 * time on CPUs in user and kernel mode, the largest resident set of any single process, the page
 * faults without and with input, and memory over time in KiB times milliseconds. CPU time and
 * faults are sums of PROGRAM and of its descendants that were waited for. Ends with PROGRAM's exit
 * code, 128 + signal if it was killed.
 *
 * Memory over time is what PROGRAM and its descendants have resident but not from files or shared
 * mappings, seen every SAMPLE_MS; pages that processes share since a fork count in each. A look at
 * a process takes some 5 us. Descendants that a thread other than the first started are left out.
 *
 * It is a process of its own because the peak of a program includes its parent's resident memory at
 * the time of the fork, and this program's is small. LIBRARY is preloaded into PROGRAM only.
 *
 * The process that started it may be killed in the middle. Then PROGRAM, which may be a server,
 * ends with it.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
        SAMPLE_MS = 10,
        GENERATIONS_MAX = 8, /* of descendants */
};

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
static int write_result(const char *name, long long wall_ns, const struct rusage *usage,
                        uint64_t kib_ms)
{
        FILE *file = fopen(name, "w");

        if (!file)
                return -1;
        if (fprintf(file, "%lld %lld %ld %ld %ld %llu\n", wall_ns,
                    timeval_ns(&usage->ru_utime) + timeval_ns(&usage->ru_stime), usage->ru_maxrss,
                    usage->ru_minflt, usage->ru_majflt, (unsigned long long)kib_ms) < 0) {
                fclose(file);
                return -1;
        }
        return fclose(file);
}

/* The beginning of a file of a process, as a text; empty if the process has ended. */
static void read_about(pid_t process, const char *format, char *text, size_t bytes)
{
        char name[64];
        ssize_t got = -1;
        int file;

        snprintf(name, sizeof(name), format, (int)process, (int)process);
        file = open(name, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
                got = read(file, text, bytes - 1);
                close(file);
        }
        text[got > 0 ? got : 0] = '\0';
}

/* Resident memory of a process and its descendants that is neither a file's nor shared, in KiB. */
static uint64_t resident_kib(pid_t process, unsigned int generations)
{
        uint64_t page_kib = (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
        char text[4096];
        char *next = text;
        uint64_t kib, shared;
        pid_t child;

        read_about(process, "/proc/%d/statm", text, sizeof(text));
        strtoull(next, &next, 10);
        kib = strtoull(next, &next, 10) * page_kib;
        shared = strtoull(next, NULL, 10) * page_kib;
        kib -= shared < kib ? shared : kib;
        if (!generations)
                return kib;
        read_about(process, "/proc/%d/task/%d/children", text, sizeof(text));
        next = text;
        while ((child = (pid_t)strtol(next, &next, 10)) > 0)
                kib += resident_kib(child, generations - 1);
        return kib;
}

/* Waits for the child's end, and adds up its memory until then, in KiB times milliseconds. */
static uint64_t watch_memory(pid_t child)
{
        struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN};
        long long before = now_ns();
        double sum = 0;

        /* Without pidfd_open, before Linux 5.3, there is nothing to wait on with a limit. */
        while (end.fd >= 0 && poll(&end, 1, SAMPLE_MS) == 0) {
                uint64_t kib = resident_kib(child, GENERATIONS_MAX);
                long long now = now_ns();

                sum += (double)kib * (double)(now - before) / 1e6;
                before = now;
        }
        return (uint64_t)sum;
}

int main(int argc, char **argv)
{
        const char *library = NULL;
        struct rusage usage;
        long long start;
        uint64_t kib_ms;
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
        kib_ms = watch_memory(child);
        while (wait4(child, &status, 0, &usage) < 0) {
                if (errno != EINTR) {
                        perror("timed: wait4");
                        return 125;
                }
        }
        if (write_result(argv[1], now_ns() - start, &usage, kib_ms)) {
                fprintf(stderr, "timed: %s: %s\n", argv[1], strerror(errno));
                return 125;
        }
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
