/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Numbers in texts: of options, of attributes, of requests, of arguments of our programs, and in
 * the kernel's files. Not by libc's strtoul: another library may stand in front of it, and it takes
 * blanks, signs and prefixes unasked. All is inline, so that our programs can use it without the
 * library.
 *
 * NUM-1  A number has a digit or more of its base, small letters above 9. Nothing may stand in
 *        front: a reader that takes a sign or blanks looks at them itself.
 * NUM-2  number_scan and number_next end behind the last digit, however many there are;
 *        number_whole and number_bytes want the text to end there.
 * NUM-3  No number wraps. A number of more than 64 bits reads as UINT64_MAX in number_scan, as
 *        INT64_MAX in number_next, and is refused by number_whole and number_bytes.
 */
#ifndef KMEM_LANG_NUMBER_H
#define KMEM_LANG_NUMBER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum number_found { NUMBER_NONE, NUMBER_READ, NUMBER_TOO_LARGE };

static inline unsigned int number_digit(char character)
{
        if (character >= '0' && character <= '9')
                return (unsigned int)(character - '0');
        if (character >= 'a' && character <= 'f')
                return (unsigned int)(character - 'a') + 10;
        return UINT_MAX;
}

/* The number at *text, which moves behind it; @base is 2 to 16. 0 if there is none. */
static inline enum number_found number_scan(const char **text, unsigned int base, uint64_t *number)
{
        const char *first = *text;
        bool fits = true;

        for (*number = 0; number_digit(**text) < base; ++*text)
                fits = fits && !__builtin_mul_overflow(*number, base, number) &&
                       !__builtin_add_overflow(*number, number_digit(**text), number);
        if (*text == first)
                return NUMBER_NONE;
        if (fits)
                return NUMBER_READ;
        *number = UINT64_MAX;
        return NUMBER_TOO_LARGE;
}

/* The decimal number at *text, which moves behind it; -1 if there is none. */
static inline int64_t number_next(const char **text)
{
        uint64_t number;

        if (number_scan(text, 10, &number) == NUMBER_NONE)
                return -1;
        return number > INT64_MAX ? INT64_MAX : (int64_t)number;
}

/*
 * The range at *text, as "3" or "0-7" in the kernel's lists of CPUs and nodes; *text moves behind
 * it. False if there is none, it falls, or it does not end below @limit.
 */
static inline bool number_range(const char **text, int64_t limit, int64_t *first, int64_t *last)
{
        *first = number_next(text);
        *last = *first;
        if (**text == '-') {
                ++*text;
                *last = number_next(text);
        }
        return *first >= 0 && *last >= *first && *last < limit;
}

/* False if @text is anything but a decimal number. */
static inline bool number_whole(const char *text, uint64_t *number)
{
        return number_scan(&text, 10, number) == NUMBER_READ && !*text;
}

/* Decimal, and behind it a letter of KMGT, large or small, may stand for a power of 1024. */
static inline bool number_bytes(const char *text, uint64_t *bytes)
{
        static const char units[] = "KMGT";
        const char *unit;
        unsigned int shift;

        if (number_scan(&text, 10, bytes) != NUMBER_READ)
                return false;
        if (!*text)
                return true;
        unit = strchr(units, *text & ~0x20);
        if (!unit || !*unit || text[1])
                return false;
        shift = 10 * (unsigned int)(unit - units + 1);
        if (*bytes > UINT64_MAX >> shift)
                return false;
        *bytes <<= shift;
        return true;
}

#endif
