/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Functions in Python on the stack of the calling thread: CPython 3.11, 3.12 and 3.13. python.h has
 * the invariants. Places in the interpreter's structures are those of its headers in Include/internal
 * for 3.11 and 3.12, which no release of a series changes, and are told by 3.13 itself.
 */
#include "profile/python.h"

#include "base/metadata.h"
#include "lang/bits.h"
#include "machine/lasting.h"
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
        KNOWN_BITS = 12,
        BATCH = 8, /* frames that are read at a time; they lie on the stack of a call */
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
enum {
        OBJECT_TYPE = 8,
        OBJECT_SIZE = 16,
        TEXT_LENGTH = 16,
        TEXT_HASH = 24,
        TEXT_STATE = 32,
        BYTES_CONTENT = 32,
};

/*
 * Pages that the kernel has said can be read, by number; 0: none. Pages of the heap need no call, which
 * takes longer than all that is read of a function: what has become accessible there stays so. Nor do
 * data of the interpreter's own file, which has the texts that all interpreters begin with.
 */
struct reader {
        uintptr_t pages[CHECKED_PAGES];
};

static bool can_read_page(uintptr_t page, uintptr_t address)
{
        return (is_lasting_data && is_lasting_data(max_of(address, page << PAGE_SHIFT))) ||
               system_can_read((const void *)(page << PAGE_SHIFT));
}

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

                if (*place != page && !can_read_page(page, address))
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

/* The part of a code object, and of the frame that runs it, that is read. */
struct code {
        uintptr_t function, file; /* texts */
        uintptr_t instruction;    /* the last one begun, counted from the code's first */
        uintptr_t lines;          /* the object of the table of lines; 0: it cannot be read */
        const uint8_t *table;     /* of lines; NULL: it cannot be read */
        uint32_t table_bytes;
        uint32_t first_line;
};

static bool read_code(struct reader *reader, const struct layout *layout, uintptr_t frame,
                      uintptr_t address, struct code *code)
{
        uintptr_t type, instruction;

        if (!read_word(reader, address + OBJECT_TYPE, &type) || type != (uintptr_t)PyCode_Type ||
            !read_word(reader, address + layout->code_name, &code->function) ||
            !read_word(reader, address + layout->code_file, &code->file) ||
            !read_bytes(reader, address + layout->code_first_line, &code->first_line,
                        sizeof(code->first_line)) ||
            !read_word(reader, frame + layout->frame_instruction, &instruction))
                return false;
        /* Instructions have two bytes; the last one begun is at or behind the begin of the code. */
        code->instruction = (instruction - (address + layout->code_begin)) / 2;
        if (!read_word(reader, address + layout->code_lines, &code->lines))
                code->lines = 0;
        return true;
}

static void read_table(struct reader *reader, struct code *code)
{
        uintptr_t bytes;

        code->table = NULL;
        code->table_bytes = 0;
        if (read_word(reader, code->lines + OBJECT_SIZE, &bytes) && bytes &&
            bytes <= LINE_TABLE_MOST && can_read(reader, code->lines + BYTES_CONTENT, bytes)) {
                code->table = (const uint8_t *)code->lines + BYTES_CONTENT;
                code->table_bytes = (uint32_t)bytes;
        }
}

/*
 * The line of an instruction, by the code's table of places (Objects/locations.md of CPython): an
 * entry has a first byte with its form and how many instructions it is for, and the change of the
 * line. The first line where the table cannot be read. @used: the table's bytes that were read for it.
 */
static uint32_t line_of(const struct code *code, uint32_t *used)
{
        uintptr_t left = code->instruction;
        uint32_t line = code->first_line;
        const uint8_t *at = code->table;
        const uint8_t *end = at + code->table_bytes;

        *used = code->table_bytes;
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
                if (left <= (head & 7u)) {
                        *used = (uint32_t)(at - code->table);
                        return form == 15 ? code->first_line : line;
                }
                left -= (head & 7u) + 1;
        }
        return code->first_line;
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

static uint64_t mix(uint64_t mixed, uint64_t word)
{
        mixed = (mixed ^ word) * 0x9e3779b97f4a7c15u;
        return mixed ^ mixed >> 32;
}

static uint64_t mix_bytes(uint64_t mixed, const void *from, size_t bytes)
{
        uint64_t word;

        for (; bytes >= sizeof(word); bytes -= sizeof(word)) {
                memcpy(&word, from, sizeof(word));
                mixed = mix(mixed, word);
                from = (const char *)from + sizeof(word);
        }
        if (!bytes)
                return mixed;
        word = 0;
        memcpy(&word, from, bytes);
        return mix(mixed, word);
}

