/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A child enters a sandbox that lets it set its signal mask, but refuses to add to it, and ends. While
 * nobody has waited for it, the mask it ended with can be read: it must be the one it had.
 */
#include "sandbox.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void enter_sandbox(void)
{
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIG_BLOCK, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

        /* By system calls: of a sandbox that the library was told of it keeps away from files. */
        if (syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
            syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
                skip_without_filters();
}

static unsigned long long mask_of(pid_t process)
{
        char path[64];
        char line[256];
        unsigned long long mask = ~0ULL;
        FILE *status;

        snprintf(path, sizeof(path), "/proc/%d/status", (int)process);
        status = fopen(path, "r");
        check(status);
        while (fgets(line, sizeof(line), status))
                if (sscanf(line, "SigBlk: %llx", &mask) == 1)
                        break;
        fclose(status);
        return mask;
}

int main(void)
{
        siginfo_t ended;
        pid_t child;

        free(malloc(100));
        fflush(stdout);
        child = fork();
        check(child >= 0);
        if (child == 0) {
                enter_sandbox();
                free(malloc(1000));
                exit(0);
        }
        check(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT) == 0);
        check(ended.si_code == CLD_EXITED);
        if (ended.si_status == 77)
                return 77;
        check(ended.si_status == 0);
        check(mask_of(child) == 0);
        check(waitpid(child, NULL, 0) == child);
        puts("ok");
        return 0;
}
