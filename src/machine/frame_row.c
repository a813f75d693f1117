/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reads rows: finds the function's description in a sorted table, and runs its program up to the
 * address, for the registers that a row has. Whatever is not the common form of compilers is
 * ROW_UNKNOWN, so that nothing is guessed: a signal's frame, an expression, a register that moved.
 *
 * Threads: any; also in signal handlers. The tables are constants.
 * Sources: DWARF 5, 6.4; Linux Standard Base 5.0, 10.6 (Exception Frames).
 */
#include "machine/frame_row.h"

#include <string.h>

/* ---- The machine ------------------------------------------------------------------------- */

#ifdef __aarch64__
enum { FRAME_POINTER = 29, STACK_POINTER = 31, RETURN_ADDRESS = 30 };
#else
enum { FRAME_POINTER = 6, STACK_POINTER = 7, RETURN_ADDRESS = 16 };
#endif

/* ---- The table --------------------------------------------------------------------------- */

/* The encodings that linkers write, and the only ones that are read here. */
enum { TABLE_VERSION = 1, POINTER_ENCODING = 0x1b, COUNT_ENCODING = 0x03, TABLE_ENCODING = 0x3b };

struct table {
        uint8_t version;
        uint8_t pointer_encoding;
        uint8_t count_encoding;
        uint8_t table_encoding;
        int32_t section;
        uint32_t count;
        struct {
                int32_t start;       /* of a function, from the table's own address */
                int32_t description; /* likewise */
        } functions[];
};

static bool is_common(const struct table *table)
{
        return table->version == TABLE_VERSION && table->pointer_encoding == POINTER_ENCODING &&
               table->count_encoding == COUNT_ENCODING && table->table_encoding == TABLE_ENCODING;
}

static bool starts_before(const struct table *table, uint32_t index, intptr_t offset)
{
        return table->functions[index].start <= offset;
}

/* The last function that starts at @offset or before; the table's count if there is none. */
static uint32_t find_function(const struct table *table, intptr_t offset, uint32_t hint)
{
        uint32_t first = 0;
        uint32_t end = table->count;

        if (hint < end && starts_before(table, hint, offset) &&
            (hint + 1 == end || !starts_before(table, hint + 1, offset)))
                return hint;
        while (first < end) {
                uint32_t middle = first + (end - first) / 2;

                if (starts_before(table, middle, offset))
                        first = middle + 1;
                else
                        end = middle;
        }
        return first ? first - 1 : table->count;
}

/* ---- Numbers ----------------------------------------------------------------------------- */

static uint64_t read_fixed(const uint8_t **at, unsigned int bytes)
{
        uint64_t value = 0;

        memcpy(&value, *at, bytes); /* both machines have the low byte first */
        *at += bytes;
        return value;
}

/* A number in bits of seven (LEB128); *shift: how many there were, *last: the byte that ended it. */
static uint64_t read_sevens(const uint8_t **at, unsigned int *shift, uint8_t *last)
{
        uint64_t value = 0;

        *shift = 0;
        do {
                *last = *(*at)++;
                if (*shift < 64)
                        value |= (uint64_t)(*last & 0x7f) << *shift;
                *shift += 7;
        } while (*last & 0x80);
        return value;
}

static uint64_t read_unsigned(const uint8_t **at)
{
        unsigned int shift;
        uint8_t last;

        return read_sevens(at, &shift, &last);
}

static int64_t read_signed(const uint8_t **at)
{
        unsigned int shift;
        uint8_t last;
        uint64_t value = read_sevens(at, &shift, &last);

        if (shift < 64 && last & 0x40)
                value |= ~(uint64_t)0 << shift;
        return (int64_t)value;
}

/* Bytes of a pointer by its encoding, 0 for forms that are not read here. */
static unsigned int pointer_bytes(uint8_t encoding)
{
        switch (encoding & 0x7f) {
        case 0x00: /* an address */
        case 0x04:
        case 0x0c:
        case 0x10: /* from the pointer's own address */
        case 0x14:
        case 0x1c:
                return 8;
        case 0x03:
        case 0x0b:
        case 0x13:
        case 0x1b:
                return 4;
        default:
                return 0;
        }
}

