/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * clone(2) itself. musl's function of that name refuses the flags of threads, because musl cannot
 * use a thread that it has not made; ours asks nothing of libc (machine/bare_thread.h).
 *
 * The new thread begins behind the system call with its creator's registers, on the new stack: so
 * the function that it runs and the argument are in registers. It ends by exit, not exit_group.
 */
#define _GNU_SOURCE
#include "machine/bare_thread.h"

#include <sys/syscall.h>

/* Assembly is laid out by hand. */
/* clang-format off */

#if defined(__x86_64__)

long thread_clone(int (*run)(void *argument), void *argument, void *stack, long flags,
                  void *storage, uint32_t *id)
{
        register void *rdi __asm__("rdi") = (void *)flags;
        register void *r10 __asm__("r10") = id;
        register void *r8 __asm__("r8") = storage;
        register void *r12 __asm__("r12") = (void *)run;
        register void *r13 __asm__("r13") = argument;
        long result;

        __asm__ volatile("syscall\n\t"
                         "testq %%rax, %%rax\n\t"
                         "jnz 1f\n\t"
                         "xorl %%ebp, %%ebp\n\t" /* the end for those that walk the stack */
                         "movq %%r13, %%rdi\n\t"
                         "callq *%%r12\n\t"
                         "movl %%eax, %%edi\n\t"
                         "movl %[exit], %%eax\n\t"
                         "syscall\n\t"
                         "ud2\n"
                         "1:"
                         : "=a"(result)
                         : "a"((long)SYS_clone), "r"(rdi), "S"(stack), "d"(id), "r"(r10), "r"(r8),
                           "r"(r12), "r"(r13), [exit] "i"(SYS_exit)
                         : "rcx", "r11", "cc", "memory");
        return result;
}

#elif defined(__aarch64__)

long thread_clone(int (*run)(void *argument), void *argument, void *stack, long flags,
                  void *storage, uint32_t *id)
{
        register long x0 __asm__("x0") = flags;
        register void *x1 __asm__("x1") = stack;
        register void *x2 __asm__("x2") = id;
        register void *x3 __asm__("x3") = storage;
        register void *x4 __asm__("x4") = id;
        register long x8 __asm__("x8") = SYS_clone;
        register void *x9 __asm__("x9") = (void *)run;
        register void *x10 __asm__("x10") = argument;

        __asm__ volatile("svc #0\n\t"
                         "cbnz x0, 1f\n\t"
                         "mov x29, #0\n\t"
                         "mov x0, x10\n\t"
                         "blr x9\n\t"
                         "mov x8, %[exit]\n\t"
                         "svc #0\n\t"
                         "brk #0\n"
                         "1:"
                         : "+r"(x0)
                         : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x8), "r"(x9), "r"(x10),
                           [exit] "i"(SYS_exit)
                         : "memory");
        return x0;
}

#elif defined(__riscv)

long thread_clone(int (*run)(void *argument), void *argument, void *stack, long flags,
                  void *storage, uint32_t *id)
{
        register long a0 __asm__("a0") = flags;
        register void *a1 __asm__("a1") = stack;
        register void *a2 __asm__("a2") = id;
        register void *a3 __asm__("a3") = storage;
        register void *a4 __asm__("a4") = id;
        register long a7 __asm__("a7") = SYS_clone;
        register void *t0 __asm__("t0") = (void *)run;
        register void *t1 __asm__("t1") = argument;

        __asm__ volatile("ecall\n\t"
                         "bnez a0, 1f\n\t"
                         "li s0, 0\n\t"
                         "mv a0, t1\n\t"
                         "jalr t0\n\t"
                         "li a7, %[exit]\n\t"
                         "ecall\n\t"
                         "ebreak\n"
                         "1:"
                         : "+r"(a0)
                         : "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a7), "r"(t0), "r"(t1),
                           [exit] "i"(SYS_exit)
                         : "memory");
        return a0;
}

#else
#error "how does a thread begin?"
#endif

/* clang-format on */
