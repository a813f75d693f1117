/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A seccomp filter on a system call of the calling thread, and of all threads and programs that it
 * starts.
 */
#ifndef TESTS_UNIT_FILTER_H
#define TESTS_UNIT_FILTER_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int64_t ANY_ARGUMENT = -1;

/*
 * From now on calls of this number, with @argument as the lower half of the first argument, have
 * @result, a SECCOMP_RET_ value. For SECCOMP_RET_USER_NOTIF, returns the descriptor that tells of
 * calls and waits for answers, else 0; less than 0 if no filter can be set.
 */
static inline int filter_calls(long number, int64_t argument, uint32_t result)
{
        /* With any argument the jump is always taken, to the next instruction. */
        uint16_t compare = argument == ANY_ARGUMENT ? BPF_JA : BPF_JEQ;
        uint32_t value = argument == ANY_ARGUMENT ? 0 : (uint32_t)argument;
        struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 3),
                /* The lower half is in front: the machines are little-endian. */
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
                BPF_JUMP((uint16_t)(BPF_JMP | BPF_K | compare), value, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, result),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
                return -1;
        if (result == SECCOMP_RET_USER_NOTIF)
                return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                    SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#endif
