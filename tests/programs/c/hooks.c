/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A library in front of functions of libc, as tracing and sandbox shims are: before a call goes on
 * to libc it allocates and frees. The test writes names.h, with a line HOOK(name, version) for each
 * function, and names in HOOKED the function that allocates, or * for all.
 *
 * A hook does not know its function's arguments: it saves all registers that may hold some, and
 * jumps. A call from within a hook is passed on as it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

static _Thread_local int inside __attribute__((tls_model("initial-exec")));

extern char **environ;

/* Without a function that might be hooked. */
static int is_same(const char *left, const char *right)
{
        while (*left && *left == *right) {
                left++;
                right++;
        }
        return *left == *right;
}

static int is_hooked(const char *name)
{
        for (char **entry = environ; entry && *entry; entry++) {
                const char *prefix = "HOOKED=";
                const char *at = *entry;

                while (*prefix && *at == *prefix) {
                        at++;
                        prefix++;
                }
                if (!*prefix)
                        return is_same(at, "*") || is_same(at, name);
        }
        return 0;
}

__attribute__((used)) static void *hook(const char *name, const char *version, void **real)
{
        if (!inside) {
                inside = 1;
                if (is_hooked(name)) {
                        unsigned char *volatile block = malloc(200);
                        void *volatile large = malloc(40000);

                        if (!block || !large)
                                __builtin_trap();
                        block[0] = block[199] = 1;
                        free(block);
                        free(large);
                }
                inside = 0;
        }
        if (!*real)
                *real = dlvsym(RTLD_NEXT, name, version);
        return *real;
}

/* Nine words, the return address and 128 bytes: 16 divides that, as calls need it. */
#define HOOK(name, version)                                                                        \
        static void *real_##name;                                                                  \
        __asm__(".pushsection .rodata\n"                                                           \
                "1: .string \"" #name "\"\n"                                                       \
                "2: .string \"" version "\"\n"                                                     \
                ".popsection\n"                                                                    \
                ".globl " #name "\n.type " #name ", @function\n" #name ":\n\t"                     \
                "push %rdi\n\tpush %rsi\n\tpush %rdx\n\tpush %rcx\n\tpush %r8\n\t"                 \
                "push %r9\n\tpush %rax\n\tpush %r10\n\tpush %rbx\n\t"                              \
                "sub $128, %rsp\n\t"                                                               \
                "movups %xmm0, (%rsp)\n\tmovups %xmm1, 16(%rsp)\n\t"                               \
                "movups %xmm2, 32(%rsp)\n\tmovups %xmm3, 48(%rsp)\n\t"                             \
                "movups %xmm4, 64(%rsp)\n\tmovups %xmm5, 80(%rsp)\n\t"                             \
                "movups %xmm6, 96(%rsp)\n\tmovups %xmm7, 112(%rsp)\n\t"                            \
                "lea 1b(%rip), %rdi\n\tlea 2b(%rip), %rsi\n\t"                                     \
                "lea real_" #name "(%rip), %rdx\n\t"                                               \
                "call hook\n\t"                                                                    \
                "mov %rax, %r11\n\t"                                                               \
                "movups (%rsp), %xmm0\n\tmovups 16(%rsp), %xmm1\n\t"                               \
                "movups 32(%rsp), %xmm2\n\tmovups 48(%rsp), %xmm3\n\t"                             \
                "movups 64(%rsp), %xmm4\n\tmovups 80(%rsp), %xmm5\n\t"                             \
                "movups 96(%rsp), %xmm6\n\tmovups 112(%rsp), %xmm7\n\t"                            \
                "add $128, %rsp\n\t"                                                               \
                "pop %rbx\n\tpop %r10\n\tpop %rax\n\tpop %r9\n\tpop %r8\n\t"                       \
                "pop %rcx\n\tpop %rdx\n\tpop %rsi\n\tpop %rdi\n\t"                                 \
                "jmp *%r11\n\t"                                                                    \
                ".size " #name ", .-" #name);                                                      \
        __attribute__((used)) static void **const keep_##name = &real_##name;

#include "names.h"
