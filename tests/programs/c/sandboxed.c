/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Enters a sandbox in children that end in different ways; some of them have a heap of their own by
 * then. The sandbox allows the calls of libc's malloc and of a program's end, and kills for the
 * rest.
 *
 * sandboxed WAY STATE
 *
 * STATE  used: there is a heap before; new: there is none.
 * WAY  filter: by libc's prctl. rights: by the system call itself, after libc's prctl has given up
 *      rights for it. unseen: by system calls only; then the sandbox also allows the calls of a
 *      malloc that was not told.
 */
#define _GNU_SOURCE
#include "sandbox.h"

#include <malloc.h>
#include <stdbool.h>
#include <sys/prctl.h>

#ifdef SYS_vfork
#define VFORK SYS_vfork
#else
#define VFORK SYS_clone
#endif

enum way { FILTER, RIGHTS, UNSEEN };

static bool was_refused(enum way way, struct sock_fprog *program)
{
        if (way == UNSEEN ? syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                          : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
                return true;
        return way == FILTER ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program) != 0
                             : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) != 0;
}

static void enter_sandbox(enum way way)
{
        struct sock_filter filter[] = {
                ALLOW_MALLOC,
                ALLOW(SYS_clock_gettime),
                ALLOW(SYS_clone),
                ALLOW(SYS_set_robust_list),
                ALLOW(VFORK),
                ALLOW(SYS_wait4),
                ALLOW(SYS_rt_sigprocmask), /* fork, from glibc 2.42 on */
                BPF_JUMP(BPF_JMP | BPF_JA, way == UNSEEN ? 0 : 8, 0, 0),
                ALLOW(SYS_getcpu),
                ALLOW(SYS_getpid),
                ALLOW(SYS_membarrier),
                ALLOW(SYS_prctl),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        };
        struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

        if (was_refused(way, &program))
                skip_without_filters();
}

/* More blocks of pages than may rest, written to their ends or not, so that they are looked at. */
static void use_blocks_of_pages(bool written)
{
        enum { ROUNDS = 50, BLOCKS = 64, BYTES = 160 << 10 };
        static char *blocks[BLOCKS];

        for (int round = 0; round < ROUNDS; round++) {
                for (int i = 0; i < BLOCKS; i++) {
                        blocks[i] = malloc(BYTES);
                        check(blocks[i]);
                        if (written)
                                memset(blocks[i], 1, BYTES);
                }
                for (int i = 0; i < BLOCKS; i++)
                        free(opaque(blocks[i]));
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
        use_blocks_of_pages(false);
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
        use_blocks_of_pages(true);
}

/* Whether libc's malloc is all that was allowed: emptying slots takes fences, malloc_trim reads files. */
static void give_back(enum way way)
{
        if (way != UNSEEN)
                malloc_trim(0);
}

/* A child of fork that is in the sandbox from its first call on. */
static void run_grandchild(void (*leave)(int))
{
        if (!is_forked_child())
                return;
        use_heap();
        grow_heap();
        leave(0);
}

/* A child of vfork, which works on its parent's heap. */
static void run_borrower(void)
{
        pid_t child = vfork();
        int status;

        if (child == 0) {
                for (size_t bytes = 1; bytes < 3000; bytes++)
                        free(opaque(malloc(bytes)));
                _exit(7);
        }
        check(child > 0 && waitpid(child, &status, 0) == child);
        check(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        use_heap();
}

static void run_child(enum way way, void (*leave)(int), bool first)
{
        pid_t child = fork();
        int status;

        check(child >= 0);
        if (child == 0) {
                if (first)
                        use_heap();
                enter_sandbox(way);
                use_heap();
                grow_heap();
                give_back(way);
                run_grandchild(leave);
                if (way != UNSEEN)
                        run_borrower();
                leave(0);
        }
        check(waitpid(child, &status, 0) == child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                exit(77);
        check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void run_children(enum way way)
{
        run_child(way, exit, false);
        run_child(way, _exit, false);
        run_child(way, exit, true);
        run_child(way, _exit, true);
}

int main(int argc, char **argv)
{
        static const char *const ways[] = {"filter", "rights", "unseen"};
        enum way way = FILTER;

        check(argc == 3);
        while (strcmp(argv[1], ways[way]))
                check(++way <= UNSEEN);
        if (strcmp(argv[2], "used") == 0)
                use_heap();
        run_children(way);
        puts("ok");
        return 0;
}
