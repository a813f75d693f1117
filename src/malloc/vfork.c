/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * vfork in front of libc's. Its child runs on the parent's memory and thread block, and so on the
 * parent's area for restartable sequences (percpu/area.c). POSIX allows that child little, but
 * programs do more, and other allocators bear it. A child by clone(2) itself is not seen here.
 *
 * The child overwrites the stack above the call. On x86-64 that is the return address. The parent
 * keeps it in a register, and the result of vfork_prepare in another: the system call changes
 * neither.
 */
#include "api/owner.h"

#include <errno.h>
#include <sys/types.h>

/*
 * Used: if the whole library is optimised at once, the compiler does not see calls from assembly
 * text.
 */
KMEM_HIDDEN __attribute__((used)) int vfork_in_front(void);
KMEM_HIDDEN __attribute__((used)) pid_t vfork_in_child(void);
KMEM_HIDDEN __attribute__((used)) pid_t vfork_in_parent(long result, int lent);

/* clang-format off */
#if defined(__x86_64__)
__asm__(".pushsection .text.vfork, \"ax\", @progbits\n"
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n\t"
        ".cfi_startproc\n\t"
        "subq $8, %rsp\n\t"
        ".cfi_adjust_cfa_offset 8\n\t"
        "call vfork_in_front\n\t"
        "addq $8, %rsp\n\t"
        ".cfi_adjust_cfa_offset -8\n\t"
        "movl %eax, %r8d\n\t"
        "movq (%rsp), %r9\n\t"
        "movl $58, %eax\n\t"
        "syscall\n\t"
        "testq %rax, %rax\n\t"
        "jz vfork_in_child\n\t"
        "movq %r9, (%rsp)\n\t"
        "movq %rax, %rdi\n\t"
        "movl %r8d, %esi\n\t"
        "jmp vfork_in_parent\n\t"
        ".cfi_endproc\n"
        ".size vfork, .-vfork\n"
        ".popsection");
#elif defined(__aarch64__)
/* clone(CLONE_VM | CLONE_VFORK | SIGCHLD), on the same stack */
__asm__(".pushsection .text.vfork, \"ax\", @progbits\n"
        ".globl vfork\n"
        ".type vfork, %function\n"
        "vfork:\n\t"
        ".cfi_startproc\n\t"
        "str x30, [sp, #-16]!\n\t"
        ".cfi_adjust_cfa_offset 16\n\t"
        ".cfi_rel_offset x30, 0\n\t"
        "bl vfork_in_front\n\t"
        "ldr x30, [sp], #16\n\t"
        ".cfi_adjust_cfa_offset -16\n\t"
        ".cfi_restore x30\n\t"
        "mov w9, w0\n\t"
        "mov x0, #0x4111\n\t"
        "mov x1, #0\n\t"
        "mov x2, #0\n\t"
        "mov x3, #0\n\t"
        "mov x4, #0\n\t"
        "mov x8, #220\n\t"
        "svc #0\n\t"
        "cbz x0, vfork_in_child\n\t"
        "mov w1, w9\n\t"
        "b vfork_in_parent\n\t"
        ".cfi_endproc\n"
        ".size vfork, .-vfork\n"
        ".popsection");
#elif defined(__riscv)
/* As on AArch64. */
__asm__(".pushsection .text.vfork, \"ax\", @progbits\n"
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n\t"
        ".cfi_startproc\n\t"
        "addi sp, sp, -16\n\t"
        ".cfi_adjust_cfa_offset 16\n\t"
        "sd ra, 8(sp)\n\t"
        ".cfi_rel_offset ra, 8\n\t"
        "call vfork_in_front\n\t"
        "ld ra, 8(sp)\n\t"
        "addi sp, sp, 16\n\t"
        ".cfi_adjust_cfa_offset -16\n\t"
        ".cfi_restore ra\n\t"
        "mv t0, a0\n\t"
        "li a0, 0x4111\n\t"
        "li a1, 0\n\t"
        "li a2, 0\n\t"
        "li a3, 0\n\t"
        "li a4, 0\n\t"
        "li a7, 220\n\t"
        "ecall\n\t"
        "mv a1, t0\n\t"
        "bnez a0, 1f\n\t"
        "tail vfork_in_child\n"
        "1:\ttail vfork_in_parent\n\t"
        ".cfi_endproc\n"
        ".size vfork, .-vfork\n"
        ".popsection");
#endif
/* clang-format on */

int vfork_in_front(void)
{
        return (int)bound.calls->vfork_prepare();
}

pid_t vfork_in_child(void)
{
        bound.calls->vfork_begin_child();
        return 0;
}

pid_t vfork_in_parent(long result, int lent)
{
        bound.calls->vfork_end((enum area_lent)lent, result >= 0);
        if (result < 0) {
                errno = (int)-result;
                return -1;
        }
        return (pid_t)result;
}
