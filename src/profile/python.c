/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Functions in Python on the stack of the calling thread: CPython 3.11, 3.12 and 3.13. python.h has
 * the invariants. Places in the interpreter's structures are those of its headers in Include/internal
 * for 3.11 and 3.12, which no release of a series changes, and are told by 3.13 itself.
 */
#include "profile/python.h"

#include "base/metadata.h"
#include "lang/bits.h"
#include "machine/stack.h"
#include "machine/system.h"
#include "page/page.h"
#include "registry/registry.h"

#include <string.h>

enum {
        STEPS_MOST =
                4 * PYTHON_FRAMES, /* of a chain of frames, which may be a ring if it is none */
        NAMES = 1 << 14,
        TRIES = 32, /* places where a name may be */
        FUNCTION_BYTES = 120,
        FILE_BYTES = 240,
        CHECKED_PAGES = 64,
        OWNED_BY_C = 3, /* owner of a frame that stands for a call from C, from 3.12 on */
        COMPACT = 1 << 5,
        ASCII = 1 << 6,
        LINE_TABLE_MOST = 1 << 16, /* bytes */
};

/* The interpreter's, if the program has one that the dynamic linker knows. */
extern const unsigned long Py_Version __attribute__((weak));
extern const char PyCode_Type[] __attribute__((weak));
extern const char _PyRuntime[] __attribute__((weak));
extern void *PyGILState_GetThisThreadState(void) __attribute__((weak));

/* Offsets in structures, in bytes. */
struct layout {
        uint16_t state_frame;     /* of a thread's state: its innermost frame, or its C frame */
        uint16_t c_frame_current; /* of a C frame: the innermost frame; used if has_c_frame */
        bool has_c_frame;
        bool has_entry; /* frames say whether C code called them; else a frame of C does */
        uint16_t frame_code;
        uint16_t frame_previous;
        uint16_t frame_instruction;
        uint16_t frame_entry;
        uint16_t frame_owner;
        uint16_t code_file;
        uint16_t code_name;
        uint16_t code_lines;
        uint16_t code_first_line;
        uint16_t code_begin;
        uint16_t ascii_text; /* of a text in ASCII: its letters */
        uint16_t wide_text;  /* of another text */
};

static const struct layout layout_3_11 = {
        .state_frame = 56,
        .c_frame_current = 8,
        .has_c_frame = true,
        .has_entry = true,
        .frame_code = 32,
        .frame_previous = 48,
        .frame_instruction = 56,
        .frame_entry = 68,
        .frame_owner = 69,
        .code_file = 112,
        .code_name = 128,
        .code_lines = 136,
        .code_first_line = 72,
        .code_begin = 184,
        .ascii_text = 48,
        .wide_text = 72,
};
static const struct layout layout_3_12 = {
        .state_frame = 56,
        .c_frame_current = 0,
        .has_c_frame = true,
        .frame_code = 0,
        .frame_previous = 8,
        .frame_instruction = 56,
        .frame_owner = 70,
        .code_file = 112,
        .code_name = 128,
        .code_lines = 136,
        .code_first_line = 68,
        .code_begin = 192,
        .ascii_text = 40,
        .wide_text = 56,
};
enum { OBJECT_TYPE = 8, OBJECT_SIZE = 16, TEXT_LENGTH = 16, TEXT_STATE = 32, BYTES_CONTENT = 32 };

/*
 * Pages that the kernel has said can be read, by number; 0: none. Pages of the heap need no call, which
 * takes longer than all that is read of a function: what has become accessible there stays so.
 */
struct reader {
        uintptr_t pages[CHECKED_PAGES];
};

static bool can_read(struct reader *reader, uintptr_t address, size_t bytes)
{
        uintptr_t last = (address + bytes - 1) >> PAGE_SHIFT;

        if (address < PAGE_SIZE || address + bytes < address)
                return false;
        if (heap_contains((const void *)address) &&
            heap_contains((const void *)(address + bytes - 1)))
                return true;
        for (uintptr_t page = address >> PAGE_SHIFT; page <= last; page++) {
                uintptr_t *place = &reader->pages[page % CHECKED_PAGES];

                if (*place != page && !system_can_read((const void *)(page << PAGE_SHIFT)))
                        return false;
                *place = page;
        }
        return true;
}

static bool read_bytes(struct reader *reader, uintptr_t address, void *value, size_t bytes)
{
        if (!can_read(reader, address, bytes))
                return false;
        memcpy(value, (const void *)address, bytes);
        return true;
}

static bool read_word(struct reader *reader, uintptr_t address, uintptr_t *value)
{
        return read_bytes(reader, address, value, sizeof(*value));
}