/* ---- Descriptions ------------------------------------------------------------------------ */

/* What descriptions of functions have in common. */
struct common {
        const uint8_t *program;
        const uint8_t *end;
        uint64_t code_step;
        int64_t data_step;
        unsigned int pointer_bytes;
        bool has_data; /* each description has data in front of its program, with a length */
};

/* Begin and end of an entry of the section; false for the form of more than 4 GiB. */
static bool open_entry(const uint8_t **at, const uint8_t **end)
{
        uint32_t bytes = (uint32_t)read_fixed(at, 4);

        *end = *at + bytes;
        return bytes && bytes != UINT32_MAX;
}

/* False if the common part, at @at, has something that is not read here. */
static bool read_common(const uint8_t *at, struct common *common)
{
        const char *letter;
        const uint8_t *data;
        uint8_t version;
        uint8_t encoding = 0;
        unsigned int bytes;
        uint64_t data_bytes;

        if (!open_entry(&at, &common->end) || read_fixed(&at, 4) != 0)
                return false;
        version = *at++;
        if (version != 1 && version != 3)
                return false;
        letter = (const char *)at;
        at += strlen(letter) + 1;
        common->code_step = read_unsigned(&at);
        common->data_step = read_signed(&at);
        if ((version == 1 ? *at++ : read_unsigned(&at)) != RETURN_ADDRESS)
                return false;
        common->has_data = *letter == 'z';
        if (common->has_data) {
                letter++;
                data_bytes = read_unsigned(&at);
                data = at;
                at += data_bytes;
                for (; *letter; letter++) {
                        if (*letter == 'R') {
                                encoding = *data++;
                        } else if (*letter == 'L') {
                                data++;
                        } else if (*letter == 'P') {
                                bytes = pointer_bytes(*data++);
                                if (!bytes)
                                        return false;
                                data += bytes;
                        } else {
                                return false; /* also S, a signal's frame */
                        }
                }
        } else if (*letter) {
                return false;
        }
        common->program = at;
        common->pointer_bytes = pointer_bytes(encoding);
        return common->pointer_bytes != 0;
}

/* ---- Programs ---------------------------------------------------------------------------- */

/* Of a register's place: it is where it was, and no word of the stack has it. */
static const int64_t NOWHERE = INT64_MAX;
static const int64_t ELSEWHERE = INT64_MAX - 1;

/* Where registers lie, as offsets from the frame's base. */
struct places {
        uint64_t base_register;
        int64_t base;
        int64_t frame_pointer;
        int64_t return_address;
        bool has_base;
        bool is_last;
};

enum { REMEMBERED = 4 };

struct run {
        const struct common *common;
        struct places now;
        struct places remembered[REMEMBERED];
        unsigned int depth;
};

static bool set_place(struct run *run, uint64_t number, int64_t offset)
{
        if (number == FRAME_POINTER)
                run->now.frame_pointer = offset;
        else if (number == RETURN_ADDRESS)
                run->now.return_address = offset;
        return number != STACK_POINTER;
}

static bool save(struct run *run, uint64_t number, int64_t steps)
{
        return set_place(run, number, steps * run->common->data_step);
}

/* The register has its value in the caller again, or none that anybody asks for. */
static bool forget(struct run *run, uint64_t number, bool is_undefined)
{
        if (number == RETURN_ADDRESS)
                run->now.is_last = is_undefined;
        return set_place(run, number, NOWHERE);
}

static bool set_base(struct run *run, uint64_t number, int64_t offset)
{
        run->now.base_register = number;
        run->now.base = offset;
        run->now.has_base = true;
        return true;
}

static bool remember(struct run *run)
{
        if (run->depth == REMEMBERED)
                return false;
        run->remembered[run->depth++] = run->now;
        return true;
}

static bool recall(struct run *run)
{
        if (!run->depth)
                return false;
        run->now = run->remembered[--run->depth];
        return true;
}

/* Its value in the caller takes more than a word of the stack. */
static bool lose(struct run *run, uint64_t number)
{
        return set_place(run, number, ELSEWHERE);
}

