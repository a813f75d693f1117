/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Enters a sandbox that allows what a program does which only computes and ends, and kills for the
 * rest. Both ways to end, in children, one of which has a heap of its own by then.
 */
#define _GNU_SOURCE
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ALLOW(number)                                                                              \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1),                                       \
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void enter_sandbox(void)
{
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                ALLOW(SYS_exit_group),
                ALLOW(SYS_brk),
                ALLOW(SYS_clock_gettime),
                ALLOW(SYS_futex),
                ALLOW(SYS_getcpu),
                ALLOW(SYS_getpid),
                ALLOW(SYS_madvise),
                ALLOW(SYS_membarrier),
                ALLOW(SYS_mmap),
                ALLOW(SYS_mprotect),
                ALLOW(SYS_munmap),
                ALLOW(SYS_prctl),
                ALLOW(SYS_write),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
        };
        const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) {
                puts("seccomp filters are refused");
                exit(77);
        }
}

/* Enough to have the registry's file made, were the process not in a sandbox. */
static void use_heap(void)
{
        enum { BLOCKS = 20000 };
        static void *blocks[BLOCKS];

        for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = malloc((size_t)(i % 2000 + 1));
                check(blocks[i]);
        }
        for (int i = 0; i < BLOCKS; i++)
                free(blocks[i]);
}

/* By more than it was before the sandbox. */
static void grow_heap(void)
{
        enum { BLOCKS = 4, BYTES = 10 << 20 };
        char *blocks[BLOCKS];

        for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = malloc(BYTES);
                check(blocks[i]);
                memset(blocks[i], 1, BYTES);
        }
        for (int i = 0; i < BLOCKS; i++)
                free(blocks[i]);
}

static void run_child(void (*leave)(int), bool first)
{
        pid_t child = fork();
        int status;

        check(child >= 0);
        if (child == 0) {
                if (first)
                        use_heap();
                enter_sandbox();
                use_heap();
                grow_heap();
                leave(0);
        }
        check(waitpid(child, &status, 0) == child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                exit(77);
        check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
        use_heap();
        run_child(exit, false);
        run_child(_exit, false);
        run_child(exit, true);
        run_child(_exit, true);
        puts("ok");
        return 0;
}