/* The number of a name; 0 without room. */
static uint32_t keep_name(const char *text, uint32_t bytes)
{
        /* Acquire: pairs with the swap in make_names. */
        struct name **places = load_acquire(&names);
        uint32_t hash = (uint32_t)mix_bytes(bytes, text, bytes);
        struct name *made;

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

/*
 * What functions stood for in earlier stacks. An entry is found by the contents that it was made of: both
 * texts, the first line, the instruction, and as many bytes of the table of lines as its making read. So
 * it is true of any code object with these contents, whatever lay at the address before. Words of two
 * entries, which other threads have written, do not fit together: `mixed` has all of them in it. Relaxed
 * for this reason.
 */
struct known {
        uint64_t mixed;
        uintptr_t place;
        uint64_t used; /* bytes of the table */
};

/* Mapped with the first function: a program without any has no use for it. */
static struct known *known_places;

static struct known *make_known(void)
{
        struct known *others = NULL;
        struct known *made = system_map(sizeof(*made) << KNOWN_BITS);

        /* Release: pairs with the acquire in find_known. A thread that lost has the winner's. */
        if (!made || compare_swap(&known_places, &others, made))
                return made;
        system_unmap(made, sizeof(*made) << KNOWN_BITS);
        return others;
}

/*
 * A text's contents: the interpreter's hash, or, of a text that it has not hashed, its letters. False if
 * neither can be read.
 */
static bool mix_text(struct reader *reader, const struct layout *layout, uintptr_t text,
                     uint64_t *mixed)
{
        uintptr_t hash, letters, bytes;
        uint32_t state;

        if (!read_word(reader, text + TEXT_HASH, &hash))
                return false;
        if (hash != UINTPTR_MAX) {
                *mixed = mix(*mixed, hash);
                return true;
        }
        if (!read_bytes(reader, text + TEXT_STATE, &state, sizeof(state)) || !(state & COMPACT) ||
            !read_word(reader, text + TEXT_LENGTH, &bytes) || bytes > UINT16_MAX)
                return false;
        letters = text + (state & ASCII ? layout->ascii_text : layout->wide_text);
        bytes *= state >> 2 & 7;
        if (!can_read(reader, letters, max_of(bytes, (uintptr_t)1)))
                return false;
        *mixed = mix(mix_bytes(*mixed, (const void *)letters, bytes), state);
        return true;
}

/* The contents but the table's bytes; 0: they cannot be read. */
static uint64_t key_of(struct reader *reader, const struct layout *layout, const struct code *code)
{
        uint64_t mixed = code->table_bytes;

        if (!mix_text(reader, layout, code->function, &mixed) ||
            !mix_text(reader, layout, code->file, &mixed))
                return 0;
        return mix(mix(mixed, code->first_line), code->instruction);
}

/* All of them, with the bytes of the table that were used. */
static uint64_t whole_key(uint64_t key, const struct code *code, uint32_t used)
{
        return mix(mix_bytes(key, code->table, used), used);
}

static uintptr_t look_up(const struct known *known, uint64_t key, const struct code *code)
{
        uintptr_t place = load_relaxed(&known->place);
        uint64_t used = load_relaxed(&known->used);

        return place && used <= code->table_bytes &&
                               load_relaxed(&known->mixed) ==
                                       mix(whole_key(key, code, (uint32_t)used), place)
                       ? place
                       : 0;
}

/* What stands for a function in a stack, from its texts; 0 if they cannot be read. */
static uintptr_t place_of(struct reader *reader, const struct layout *layout,
                          const struct code *code, uint32_t *used)
{
        char text[FUNCTION_BYTES + 1 + FILE_BYTES];
        int length = copy_text(reader, layout, code->function, text, FUNCTION_BYTES, false);
        uint32_t line, number;
        int more;

        if (length < 0)
                return 0;
        text[length++] = 0;
        more = copy_text(reader, layout, code->file, text + length, FILE_BYTES, true);
        if (more < 0)
                return 0;
        number = keep_name(text, (uint32_t)(length + more));
        line = line_of(code, used);
        return REGISTRY_PYTHON |
               (uintptr_t)min_of(line, (uint32_t)REGISTRY_LINE_MOST) << REGISTRY_LINE_SHIFT |
               number;
}

/*
 * What stands for a function in a stack, from its code's contents and their key; 0 if its texts cannot be
 * read. @known: the entry for this key; NULL: there is no table of them.
 */
static uintptr_t known_place_of(struct reader *reader, const struct layout *layout,
                                const struct code *code, uint64_t key, struct known *known)
{
        uintptr_t place;
        uint32_t used;

        if (!known || !key)
                return place_of(reader, layout, code, &used);
        place = look_up(known, key, code);
        if (place)
                return place;
        place = place_of(reader, layout, code, &used);
        /* A name that found no room may find some later. */
        if (place & REGISTRY_NAME_MASK) {
                store_relaxed(&known->used, (uint64_t)used);
                store_relaxed(&known->place, place);
                store_relaxed(&known->mixed, mix(whole_key(key, code, used), place));
        }
        return place;
}

/* A frame of the interpreter's chain, and what was read of the function that it runs. */
struct step {
        uintptr_t frame;
        uintptr_t code_address; /* 0: it runs no function, or none that can be read */
        struct code code;
        uint64_t key;        /* 0: not known */
        struct known *known; /* NULL: there is no table */
        bool is_entry;       /* ends the functions that a call from C runs */
};

/* Reads a frame and goes on to the one before; false if it cannot be read. */
static bool read_step(struct reader *reader, const struct layout *layout, uintptr_t *frame,
                      struct step *step)
{
        uint8_t owner, entry = 0;

        if (!read_bytes(reader, *frame + layout->frame_owner, &owner, 1) ||
            (layout->has_entry && !read_bytes(reader, *frame + layout->frame_entry, &entry, 1)))
                return false;
        step->frame = *frame;
        step->is_entry = layout->has_entry ? entry == 1 : owner == OWNED_BY_C;
        if ((!layout->has_entry && owner == OWNED_BY_C) ||
            !read_word(reader, *frame + layout->frame_code, &step->code_address))
                step->code_address = 0;
        if (!read_word(reader, *frame + layout->frame_previous, frame))
                *frame = 0;
        return true;
}

/*
 * The next frames of the chain, @room at most, and the keys of their functions; returns how many. What a
 * function is told by lies in nine lines of the processor's cache, behind three pointers, and the
 * program's own work has pushed nearly all of them out since the last sample. So each pointer is followed
 * for all frames, and what lies behind it is asked for, before the next one is: the lines come while
 * others are waited for. To ask for a line that is none does nothing.
 */
static unsigned int read_steps(struct reader *reader, const struct layout *layout, uintptr_t *frame,
                               struct step *steps, unsigned int room)
{
        /* Acquire: pairs with the swap in make_known; all entries are empty or were written since. */
        struct known *known = load_acquire(&known_places);
        unsigned int count = 0;

        while (*frame && count < room && read_step(reader, layout, frame, &steps[count])) {
                uintptr_t code = steps[count++].code_address;

                __builtin_prefetch((const void *)(code + OBJECT_TYPE));
                __builtin_prefetch((const void *)(code + layout->code_first_line));
                __builtin_prefetch((const void *)(code + layout->code_lines));
        }
        for (struct step *step = steps; step < steps + count; step++) {
                if (step->code_address &&
                    !read_code(reader, layout, step->frame, step->code_address, &step->code))
                        step->code_address = 0;
                if (!step->code_address)
                        continue;
                __builtin_prefetch((const void *)(step->code.function + TEXT_HASH));
                __builtin_prefetch((const void *)(step->code.file + TEXT_HASH));
                __builtin_prefetch((const void *)(step->code.lines + OBJECT_SIZE));
                __builtin_prefetch((const void *)(step->code.lines + OBJECT_SIZE + CACHE_LINE));
        }
        for (struct step *step = steps; step < steps + count; step++) {
                if (!step->code_address)
                        continue;
                read_table(reader, &step->code);
                step->key = key_of(reader, layout, &step->code);
                if (!known)
                        known = make_known();
                step->known = known ? known + (step->key >> (64 - KNOWN_BITS)) : NULL;
                __builtin_prefetch(step->known);
        }
        return count;
}

static unsigned int walk(struct reader *reader, const struct layout *layout, uintptr_t frame,
                         uintptr_t *frames, unsigned int room)
{
        struct step steps[BATCH];
        unsigned int count = 0;
        bool begun = false; /* the last frame's call from C has not been seen */

        for (unsigned int batch = 0; frame && batch < STEPS_MOST / BATCH; batch++) {
                unsigned int found = read_steps(reader, layout, &frame, steps, BATCH);

                for (const struct step *step = steps; step < steps + found; step++) {
                        uintptr_t place = 0;

                        if (count == room)
                                return count;
                        if (step->code_address)
                                place = known_place_of(reader, layout, &step->code, step->key,
                                                       step->known);
                        if (place) {
                                frames[count++] = place;
                                begun = true;
                        }
                        if (!step->is_entry)
                                continue;
                        /* A call from C that has not got to a function yet has a frame without one. */
                        if (!begun)
                                frames[count++] = REGISTRY_PYTHON;
                        frames[count - 1] |= REGISTRY_PYTHON_ENTRY;
                        begun = false;
                }
                if (found < BATCH)
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
