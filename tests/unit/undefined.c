/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Ends with 0, but valgrind must say otherwise: it decides by a byte that nobody has written.
 */
#include <stdio.h>

int main(void)
{
        char bytes[64];
        char *unknown = bytes;

        __asm__ volatile(""
                         : "+r"(unknown)
                         :
                         : "memory"); /* the compiler must take them for written */
        if (*unknown == 1)
                puts("one");
        return 0;
}
