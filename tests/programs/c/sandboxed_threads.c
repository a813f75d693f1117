/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * After its threads have ended, a process enters a sandbox with all threads that exist; the
 * library's own thread may be there. The sandbox allows the calls of libc's malloc, sleeping and
 * the end, and kills for the rest.
 */
#define _GNU_SOURCE
#include "library_thread.h"
#include "sandbox.h"

#include <sys/prctl.h>

static void enter_sandbox(void)
{
        struct sock_filter filter[] = {
                ALLOW_MALLOC,
                ALLOW(SYS_clock_nanosleep),
                ALLOW(SYS_restart_syscall),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        };
        struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

        check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
                skip_without_filters();
}

int main(void)
{
        struct churn churn;

        watchdog(60);
        /* Its thread comes with frees, where it is wanted at all. */
        for (int round = 0; round < 100 && count_threads() == 1; round++)
                churn_in_thread();
        /* A failed call may bring it back. */
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
