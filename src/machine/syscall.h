/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * System calls without libc: they return -errno and leave errno, thread-local storage and
 * cancellation alone, so they work before libc's constructors and in threads libc does not
 * know. Included by base/ only; all other files ask machine/system.h.
 */
#ifndef KMEM_MACHINE_SYSCALL_H
#define KMEM_MACHINE_SYSCALL_H

#include "lang/compiler.h"

#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>

#if defined(__x86_64__)

static inline long system_call6(long number, long a, long b, long c, long d, long e, long f)
{
        long result;
        register long r10 __asm__("r10") = d;
        register long r8 __asm__("r8") = e;
        register long r9 __asm__("r9") = f;

        __asm__ volatile("syscall"
                         : "=a"(result)
                         : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                         : "rcx", "r11", "memory");
        return result;
}

#elif defined(__aarch64__)

static inline long system_call6(long number, long a, long b, long c, long d, long e, long f)
{
        register long x8 __asm__("x8") = number;
        register long x0 __asm__("x0") = a;
        register long x1 __asm__("x1") = b;
        register long x2 __asm__("x2") = c;
        register long x3 __asm__("x3") = d;
        register long x4 __asm__("x4") = e;
        register long x5 __asm__("x5") = f;

        __asm__ volatile("svc #0"
                         : "+r"(x0)
                         : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                         : "memory");
        return x0;
}

#elif defined(__riscv)

static inline long system_call6(long number, long a, long b, long c, long d, long e, long f)
{
        register long a7 __asm__("a7") = number;
        register long a0 __asm__("a0") = a;
        register long a1 __asm__("a1") = b;
        register long a2 __asm__("a2") = c;
        register long a3 __asm__("a3") = d;
        register long a4 __asm__("a4") = e;
        register long a5 __asm__("a5") = f;

        __asm__ volatile("ecall"
                         : "+r"(a0)
                         : "r"(a7), "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5)
                         : "memory");
        return a0;
}

#else

#include <errno.h>
#include <unistd.h>

static inline long system_call6(long number, long a, long b, long c, long d, long e, long f)
{
        int saved_errno = errno;
        long result = syscall(number, a, b, c, d, e, f);

        if (result == -1)
                result = -errno;
        errno = saved_errno;
        return result;
}

#endif

static inline long system_call(long number, long a, long b, long c)
{
        return system_call6(number, a, b, c, 0, 0, 0);
}

/* Results from -4095 to -1 are errors, also for calls that return addresses. */
static inline bool system_call_failed(long result)
{
        return (unsigned long)result >= -4095ul;
}

/*
 * The signals that wait for the calling thread: sets *set, and tells in *old; either may be NULL.
 */
static inline long signals_set(const uint64_t *set, uint64_t *old)
{
        return system_call6(SYS_rt_sigprocmask, SIG_SETMASK, (long)set, (long)old, sizeof(uint64_t),
                            0, 0);
}

#endif