/* The table of its structures that 3.13 has at the beginning of its state (struct _Py_DebugOffsets). */
static bool read_layout_3_13(struct layout *layout)
{
        enum {
                VERSION = 8,
                FREE_THREADED = 16,
                STATE_FRAME = 184,
                FRAME_PREVIOUS = 232,
                FRAME_CODE = 240,
                FRAME_INSTRUCTION = 248,
                FRAME_OWNER = 264,
                CODE_FILE = 280,
                CODE_NAME = 296,
                CODE_LINES = 304,
                CODE_FIRST_LINE = 312,
                CODE_BEGIN = 344,
                ASCII_TEXT = 560,
                WIDE_MORE = 16, /* bytes of a wide text's head that a text in ASCII does not have */
        };
        const char *table = _PyRuntime;
        uint64_t value;

        if (!table || memcmp(table, "xdebugpy", 8) != 0)
                return false;
        memcpy(&value, table + VERSION, sizeof(value));
        if (value >> 16 != 0x030d)
                return false;
        /* Without the interpreter's lock objects have another head. */
        memcpy(&value, table + FREE_THREADED, sizeof(value));
        if (value)
                return false;
        *layout = (struct layout){0};
#define TAKE(field, place)                                                                         \
        do {                                                                                       \
                memcpy(&value, table + (place), sizeof(value));                                    \
                if (value > 4096)                                                                  \
                        return false;                                                              \
                layout->field = (uint16_t)value;                                                   \
        } while (0)
        TAKE(state_frame, STATE_FRAME);
        TAKE(frame_previous, FRAME_PREVIOUS);
        TAKE(frame_code, FRAME_CODE);
        TAKE(frame_instruction, FRAME_INSTRUCTION);
        TAKE(frame_owner, FRAME_OWNER);
        TAKE(code_file, CODE_FILE);
        TAKE(code_name, CODE_NAME);
        TAKE(code_lines, CODE_LINES);
        TAKE(code_first_line, CODE_FIRST_LINE);
        TAKE(code_begin, CODE_BEGIN);
        TAKE(ascii_text, ASCII_TEXT);
#undef TAKE
        layout->wide_text = (uint16_t)(layout->ascii_text + WIDE_MORE);
        return true;
}

static bool read_layout(struct layout *layout)
{
        if (!&Py_Version || !PyGILState_GetThisThreadState || !PyCode_Type)
                return false;
        switch (Py_Version >> 16) {
        case 0x030b:
                *layout = layout_3_11;
                return true;
        case 0x030c:
                *layout = layout_3_12;
                return true;
        case 0x030d:
                return read_layout_3_13(layout);
        }
        return false;
}

/* Appends a letter in UTF-8; returns the new length, or the old one without room. */
static size_t put_letter(char *text, size_t length, size_t room, uint32_t letter)
{
        unsigned int more = letter < 0x80 ? 0 : letter < 0x800 ? 1 : letter < 0x10000 ? 2 : 3;

        if (length + more + 1 > room)
                return length;
        if (!letter)
                letter = '?';
        if (!more) {
                text[length++] = (char)letter;
                return length;
        }
        text[length++] = (char)(0xffu << (7 - more) | letter >> 6 * more);
        while (more--)
                text[length++] = (char)(0x80 | (letter >> 6 * more & 0x3f));
        return length;
}

/*
 * Copies a str, without zeros. @tail: its end if it is longer than the room, else its beginning. The
 * length, or -1 if it cannot be read.
 */
static int copy_text(struct reader *reader, const struct layout *layout, uintptr_t text, char *to,
                     size_t room, bool tail)
{
        uintptr_t letters, length, first, most;
        size_t done = 0;
        uint32_t state;
        unsigned int bytes;

        if (!read_word(reader, text + TEXT_LENGTH, &length) ||
            !read_bytes(reader, text + TEXT_STATE, &state, sizeof(state)) || !(state & COMPACT))
                return -1;
        bytes = state & ASCII ? 1 : state >> 2 & 7;
        if ((bytes != 1 && bytes != 2 && bytes != 4) || length > UINT32_MAX)
                return -1;
        letters = text + (state & ASCII ? layout->ascii_text : layout->wide_text);
        /* A letter takes up to four bytes. */
        most = state & ASCII ? room : room / 4;
        first = tail && length > most ? length - most : 0;
        if (!length)
                return 0;
        most = min_of(length - first, most);
        if (!can_read(reader, letters + first * bytes, most * bytes))
                return -1;
        /* Nearly all names: no letter is changed, but for a zero. */
        if (state & ASCII && !memchr((const char *)letters + first, 0, most)) {
                memcpy(to, (const char *)letters + first, most);
                return (int)most;
        }
        for (uintptr_t at = first; at < first + most; at++) {
                uint32_t letter = 0;

                memcpy(&letter, (const char *)letters + at * bytes, bytes);
                done = put_letter(to, done, room, letter);
        }
        return (int)done;
}

