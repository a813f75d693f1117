/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Names put together without printf: the first call of that costs a process some 200 KiB, of libc's
 * code and of the tables that it reads, and a program that allocates nothing else would pay it.
 */
#ifndef KMEM_BASE_TEXT_H
#define KMEM_BASE_TEXT_H

#include <stdint.h>

#define TEXT_NUMBER_BYTES 21 /* UINT64_MAX and the end */

/* Writes @number in decimal, with zeroes in front up to @width digits; returns where the end is. */
static inline char *text_number(char *to, uint64_t number, unsigned int width)
{
        char digits[TEXT_NUMBER_BYTES];
        unsigned int count = 0;

        do
                digits[count++] = (char)('0' + number % 10);
        while (number /= 10);
        for (; width > count; width--)
                *to++ = '0';
        while (count)
                *to++ = digits[--count];
        *to = '\0';
        return to;
}

#endif
