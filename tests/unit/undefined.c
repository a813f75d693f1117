/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Ends with 0, but valgrind must say otherwise: it decides by a byte that nobody has written.
 */
#include <stdio.h>

int main(void)
{
        char byte[1];

        __asm__ volatile("" : : "r"(byte) : "memory"); /* the compiler must take it for written */
        if (byte[0] == 1)
                puts("one");
        return 0;
}
