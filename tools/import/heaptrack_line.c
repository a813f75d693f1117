/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A line of a data file of heaptrack, in its forms 0 to 3. Numbers are hexadecimal, and lines refer
 * to earlier lines by their number among those of their letter, from 1 on:
 *
 *     v 10400 3                    versions of heaptrack and of the form; the first line
 *     s 4 main                     a text; its length since form 3
 *     i 40113a 1 2 3 1f            place in the code: address, module, function, file, line
 *     t 2 1                        a stack: its innermost place, and the stack that called it
 *     a 64 2                       a kind of allocation: bytes and stack
 *     + 0                          allocation of a kind, counted from 0
 *     - 0                          free of an object of that kind
 *     c 7                          milliseconds since the start
 *
 * What `heaptrack --raw` writes, and form 0, has addresses instead of kinds:
 *
 *     t 40113a 1                   a stack: its innermost address
 *     + 64 2 55d0                  bytes, stack and address
 *     - 55d0
 *
 * A line that cannot be read has its number too, so that later lines refer to what they mean.
 *
 * A kind does not tell which of its objects was freed. The youngest is taken, so objects of a kind
 * are a stack: each has the address that its kind and depth make, and nothing is kept for it.
 */
#include "tools/import/import.h"

#include "lang/number.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORM_MOST = 3, ROOM_FIRST = 1024, DEPTH_BITS = 36, KIND_BITS = 26 };
#define MILLISECOND_NS UINT64_C(1000000)
static_assert(DEPTH_BITS + KIND_BITS < 64, "the address of every kind and depth has 64 bits");

/* Rows by number; a row is of two numbers. */
struct rows {
        struct row {
                uint64_t first;
                uint64_t second;
        } * row;
        uint32_t count;
        uint32_t room;
};

struct heaptrack {
        uint64_t form;
        struct texts names; /* of texts and places, each once */
        struct rows texts;  /* number in `names`, from 1 on */
        struct rows places; /* number of a place's text in `names` */
        struct rows stacks; /* place, or address of raw files; the calling stack */
        struct rows kinds;  /* bytes; stack */
        struct rows depths; /* of each kind: objects that live; 1 if its line cannot be read */
        bool raw;
};

static bool rows_add(struct rows *rows, uint64_t first, uint64_t second)
{
        uint32_t room = rows->room ? 2 * rows->room : ROOM_FIRST;
        struct row *more;

        if (rows->count == rows->room) {
                if (room > 1U << KIND_BITS)
                        return false;
                more = realloc(rows->row, room * sizeof(*more));
                if (!more)
                        return false;
                rows->row = more;
                rows->room = room;
        }
        rows->row[rows->count++] = (struct row){first, second};
        return true;
}

/* The row of a number that counts from 1 on; NULL if there is none. */
static struct row *row_of(const struct rows *rows, uint64_t number)
{
        return number - 1 < rows->count ? &rows->row[number - 1] : NULL;
}

/*
 * Reads up to @most numbers with a blank before each; how many there were. None if one of them ends
 * in something else.
 */
static unsigned int read_numbers(const char *text, uint64_t *number, unsigned int most)
{
        unsigned int count = 0;

        while (count < most && *text == ' ') {
                text++;
                if (number_scan(&text, 16, &number[count]) != NUMBER_READ)
                        break;
                count++;
        }
        return *text && *text != ' ' ? 0 : count;
}

static enum line_kind kept(struct import *import, bool done)
{
        import->others++;
        return done ? LINE_TAKEN : line_bad(import, "heaptrack: no memory for more lines");
}

/* The number of a text among the names, from 1 on; 0 without memory. */
static uint32_t name_number(struct heaptrack *heaptrack, const char *text)
{
        struct text *known = texts_find(&heaptrack->names, text, strlen(text));

        return known ? (uint32_t)(known - heaptrack->names.text) + 1 : 0;
}

static const char *name_of(const struct heaptrack *heaptrack, uint64_t number)
{
        const struct row *text = row_of(&heaptrack->texts, number);

        if (!text || !text->first)
                return NULL;
        return texts_name(&heaptrack->names, &heaptrack->names.text[text->first - 1]);
}

