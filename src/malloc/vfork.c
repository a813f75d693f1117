/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * vfork in front of libc's. Its child runs on the parent's memory and thread block, and so on the
 * parent's area for restartable sequences, but the kernel has no registration of it: it would abort
 * none of the child's sequences, and leave the slot number in the area as the parent had it. Beside
 * other threads a child that allocates would then work on a slot that one of them is in. POSIX allows
 * that child little, but programs do more, and other allocators bear it. A child by clone(2) itself is
 * not seen here.
 *
 * The child overwrites what lies on the stack above the call. On x86-64 that is the return
 * address, which the parent keeps in a register.
 */
#include "base/system.h"
#include "percpu/slot.h"

#include <errno.h>
#include <sys/types.h>

/* Used: where the whole library is optimised at once, calls from assembly text are not seen. */
KMEM_HIDDEN __attribute__((used)) pid_t vfork_in_child(void);
KMEM_HIDDEN __attribute__((used)) pid_t vfork_in_parent(long result);

/* clang-format off */
#if defined(__x86_64__)
__asm__(".pushsection .text.vfork, \"ax\", @progbits\n"
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n\t"
        ".cfi_startproc\n\t"
        "movq (%rsp), %r9\n\t"
        "movl $58, %eax\n\t"
        "syscall\n\t"
        "testq %rax, %rax\n\t"
        "jz vfork_in_child\n\t"
        "movq %r9, (%rsp)\n\t"
        "movq %rax, %rdi\n\t"
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
        "mov x0, #0x4111\n\t"
        "mov x1, #0\n\t"
        "mov x2, #0\n\t"
        "mov x3, #0\n\t"
        "mov x4, #0\n\t"
        "mov x8, #220\n\t"
        "svc #0\n\t"
        "cbz x0, vfork_in_child\n\t"
        "b vfork_in_parent\n\t"
        ".cfi_endproc\n"
        ".size vfork, .-vfork\n"
        ".popsection");
#endif
/* clang-format on */

pid_t vfork_in_child(void)
{
        system_lend_process(true);
        slots_register_borrowed_area(true);
        return 0;
}

pid_t vfork_in_parent(long result)
{
        if (result < 0) {
                errno = (int)-result;
                return -1;
        }
        slots_register_borrowed_area(false);
        system_lend_process(false);
        return (pid_t)result;
}
