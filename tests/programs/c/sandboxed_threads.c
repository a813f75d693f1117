/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A process whose threads have ended enters a sandbox with all threads that there are, while the library's
 * own may be there. The sandbox allows what libc's malloc does, sleeping and the end, and kills for the rest.
 */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(number)                                                                              \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1),                                       \
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void *in_thread(void *argument)
{
        struct churn churn;

        churn_init(&churn, 1);
        churn_run(&churn, 20000);
        churn_end(&churn);
        return argument;
}

static void churn_in_thread(void)
{
        pthread_t thread;

        check(pthread_create(&thread, NULL, in_thread, NULL) == 0);
        check(pthread_join(thread, NULL) == 0);
}

static unsigned int count_threads(void)
{
        DIR *directory = opendir("/proc/self/task");
        unsigned int count = 0;

        check(directory);
        for (struct dirent *entry; (entry = readdir(directory));)
                count += entry->d_name[0] != '.';
        closedir(directory);
        return count;
}

static void enter_sandbox(void)
{
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                ALLOW(SYS_exit_group),
                ALLOW(SYS_brk),
                ALLOW(SYS_clock_nanosleep),
                ALLOW(SYS_futex),
                ALLOW(SYS_madvise),
                ALLOW(SYS_mmap),
                ALLOW(SYS_mprotect),
                ALLOW(SYS_mremap),
                ALLOW(SYS_munmap),
                ALLOW(SYS_restart_syscall),
                ALLOW(SYS_write),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        };
        struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

        check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program)) {
                puts("seccomp filters are refused");
                exit(77);
        }
}

int main(void)
{
        struct churn churn;

        watchdog(60);
        /* Its thread comes with frees, where it is wanted at all. */
        for (int round = 0; round < 100 && count_threads() == 1; round++)
                churn_in_thread();
        /* One that failed may bring it back. */
        errno = 0;
        check(prctl(PR_SET_SECCOMP, -1, NULL) == -1 && errno == EINVAL);
        churn_in_thread();
        churn_init(&churn, 1);
        enter_sandbox();
        churn_run(&churn, 20000);
        usleep(300000);
        churn_run(&churn, 20000);
        churn_end(&churn);
        check(write(STDOUT_FILENO, "ok\n", 3) == 3);
        return 0;
}