/* A number of the table of lines: six bits in each byte, and a seventh if more follow. */
static uint32_t read_varint(const uint8_t **at, const uint8_t *end)
{
        uint32_t value = 0;
        uint8_t byte = 0x40;

        for (unsigned int shift = 0; byte & 0x40 && *at < end && shift <= 30; shift += 6) {
                byte = *(*at)++;
                value |= (uint32_t)(byte & 0x3f) << shift;
        }
        return value;
}

/*
 * The line of an instruction, by the code's table of places (Objects/locations.md of CPython): an
 * entry has a first byte with its form and how many instructions it is for, and the change of the
 * line. The first line where the table cannot be read.
 */
static uint32_t line_of(struct reader *reader, const struct layout *layout, uintptr_t code,
                        uintptr_t instruction, uint32_t first_line)
{
        /* Instructions have two bytes; the last one begun is at or behind the begin of the code. */
        uintptr_t left = (instruction - (code + layout->code_begin)) / 2;
        uintptr_t table, bytes;
        uint32_t line = first_line;
        const uint8_t *at, *end;

        if (!read_word(reader, code + layout->code_lines, &table) ||
            !read_word(reader, table + OBJECT_SIZE, &bytes) || !bytes || bytes > LINE_TABLE_MOST ||
            !can_read(reader, table + BYTES_CONTENT, bytes))
                return first_line;
        at = (const uint8_t *)table + BYTES_CONTENT;
        end = at + bytes;
        while (at < end) {
                uint8_t head = *at++;
                unsigned int form = head >> 3 & 15;
                uint32_t change;

                if (!(head & 0x80))
                        break;
                if (form == 13 || form == 14) {
                        change = read_varint(&at, end);
                        line += change & 1 ? -(change >> 1) : change >> 1;
                        for (int rest = form == 14 ? 3 : 0; rest; rest--)
                                read_varint(&at, end);
                } else if (form >= 10 && form <= 12) {
                        line += form - 10;
                        at += min_of((ptrdiff_t)2, end - at);
                } else if (form < 10) {
                        at += min_of((ptrdiff_t)1, end - at);
                }
                if (left <= (head & 7u))
                        return form == 15 ? first_line : line;
                left -= (head & 7u) + 1;
        }
        return first_line;
}

struct name {
        struct registry_name *record; /* NULL: none yet */
        uint32_t hash;
        uint32_t bytes;
        char text[]; /* function, zero byte, file */
};

/*
 * NAMES places, or NULL until the first name comes: a program that locks its memory has no use for
 * them. Places are filled by compare-and-swap, and never emptied. A name's number is its place plus 1.
 */
static struct name **names;

static struct name **make_names(void)
{
        struct name **others = NULL;
        struct name **made = metadata_alloc(NAMES * sizeof(struct name *));

        /* Release: the places are empty. A thread that lost has the winner's. */
        if (!made || compare_swap(&names, &others, made))
                return made;
        metadata_free(made, NAMES * sizeof(struct name *));
        return others;
}

/* The number of a name; 0 without room. */
static uint32_t keep_name(const char *text, uint32_t bytes)
{
        /* Acquire: pairs with the swap in make_names. */
        struct name **places = load_acquire(&names);
        uint64_t word, mixed = bytes;
        struct name *made;
        uint32_t hash;

        for (uint32_t at = 0; at < bytes; at += (uint32_t)sizeof(word)) {
                word = 0;
                memcpy(&word, text + at, min_of((size_t)(bytes - at), sizeof(word)));
                mixed = (mixed ^ word) * 0x9e3779b97f4a7c15u;
                mixed ^= mixed >> 32;
        }
        hash = (uint32_t)mixed;
        if (!places)
                places = make_names();
        for (uint32_t i = 0; places && i < TRIES; i++) {
                uint32_t at = (hash ^ hash >> 15) + i;
                struct name **place = &places[at % NAMES];
                /* Acquire: pairs with the swap below; the name is complete. */
                struct name *name = load_acquire(place);

                if (!name) {
                        made = metadata_alloc(sizeof(*made) + bytes);
                        if (!made)
                                return 0;
                        made->hash = hash;
                        made->bytes = bytes;
                        memcpy(made->text, text, bytes);
                        /* Release: the name is complete. A thread that lost looks at the winner's. */
                        if (compare_swap(place, &name, made))
                                return at % NAMES + 1;
                        metadata_free(made, sizeof(*made) + bytes);
                }
                if (name->hash == hash && name->bytes == bytes &&
                    memcmp(name->text, text, bytes) == 0)
                        return at % NAMES + 1;
        }
        return 0;
}

