/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * text_print and its like: a small printf of our own, and texts that grow piece by piece (text.h).
 */
#include "lang/text.h"

#include "lang/number.h"

#include <string.h>

/* The room for a text: characters beyond it are counted and dropped. */
struct output {
        char *text;
        size_t room; /* without the zero byte */
        size_t length;
};

/* A conversion of a format. */
struct conversion {
        bool left;
        bool zeroes;
        uint64_t width;
        bool is_long; /* also size_t: both have the size of a pointer */
        char kind;
};

static void put(struct output *output, char character)
{
        if (output->length < output->room)
                output->text[output->length] = character;
        output->length++;
}

static void put_padding(struct output *output, char character, size_t count)
{
        while (count--)
                put(output, character);
}

/* A sign or 0x, which come in front of zeroes and behind blanks, and the rest. */
static void put_parts(struct output *output, const struct conversion *conversion,
                      const char *prefix, const char *text)
{
        size_t length = strlen(prefix) + strlen(text);
        size_t padding = conversion->width > length ? conversion->width - length : 0;

        if (!conversion->left && !conversion->zeroes)
                put_padding(output, ' ', padding);
        while (*prefix)
                put(output, *prefix++);
        if (!conversion->left && conversion->zeroes)
                put_padding(output, '0', padding);
        while (*text)
                put(output, *text++);
        if (conversion->left)
                put_padding(output, ' ', padding);
}

static void put_number(struct output *output, const struct conversion *conversion,
                       const char *prefix, uint64_t number, unsigned int base)
{
        char digits[TEXT_NUMBER_BYTES];
        char *digit = digits + sizeof(digits) - 1;

        *digit = '\0';
        do
                *--digit = "0123456789abcdef"[number % base];
        while (number /= base);
        put_parts(output, conversion, prefix, digit);
}

static const char *read_conversion(const char *format, struct conversion *conversion)
{
        *conversion = (struct conversion){0};
        for (;; format++)
                if (*format == '-')
                        conversion->left = true;
                else if (*format == '0')
                        conversion->zeroes = true;
                else
                        break;
        number_scan(&format, 10, &conversion->width);
        while (*format == 'l' || *format == 'z') {
                conversion->is_long = true;
                format++;
        }
        conversion->kind = *format;
        return format;
}

size_t text_print_list(char *text, size_t bytes, const char *format, va_list arguments)
{
        struct output output = {.text = text, .room = bytes ? bytes - 1 : 0};
        struct conversion conversion;
        char character[2] = "";
        int64_t number;

        for (; *format; format++) {
                if (*format != '%') {
                        put(&output, *format);
                        continue;
                }
                format = read_conversion(format + 1, &conversion);
                switch (conversion.kind) {
                case 's':
                        put_parts(&output, &conversion, "", va_arg(arguments, const char *));
                        break;
                case 'c':
                        character[0] = (char)va_arg(arguments, int);
                        put_parts(&output, &conversion, "", character);
                        break;
                case 'd':
                        number = conversion.is_long ? va_arg(arguments, long)
                                                    : va_arg(arguments, int);
                        put_number(&output, &conversion, number < 0 ? "-" : "",
                                   number < 0 ? -(uint64_t)number : (uint64_t)number, 10);
                        break;
                case 'u':
                case 'x':
                        put_number(&output, &conversion, "",
                                   conversion.is_long ? va_arg(arguments, unsigned long)
                                                      : va_arg(arguments, unsigned int),
                                   conversion.kind == 'x' ? 16 : 10);
                        break;
                case 'p':
                        put_number(&output, &conversion, "0x", (uintptr_t)va_arg(arguments, void *),
                                   16);
                        break;
                default: /* '%'; an unknown conversion shows itself */
                        put(&output, conversion.kind);
                }
        }
        if (bytes)
                text[min_of(output.length, output.room)] = '\0';
        return output.length;
}

size_t text_print(char *text, size_t bytes, const char *format, ...)
{
        va_list arguments;
        size_t length;

        va_start(arguments, format);
        length = text_print_list(text, bytes, format, arguments);
        va_end(arguments);
        return length;
}

void text_begin(struct text *text, char *start, size_t room)
{
        *text = (struct text){.start = start, .room = room};
        *start = '\0';
}

void text_add_list(struct text *text, const char *format, va_list arguments)
{
        size_t room = text->room - text->used;
        size_t length;

        if (text->full)
                return;
        length = text_print_list(text->start + text->used, room, format, arguments);
        if (length < room)
                text->used += length;
        else
                text->full = true;
        text->start[text->used] = '\0';
}

void text_add(struct text *text, const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        text_add_list(text, format, arguments);
        va_end(arguments);
}

void text_cut(struct text *text, size_t used)
{
        text->used = used;
        text->start[used] = '\0';
}

void text_move(struct text *text, char *start, size_t room)
{
        memcpy(start, text->start, text->used + 1);
        text->start = start;
        text->room = room;
        text->full = false;
}