/* An instruction with operands of its own, but for advances. False if it is not known here. */
static bool run_extended(struct run *run, uint8_t code, const uint8_t **at)
{
        uint64_t number;
        uint64_t bytes;

        switch (code) {
        case 0x00: /* DW_CFA_nop */
                return true;
        case 0x05: /* DW_CFA_offset_extended */
                number = read_unsigned(at);
                return save(run, number, (int64_t)read_unsigned(at));
        case 0x06: /* DW_CFA_restore_extended */
        case 0x08: /* DW_CFA_same_value */
                return forget(run, read_unsigned(at), false);
        case 0x07: /* DW_CFA_undefined */
                return forget(run, read_unsigned(at), true);
        case 0x09: /* DW_CFA_register */
                number = read_unsigned(at);
                read_unsigned(at);
                return lose(run, number);
        case 0x0a: /* DW_CFA_remember_state */
                return remember(run);
        case 0x0b: /* DW_CFA_restore_state */
                return recall(run);
        case 0x0c: /* DW_CFA_def_cfa */
                number = read_unsigned(at);
                return set_base(run, number, (int64_t)read_unsigned(at));
        case 0x0d: /* DW_CFA_def_cfa_register */
                return set_base(run, read_unsigned(at), run->now.base);
        case 0x0e: /* DW_CFA_def_cfa_offset */
                return run->now.has_base &&
                       set_base(run, run->now.base_register, (int64_t)read_unsigned(at));
        case 0x0f: /* DW_CFA_def_cfa_expression */
                number = read_unsigned(at);
                *at += number;
                run->now.has_base = false;
                return true;
        case 0x10: /* DW_CFA_expression */
        case 0x16: /* DW_CFA_val_expression */
                number = read_unsigned(at);
                bytes = read_unsigned(at);
                *at += bytes;
                return lose(run, number);
        case 0x11: /* DW_CFA_offset_extended_sf */
                number = read_unsigned(at);
                return save(run, number, read_signed(at));
        case 0x12: /* DW_CFA_def_cfa_sf */
                number = read_unsigned(at);
                return set_base(run, number, read_signed(at) * run->common->data_step);
        case 0x13: /* DW_CFA_def_cfa_offset_sf */
                return run->now.has_base && set_base(run, run->now.base_register,
                                                     read_signed(at) * run->common->data_step);
        case 0x2e: /* DW_CFA_GNU_args_size, which is for landing pads */
                read_unsigned(at);
                return true;
#ifdef __aarch64__
        case 0x2d: /* the return address is signed from here on; the walk strips each */
                return true;
#endif
        default:
                return false;
        }
}

/* Bytes of the number behind an advance, 0 for other instructions. */
static unsigned int advance_bytes(uint8_t code)
{
        return code >= 0x02 && code <= 0x04 ? 1u << (code - 0x02) : 0;
}

/*
 * Runs a program while the place in the code is before @distance. False if it has an instruction
 * that is not known here.
 */
static bool run_program(struct run *run, const uint8_t *at, const uint8_t *end, uint64_t distance)
{
        uint64_t here = 0;

        while (at < end && here < distance) {
                uint8_t code = *at++;
                uint8_t low = code & 0x3f;

                switch (code >> 6) {
                case 1: /* DW_CFA_advance_loc */
                        here += low * run->common->code_step;
                        continue;
                case 2: /* DW_CFA_offset */
                        if (!save(run, low, (int64_t)read_unsigned(&at)))
                                return false;
                        continue;
                case 3: /* DW_CFA_restore */
                        if (!forget(run, low, false))
                                return false;
                        continue;
                default:
                        break;
                }
                if (advance_bytes(code))
                        here += read_fixed(&at, advance_bytes(code)) * run->common->code_step;
                else if (!run_extended(run, code, &at))
                        return false;
        }
        return true;
}