static enum line_kind text_line(struct import *import, struct heaptrack *heaptrack,
                                const char *text)
{
        uint64_t length;

        text += *text == ' ';
        if (heaptrack->form >= 3) {
                if (number_scan(&text, 16, &length) != NUMBER_READ || *text != ' ')
                        return line_bad(import, "heaptrack: expected a text and its length");
                text++;
        }
        return kept(import, rows_add(&heaptrack->texts, name_number(heaptrack, text), 0));
}

/* "function (file:line)", as far as the file knows them, or "module+0xaddress". */
static enum line_kind place_line(struct import *import, struct heaptrack *heaptrack,
                                 const char *text)
{
        uint64_t number[5] = {0};
        unsigned int count = read_numbers(text, number, 5);
        const char *module = count > 1 ? name_of(heaptrack, number[1]) : NULL;
        const char *function = count > 2 ? name_of(heaptrack, number[2]) : NULL;
        const char *file = count > 3 ? name_of(heaptrack, number[3]) : NULL;
        char name[TEXT_BYTES_MOST + 1];

        if (!count)
                return line_bad(import, "heaptrack: expected an address of code");
        if (function && file)
                snprintf(name, sizeof(name), "%s (%s:%u)", function, file, (unsigned)number[4]);
        else if (function)
                snprintf(name, sizeof(name), "%s", function);
        else
                snprintf(name, sizeof(name), "%s+0x%llx", module ? module : "?",
                         (unsigned long long)number[0]);
        return kept(import, rows_add(&heaptrack->places, name_number(heaptrack, name), 0));
}

/* The site's text of a stack; @room has space for an address. */
static const char *site_of(const struct heaptrack *heaptrack, uint64_t stack, char *room,
                           size_t bytes)
{
        const struct row *at = row_of(&heaptrack->stacks, stack);
        const struct row *place;

        if (!at)
                return "";
        if (heaptrack->raw) {
                snprintf(room, bytes, "0x%llx", (unsigned long long)at->first);
                return room;
        }
        place = row_of(&heaptrack->places, at->first);
        if (!place || !place->first)
                return "";
        return texts_name(&heaptrack->names, &heaptrack->names.text[place->first - 1]);
}

static void add(struct import *import, struct heaptrack *heaptrack, uint8_t operation,
                uint64_t address, uint64_t bytes, uint64_t stack)
{
        struct lives_event event = {
                .operation = operation,
                .address = address,
                .requested = bytes,
                .cache = operation == TRACE_ALLOC ? TRACE_CACHE_KMALLOC : TRACE_CACHE_UNKNOWN,
        };
        char room[32];
        const char *site =
                operation == TRACE_ALLOC ? site_of(heaptrack, stack, room, sizeof(room)) : "";

        if (address)
                import_event(import, &event, site, strlen(site));
        else
                import->failed++;
}

static uint64_t address_of(uint64_t kind, uint64_t depth)
{
        return (kind + 1) << DEPTH_BITS | depth;
}

static enum line_kind event_line(struct import *import, struct heaptrack *heaptrack, bool free,
                                 const char *text)
{
        uint64_t number[3];
        unsigned int count = read_numbers(text, number, 3);
        struct row *kind;
        struct row *depth;

        if (!free && count == 3) {
                heaptrack->raw = true;
                add(import, heaptrack, TRACE_ALLOC, number[2], number[0], number[1]);
                return LINE_TAKEN;
        }
        if (count != 1)
                return line_bad(import, "heaptrack: expected a number behind + or -");
        if (free && heaptrack->raw) {
                add(import, heaptrack, TRACE_FREE, number[0], 0, 0);
                return LINE_TAKEN;
        }
        kind = row_of(&heaptrack->kinds, number[0] + 1);
        depth = row_of(&heaptrack->depths, number[0] + 1);
        if (!kind || !depth)
                return line_bad(import, "heaptrack: a kind of allocation below %u expected",
                                heaptrack->kinds.count);
        if (depth->second)
                return line_bad(import,
                                "heaptrack: a kind of allocation whose line cannot be read");
        if (free && !depth->first)
                return line_bad(import, "heaptrack: a free of a kind of which no object lives");
        if (free)
                add(import, heaptrack, TRACE_FREE, address_of(number[0], depth->first--), 0, 0);
        else
                add(import, heaptrack, TRACE_ALLOC, address_of(number[0], ++depth->first),
                    kind->first, kind->second);
        return LINE_TAKEN;
}

static enum line_kind pair_line(struct import *import, struct rows *rows, const char *text)
{
        uint64_t number[2] = {0};

