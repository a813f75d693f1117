/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A line about a program's heap: of glibc's mtrace, or of ltrace with malloc and its like.
 *
 *     @ ./a.out:(main+0x1a)[0x40113a] + 0x55d0 0x64           allocation of 0x64 bytes
 *     @ ./a.out:(main+0x1a)[0x40113a] - 0x55d0                free
 *     @ ./a.out:[0x40113a] < 0x55d0, > 0x55f0 0x80            a moved block's old and new address
 *     [pid 12] 1700000000.123456 malloc(100)                 = 0x55d0
 *     [pid 12] 12:00:01.5 free(0x55d0 <unfinished ...>
 *     12:00:01 free(0x55d0)                                   of -t, whole seconds
 *       0.000123 free(0x55d0)                                 of -r, the time since the line before
 *
 * A log of mtrace, and of ltrace without -ttt, -tt, -t or -r, has no times: each event is then a
 * microsecond after the one before.
 */
#include "tools/import/import.h"

#include "lang/number.h"

#include <stdio.h>
#include <string.h>

enum { ARGUMENTS = 3, STEP_NS = 1000 };
/* A time of ltrace -r is a pause, and so is lower than any of -ttt. */
#define EPOCH_LEAST (100000000 * SECOND_NS)

/* Meanings of arguments, by number from 1 on; 0: there is none. */
static const struct call {
        const char *name;
        uint8_t bytes;   /* asked for */
        uint8_t times;   /* so many of them */
        uint8_t release; /* address that the call frees */
} calls[] = {
        {"malloc", 1, 0, 0},
        {"free", 0, 0, 1},
        {"calloc", 2, 1, 0},
        {"realloc", 2, 0, 1},
        {"reallocarray", 3, 2, 1},
        {"memalign", 2, 0, 0},
        {"aligned_alloc", 2, 0, 0},
        {"valloc", 1, 0, 0},
        {"cfree", 0, 0, 1},
        {"operator new", 1, 0, 0},
        {"operator new[]", 1, 0, 0},
        {"operator delete", 0, 0, 1},
        {"operator delete[]", 0, 0, 1},
        {"_Znwm", 1, 0, 0},
        {"_Znam", 1, 0, 0},
        {"_ZdlPv", 0, 0, 1},
        {"_ZdaPv", 0, 0, 1},
        {"_ZdlPvm", 0, 0, 1},
        {"_ZdaPvm", 0, 0, 1},
};

static const struct call *call_of(const char *name, size_t length)
{
        for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
                if (strncmp(name, calls[i].name, length) == 0 && !calls[i].name[length])
                        return &calls[i];
        return NULL;
}

/* A number as C writes it; false if there is none or it has more than 64 bits. */
static bool read_number(const char **text, uint64_t *number)
{
        if ((*text)[0] == '0' && (*text)[1] == 'x') {
                *text += 2;
                return number_scan(text, 16, number) == NUMBER_READ;
        }
        return number_scan(text, 10, number) == NUMBER_READ;
}

/* An address, "0", "nil" or "NULL" of ltrace, "(nil)" of mtrace. */
static bool read_pointer(const char **text, uint64_t *address)
{
        static const char *const nothing[] = {"nil", "NULL", "(nil)"};

        for (size_t i = 0; i < sizeof(nothing) / sizeof(*nothing); i++) {
                size_t length = strlen(nothing[i]);

                if (strncmp(*text, nothing[i], length) != 0)
                        continue;
                *text += length;
                *address = 0;
                return true;
        }
        return read_number(text, address);
}

/* The last "] " of the text, or NULL: the name of a program may have one too. */
static const char *last_bracket(const char *text)
{
        const char *last = NULL;

        while ((text = strstr(text, "] ")))
                last = text++;
        return last;
}

static void add(struct import *import, const struct open_call *call, uint8_t operation,
                uint64_t address, const char *site, size_t site_bytes)
{
        bool gives = operation == TRACE_ALLOC;
        struct lives_event event = {
                .operation = operation,
                .address = address,
                .cpu = call->cpu,
                .thread = call->thread,
                .requested = gives ? call->bytes : 0,
                .cache = gives ? TRACE_CACHE_KMALLOC : TRACE_CACHE_UNKNOWN,
        };

        if (address)
                import_event(import, &event, site, site_bytes);
        else
                import->failed++;
}

static void step(struct import *import)
{
        import->made_times = true;
        import->now += STEP_NS;
}

/* A line of mtrace behind "@ ". */
static enum line_kind mtrace_line(struct import *import, const char *text)
{
        const char *site = text;
        const char *operation = last_bracket(text);
        struct open_call call = {0};
        uint64_t address;
        char sign;

        if (!operation || !operation[2])
                return line_bad(import, "mtrace: expected a place in the code and + - < > or !");
        operation += 2;
        sign = *operation;
        text = operation + 1 + (operation[1] == ' ');
        if (sign == '!') {
                import->failed++;
                return LINE_TAKEN;
        }
        if (!strchr("+-<>", sign) || !read_pointer(&text, &address))
                return line_bad(import, "mtrace: expected + - < or > and an address");
        if (sign == '+' || sign == '>') {
                text += strspn(text, " ");
                if (!read_number(&text, &call.bytes))
                        return line_bad(import, "mtrace: expected a number of bytes");
        }
        step(import);
        add(import, &call, sign == '+' || sign == '>' ? TRACE_ALLOC : TRACE_FREE, address, site,
            (size_t)(operation - 1 - site));
        return LINE_TAKEN;
}

/* "[pid 12] " or "12 ". */
static const char *read_pid(const char *text, int32_t *thread)
{
        const char *at = text;
        bool bracket = strncmp(at, "[pid ", 5) == 0;
        uint64_t number;

        *thread = 0;
        at += bracket ? 5 : 0;
        if (number_scan(&at, 10, &number) != NUMBER_READ || number > INT32_MAX)
                return text;
        if (bracket ? *at != ']' : *at != ' ')
                return text;
        *thread = (int32_t)number;
        return at + 1 + strspn(at + 1, " ");
}

/*
 * Seconds with a fraction or a time of day, with blanks around them; without either the text's
 * beginning, and *timed is false.
 */
static const char *read_stamp(struct import *import, const char *text, bool *timed)
{
        const char *at = text + strspn(text, " ");
        uint64_t parts[3];
        uint64_t fraction = 0;
        unsigned int count = 0;
        uint64_t time = 0;
        long digits = 0;

        *timed = false;
        do {
                if (number_scan(&at, 10, &parts[count]) != NUMBER_READ ||
                    parts[count] > UINT64_C(4000000000))
                        return text;
                time = 60 * time + parts[count];
                count++;
        } while (count < 3 && *at == ':' && at++);
        if (count == 2 || (*at != '.' && (count == 1 || *at != ' ')))
                return text;
        if (*at == '.') {
                digits = (long)strspn(++at, "0123456789");
                if (digits > 9 || number_scan(&at, 10, &fraction) != NUMBER_READ || *at != ' ')
                        return text;
        }
        for (; digits < 9; digits++)
                fraction *= 10;
        time = time * SECOND_NS + fraction;
        if (count == 3)
                time = import_time_of_day(import, time);
        import->now = count == 1 && time < EPOCH_LEAST ? import->now + time : time;
        *timed = true;
        return at + strspn(at, " ");
}

static struct open_call *open_call_of(struct import *import, int32_t thread)
{
        return &import->calls[(uint32_t)thread % CALLS_OPEN];
}

static void keep_open(struct import *import, const struct open_call *begun)
{
        struct open_call *call = open_call_of(import, begun->thread);

        import->reallocs -= call->open && call->released;
        import->reallocs += begun->released != 0;
        *call = *begun;
}

/*
 * A call of realloc that has not ended in the log has freed its block, if that is handed out again:
 * it was free before that moment, and what the call frees at its end is another's.
 */
static void end_of_moved(struct import *import, uint64_t address)
{
        for (size_t i = 0; i < CALLS_OPEN && import->reallocs; i++) {
                struct open_call *call = &import->calls[i];

                if (!call->open || call->released != address)
                        continue;
                add(import, call, TRACE_FREE, address, "", 0);
                call->released = 0;
                import->reallocs--;
        }
}

void import_call(struct import *import, const struct open_call *call, uint64_t result)
{
        if (result)
                end_of_moved(import, result);
        /* A failed realloc frees nothing; realloc(p, 0) returns NULL and does. */
        if (call->released && (result || !call->bytes))
                add(import, call, TRACE_FREE, call->released, "", 0);
        else if (!call->released && !call->bytes && !result)
                import->failed++;
        if (result)
                add(import, call, TRACE_ALLOC, result, "", 0);
        else if (call->bytes)
                import->failed++;
}

/* The result behind a call's ")": "= 0x55d0", "= <void>". */
static bool read_result(const char *text, uint64_t *result)
{
        const char *equals = strrchr(text, '=');

        *result = 0;
        if (!equals)
                return false;
        equals += 1 + strspn(equals + 1, " ");
        return *equals == '<' || *equals == '\0' || read_pointer(&equals, result);
}

/* "<... malloc resumed> ) = 0x55d0" */
static enum line_kind resumed_line(struct import *import, const char *text, int32_t thread)
{
        const char *name = text + strlen("<... ");
        struct open_call *call = open_call_of(import, thread);
        const char *blank = strstr(name, " resumed>");
        uint64_t result;

        if (!blank || !call_of(name, (size_t)(blank - name))) {
                import->others++;
                return LINE_TAKEN;
        }
        if (!call->open || call->thread != thread) {
                import->hidden++;
                return LINE_TAKEN;
        }
        if (!read_result(blank, &result))
                return line_bad(import, "ltrace: expected the result of a call");
        call->open = false;
        import->reallocs -= call->released != 0;
        import_call(import, call, result);
        return LINE_TAKEN;
}

static bool read_arguments(const char *text, uint64_t argument[ARGUMENTS + 1], unsigned int *count)
{
        *count = 0;
        while (*count < ARGUMENTS) {
                text += strspn(text, " ");
                if (!read_pointer(&text, &argument[++*count]))
                        return false;
                if (*text != ',')
                        return true;
                text++;
        }
        return true;
}

/* "malloc(100) = 0x55d0"; @open is its bracket. */
static enum line_kind call_line(struct import *import, const struct call *call, const char *open,
                                int32_t thread, bool timed)
{
        uint64_t argument[ARGUMENTS + 1] = {0};
        struct open_call begun = {.thread = thread};
        unsigned int count;
        uint64_t result;

        if (!read_arguments(open + 1, argument, &count) || count < call->bytes ||
            count < call->times || count < call->release)
                return line_bad(import, "ltrace: %s: expected numbers as arguments", call->name);
        if (!timed)
                step(import);
        begun.bytes = argument[call->bytes];
        if (call->times &&
            __builtin_mul_overflow(begun.bytes, argument[call->times], &begun.bytes)) {
                import->failed++;
                return LINE_TAKEN;
        }
        begun.released = argument[call->release];
        if (strstr(open, "<unfinished ...>")) {
                /*
                 * A free ends before another thread can get the block, so it counts where it
                 * begins.
                 */
                begun.open = call->bytes != 0;
                if (begun.open)
                        keep_open(import, &begun);
                else
                        import_call(import, &begun, 0);
                return LINE_TAKEN;
        }
        if (strstr(open, "<no return ...>")) {
                import->hidden++;
                return LINE_TAKEN;
        }
        if (!read_result(open, &result))
                return line_bad(import, "ltrace: %s: expected \" = \" and a result", call->name);
        import_call(import, &begun, call->bytes ? result : 0);
        return LINE_TAKEN;
}

static enum line_kind ltrace_line(struct import *import, const char *line)
{
        int32_t thread;
        bool timed;
        const char *text = read_pid(line, &thread);
        const char *open;
        const char *name;
        const char *arrow;
        const struct call *call;
        const char *prefix = text;

        text = read_stamp(import, text, &timed);
        if (strncmp(text, "<... ", 5) == 0)
                return resumed_line(import, text, thread);
        if (strncmp(text, "+++ ", 4) == 0 || strncmp(text, "--- ", 4) == 0) {
                import->others++;
                return LINE_TAKEN;
        }
        open = strchr(text, '(');
        if (!open)
                return LINE_NOT_OURS;
        arrow = strstr(text, "->");
        name = arrow && arrow < open ? arrow + 2 : text;
        /* "operator new(unsigned long)(100, ...)", as ltrace -C has it. */
        if (strncmp(name, "operator ", 9) == 0 && strchr(open, ')') &&
            strchr(open, ')')[1] == '(') {
                call = call_of(name, (size_t)(open - name));
                open = strchr(open, ')') + 1;
        } else {
                call = call_of(name, (size_t)(open - name));
        }
        if (call)
                return call_line(import, call, open, thread, timed);
        if (text == prefix && !strstr(open, ") ") && !strstr(open, "<unfinished"))
                return LINE_NOT_OURS;
        /* posix_memalign and other functions, whose results are not addresses of blocks. */
        if (strncmp(name, "posix_memalign", 14) == 0)
                import->hidden++;
        else
                import->others++;
        return LINE_TAKEN;
}

enum line_kind heap_line(struct import *import, const char *line)
{
        if (strncmp(line, "@ ", 2) == 0)
                return mtrace_line(import, line + 2);
        if (strcmp(line, "= Start") == 0 || strcmp(line, "= End") == 0) {
                import->others++;
                return LINE_TAKEN;
        }
        return ltrace_line(import, line);
}