/* False for places that a row does not say. */
static bool make_row(const struct places *places, struct frame_row *row)
{
        bool is_saved = places->frame_pointer != NOWHERE;

        row->is_last = places->is_last;
        if (row->is_last)
                return true;
        row->is_from_frame_pointer = places->base_register == FRAME_POINTER;
        row->base = places->base;
        row->return_address = places->return_address;
        row->saved = is_saved ? places->frame_pointer : 0;
        return places->has_base && (!is_saved || row->saved) && places->return_address != NOWHERE &&
               places->return_address != ELSEWHERE && places->frame_pointer != ELSEWHERE &&
               (places->base_register == FRAME_POINTER || places->base_register == STACK_POINTER);
}

enum row_answer frame_row_find(const void *header, uintptr_t address, uint32_t *hint,
                               struct frame_description *found)
{
        const struct table *table = header;
        /* The call itself, whose row is another than its successor's where that begins a function. */
        intptr_t offset = (intptr_t)(address - 1 - (uintptr_t)header);
        const uint8_t *at;
        uint64_t bytes;

        if (!table || !is_common(table))
                return ROW_UNKNOWN;
        *hint = find_function(table, offset, *hint);
        if (*hint == table->count)
                return ROW_NONE;
        found->distance = (uint64_t)(offset - table->functions[*hint].start) + 1;
        at = (const uint8_t *)header + table->functions[*hint].description;
        if (!open_entry(&at, &found->own_end))
                return ROW_UNKNOWN;
        found->own = at;
        bytes = read_fixed(&at, 4); /* back from here to the common part */
        found->common = found->own - bytes;
        return bytes ? ROW_FOUND : ROW_UNKNOWN;
}

enum row_answer frame_row_make(const struct frame_description *found, struct frame_row *row)
{
        const uint8_t *at = found->own + 4;
        struct common common;
        struct run run;
        uint64_t bytes;

        if (!read_common(found->common, &common))
                return ROW_UNKNOWN;
        at += common.pointer_bytes;
        if (found->distance > read_fixed(&at, common.pointer_bytes))
                return ROW_NONE;
        if (common.has_data) {
                bytes = read_unsigned(&at);
                at += bytes;
        }
        run.common = &common;
        run.depth = 0;
        run.now = (struct places){.frame_pointer = NOWHERE, .return_address = NOWHERE};
        if (!run_program(&run, common.program, common.end, found->distance) ||
            !run_program(&run, at, found->own_end, found->distance))
                return ROW_UNKNOWN;
        return make_row(&run.now, row) ? ROW_FOUND : ROW_UNKNOWN;
}

enum row_answer frame_row_read(const void *header, uintptr_t address, uint32_t *hint,
                               struct frame_row *row)
{
        struct frame_description found;
        enum row_answer answer = frame_row_find(header, address, hint, &found);

        return answer == ROW_FOUND ? frame_row_make(&found, row) : answer;
}

/* ---- Keys -------------------------------------------------------------------------------- */

enum { KEY_BYTES_MOST = 256 }; /* of a description */

/* Two numbers without a pattern. */
#define KEY_FACTOR 0x9e3779b97f4a7c15u
#define KEY_START 0xd1b54a32d192ed03u

/* Both halves of a product, which depend on all bits of both numbers. */
static uint64_t fold(uint64_t a, uint64_t b)
{
        unsigned __int128 product = (unsigned __int128)a * b;

        return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t add_to_key(uint64_t key, const uint8_t *at, const uint8_t *end)
{
        uint64_t length = (uint64_t)(end - at);

        while (end - at >= 16) {
                uint64_t first = read_fixed(&at, 8);

                key = fold(key ^ first, KEY_FACTOR ^ read_fixed(&at, 8));
        }
        while (end - at >= 4)
                key = fold(key ^ read_fixed(&at, 4), KEY_FACTOR);
        while (at < end)
                key = fold(key ^ *at++, KEY_FACTOR);
        return fold(key ^ length, KEY_FACTOR);
}

uint64_t frame_row_key(const struct frame_description *found)
{
        const uint8_t *at = found->common;
        const uint8_t *end;
        uint64_t key = fold(KEY_START ^ found->distance, KEY_FACTOR);

        if (!open_entry(&at, &end) || end - at > KEY_BYTES_MOST ||
            found->own_end - found->own > KEY_BYTES_MOST)
                return 0;
        return add_to_key(add_to_key(key, at, end), found->own, found->own_end);
}
