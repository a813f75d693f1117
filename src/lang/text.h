/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Texts put together without libc's printf. The first call of printf touches much code and many
 * tables, some 200 KiB in each process, and every call needs more than 2 KiB of stack. Also,
 * another library may stand in front of it, and allocate, while we hold locks.
 */
#ifndef KMEM_LANG_TEXT_H
#define KMEM_LANG_TEXT_H

#include "lang/compiler.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_NUMBER_BYTES 21 /* UINT64_MAX and the end */

/*
 * For texts that every process makes as it starts, so that only processes that print enter
 * text_print. Writes @number in decimal, with zeroes in front up to @width digits; returns the end.
 */
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

/*
 * snprintf for %s %c %d %u %x %p, with l or z in front of a number's letter, a width, and the flags
 * - and 0. %p of NULL is 0x0. Returns how long the text is, or would be if @bytes had room for it
 * and the zero byte.
 */
KMEM_HIDDEN size_t text_print(char *text, size_t bytes, const char *format, ...) KMEM_PRINTF(3, 4);
KMEM_HIDDEN size_t text_print_list(char *text, size_t bytes, const char *format, va_list arguments)
        __attribute__((format(printf, 3, 0)));

/*
 * A text in the making, in room that its maker gives. text_print cuts a text where the room ends;
 * here
 *
 * TEXT-1  a piece, which is the text of a call, is added whole or not at all;
 * TEXT-2  a piece that had no room makes the text full, and a full text takes no more: it has no
 *         gaps;
 * TEXT-3  the text ends in a zero byte at all times.
 */
struct text {
        char *start;
        size_t room; /* with the zero byte: 1 or more */
        size_t used;
        bool full;
};

KMEM_HIDDEN void text_begin(struct text *text, char *start, size_t room);
KMEM_HIDDEN void text_add(struct text *text, const char *format, ...) KMEM_PRINTF(2, 3);
KMEM_HIDDEN void text_add_list(struct text *text, const char *format, va_list arguments)
        __attribute__((format(printf, 2, 0)));
/* Takes the end back to @used; a full text stays full. */
KMEM_HIDDEN void text_cut(struct text *text, size_t used);
/* Moves the text to larger room, where it is not full. */
KMEM_HIDDEN void text_move(struct text *text, char *start, size_t room);

#endif