        if (read_numbers(text, number, 2) != 2)
                return line_bad(import, "heaptrack: expected two numbers");
        return kept(import, rows_add(rows, number[0], number[1]));
}

static enum line_kind kind_line(struct import *import, struct heaptrack *heaptrack,
                                const char *text)
{
        enum line_kind done = pair_line(import, &heaptrack->kinds, text);

        if (done == LINE_TAKEN && !rows_add(&heaptrack->depths, 0, 0)) {
                heaptrack->kinds.count--;
                return line_bad(import, "heaptrack: no memory for more lines");
        }
        return done;
}

static enum line_kind time_line(struct import *import, const char *text)
{
        uint64_t time;

        if (read_numbers(text, &time, 1) != 1 || time > UINT64_MAX / 2 / MILLISECOND_NS)
                return line_bad(import, "heaptrack: expected a time in milliseconds");
        import->now = time * MILLISECOND_NS;
        import->others++;
        return LINE_TAKEN;
}

/* The first line: "v 10400 3". Before form 1 there was one number, and 10200 alone is form 1. */
static enum line_kind version_line(struct import *import, const char *text)
{
        uint64_t number[2] = {0};
        unsigned int count = read_numbers(text, number, 2);

        if (!count)
                return LINE_NOT_OURS;
        if (count == 1)
                number[1] = number[0] == 0x10200;
        if (number[1] > FORM_MOST)
                return line_bad(import, "heaptrack: form %llu of its files; expected %d at most",
                                (unsigned long long)number[1], FORM_MOST);
        import->heaptrack = calloc(1, sizeof(*import->heaptrack));
        if (!import->heaptrack)
                return line_bad(import, "heaptrack: no memory");
        import->heaptrack->form = number[1];
        import->heaptrack->raw = number[1] == 0;
        import->others++;
        return LINE_TAKEN;
}

void heaptrack_bad_line(struct import *import, char letter)
{
        struct heaptrack *heaptrack = import->heaptrack;

        if (!heaptrack)
                return;
        if (letter == 's')
                rows_add(&heaptrack->texts, 0, 0);
        else if (letter == 'i')
                rows_add(&heaptrack->places, 0, 0);
        else if (letter == 't')
                rows_add(&heaptrack->stacks, 0, 0);
        else if (letter == 'a' && rows_add(&heaptrack->kinds, 0, 0) &&
                 !rows_add(&heaptrack->depths, 0, 1))
                heaptrack->kinds.count--;
}

static enum line_kind take_line(struct import *import, struct heaptrack *heaptrack,
                                const char *line)
{
        switch (*line) {
        case 's':
                return text_line(import, heaptrack, line + 1);
        case 'i':
                return place_line(import, heaptrack, line + 1);
        case 't':
                return pair_line(import, &heaptrack->stacks, line + 1);
        case 'a':
                return kind_line(import, heaptrack, line + 1);
        case '+':
        case '-':
                return event_line(import, heaptrack, *line == '-', line + 1);
        case 'c':
                return time_line(import, line + 1);
        case 'x': /* only raw files name the program by it */
                heaptrack->raw = true;
                import->others++;
                return LINE_TAKEN;
        case '\0':
        case '#':
        case 'A': /* the program ran already */
        case 'I': /* pages of the machine */
        case 'R': /* resident pages */
        case 'S': /* leaks that are none */
        case 'X': /* the program's command line */
        case 'm': /* mappings of raw files */
                import->others++;
                return LINE_TAKEN;
        default:
                return line_bad(import, "heaptrack: no line begins with \"%.20s\"", line);
        }
}

enum line_kind heaptrack_line(struct import *import, const char *line)
{
        enum line_kind kind;

        if (!import->heaptrack)
                return import->lines == 1 && *line == 'v' ? version_line(import, line + 1)
                                                          : LINE_NOT_OURS;
        kind = take_line(import, import->heaptrack, line);
        if (kind == LINE_BAD)
                heaptrack_bad_line(import, *line);
        return kind;
}

void heaptrack_free(struct heaptrack *heaptrack)
{
        if (!heaptrack)
                return;
        texts_free(&heaptrack->names);
        free(heaptrack->texts.row);
        free(heaptrack->places.row);
        free(heaptrack->stacks.row);
        free(heaptrack->kinds.row);
        free(heaptrack->depths.row);
        free(heaptrack);
}