void python_publish(uintptr_t frame)
{
        uint32_t number = (uint32_t)(frame & REGISTRY_NAME_MASK);
        struct registry_name *record;
        struct name *name, **places;
        size_t bytes;

        if (!(frame & REGISTRY_PYTHON) || !number || number > NAMES)
                return;
        places = load_acquire(&names);
        name = places ? load_acquire(&places[number - 1]) : NULL;
        if (!name)
                return;
        bytes = sizeof(*record) + name->bytes;
        record = load_acquire(&name->record);
        if (!record) {
                struct registry_name *none = NULL;

                record = registry_alloc(bytes);
                if (!record)
                        return;
                if (!compare_swap(&name->record, &none, record)) {
                        registry_free(record, bytes);
                        record = none;
                }
        }
        /*
         * The record is new, or its place is empty in a child's registry. Two threads that come here
         * at a time store equal words.
         */
        if (load_acquire(&record->head.kind) != RECORD_NAME) {
                memcpy(record->text, name->text, name->bytes);
                store_relaxed(&record->bytes, name->bytes);
                store_relaxed(&record->number, (uint64_t)number);
                registry_publish(record, RECORD_NAME, bytes);
        }
}

/* What stands for a function in a stack; 0 if this is no function that can be read. */
static uintptr_t frame_of(struct reader *reader, const struct layout *layout, uintptr_t frame)
{
        char text[FUNCTION_BYTES + 1 + FILE_BYTES];
        uintptr_t code, type, function, file, instruction;
        uint32_t first_line, line, number;
        int length, more;

        if (!read_word(reader, frame + layout->frame_code, &code) ||
            !read_word(reader, code + OBJECT_TYPE, &type) || type != (uintptr_t)PyCode_Type ||
            !read_word(reader, code + layout->code_name, &function) ||
            !read_word(reader, code + layout->code_file, &file) ||
            !read_bytes(reader, code + layout->code_first_line, &first_line, sizeof(first_line)) ||
            !read_word(reader, frame + layout->frame_instruction, &instruction))
                return 0;
        length = copy_text(reader, layout, function, text, FUNCTION_BYTES, false);
        if (length < 0)
                return 0;
        text[length++] = 0;
        more = copy_text(reader, layout, file, text + length, FILE_BYTES, true);
        if (more < 0)
                return 0;
        number = keep_name(text, (uint32_t)(length + more));
        line = line_of(reader, layout, code, instruction, first_line);
        return REGISTRY_PYTHON |
               (uintptr_t)min_of(line, (uint32_t)REGISTRY_LINE_MOST) << REGISTRY_LINE_SHIFT |
               number;
}

static unsigned int walk(struct reader *reader, const struct layout *layout, uintptr_t frame,
                         uintptr_t *frames, unsigned int room)
{
        unsigned int count = 0;
        bool begun = false; /* the last frame's call from C has not been seen */

        for (unsigned int step = 0; frame && step < STEPS_MOST; step++) {
                uintptr_t place = 0;
                uint8_t owner, entry = 0;

                if (count == room || !read_bytes(reader, frame + layout->frame_owner, &owner, 1) ||
                    (layout->has_entry &&
                     !read_bytes(reader, frame + layout->frame_entry, &entry, 1)))
                        break;
                if (layout->has_entry || owner != OWNED_BY_C)
                        place = frame_of(reader, layout, frame);
                if (place) {
                        frames[count++] = place;
                        begun = true;
                }
                if (layout->has_entry ? entry == 1 : owner == OWNED_BY_C) {
                        /* A call from C that has not got to a function yet has a frame without one. */
                        if (!begun)
                                frames[count++] = REGISTRY_PYTHON;
                        frames[count - 1] |= REGISTRY_PYTHON_ENTRY;
                        begun = false;
                }
                if (!read_word(reader, frame + layout->frame_previous, &frame))
                        break;
        }
        return count;
}

unsigned int python_frames(uintptr_t *frames, unsigned int room)
{
        struct reader reader = {0};
        struct layout layout;
        uintptr_t state, frame;

        if (stack_is_refused() || !read_layout(&layout))
                return 0;
        state = (uintptr_t)PyGILState_GetThisThreadState();
        if (!state || !read_word(&reader, state + layout.state_frame, &frame))
                return 0;
        if (layout.has_c_frame && !read_word(&reader, frame + layout.c_frame_current, &frame))
                return 0;
        return walk(&reader, &layout, frame, frames, room);
}
