/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Notes the functions of a library that a program enters. It is preloaded behind a library that was
 * compiled with -pg -mfentry, so that each of its functions calls __fentry__ first. When the
 * process exits, it adds their addresses, from the library's start and as hexadecimal numbers, to
 * the file named by ENTERED_FILE. It stands behind the library so that it is ended last and sees
 * the functions that end the library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { SPAN = 1 << 20 }; /* half of it below the first function that is entered, half above */

unsigned long entered_first;
unsigned char entered[SPAN];

/* The address behind the call lies in the function; everything is left as it was but the flags. */
__asm__(".globl __fentry__\n"
        ".type __fentry__, @function\n"
        "__fentry__:\n\t"
        "push %rax\n\t"
        "push %rdx\n\t"
        "movq 16(%rsp), %rax\n\t"
        "movq entered_first@GOTPCREL(%rip), %rdx\n\t"
        "cmpq $0, (%rdx)\n\t"
        "jne 1f\n\t"
        "movq %rax, (%rdx)\n"
        "1:\tsubq (%rdx), %rax\n\t"
        "addq $0x80000, %rax\n\t"
        "cmpq $0xfffff, %rax\n\t" /* of the program, which is compiled with the flags, too */
        "ja 2f\n\t"
        "movq entered@GOTPCREL(%rip), %rdx\n\t"
        "movb $1, (%rdx,%rax)\n"
        "2:\tpop %rdx\n\t"
        "pop %rax\n\t"
        "ret\n\t"
        ".size __fentry__, . - __fentry__\n");

__attribute__((destructor)) static void write_entered(void)
{
        static unsigned char seen[SPAN];
        const char *path = getenv("ENTERED_FILE");
        Dl_info info;
        FILE *file;

        if (!path || !entered_first || !dladdr((void *)entered_first, &info))
                return;
        __builtin_memcpy(seen, entered, sizeof(seen)); /* fopen enters further functions */
        file = fopen(path, "a");
        if (!file)
                return;
        for (size_t i = 0; i < SPAN; i++)
                if (seen[i])
                        fprintf(file, "%lx\n",
                                entered_first + i - SPAN / 2 - (unsigned long)info.dli_fbase);
        fclose(file);
}
