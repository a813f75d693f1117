/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The walk by rows. The compiler's unwinder restores all registers at each frame; this walk follows
 * three, the return address, the stack pointer and the frame pointer, which is enough for the code of
 * compilers, and keeps what it read.
 *
 * 1. A kept row is a single word with its return address in it, so that no reader sees a half of
 *    one and a half of another, whoever writes: threads, signal handlers, children of vfork that
 *    share the memory. There is no lock, and a fork leaves nothing half done. Relaxed accesses do,
 *    as nothing else is published.
 * 2. Rows are kept of objects alone that stay until the process ends (lasting.h). A kept row is then
 *    true for ever. Other objects may be closed, and another be opened at the same address: their
 *    descriptions are found each time, by the dynamic linker's present answer. Of such an object a place
 *    in its table is kept, as a hint, which the reader compares with the table; and what a
 *    description means is kept by the bytes of the description (frame_row_key), which are read each time.
 *    This is true of any object.
 * 3. The frames are those that the compiler's unwinder finds. Where it would need other registers or
 *    knows more, as of a signal's frame, the walk ends with ROW_WALK_UNKNOWN.
 * 4. Where the unwinder ends, at code without rows as a program makes it while it runs, the walk goes
 *    on by the frame pointer if that leads up the stack to a word that a call has put there. Code
 *    that has no frame pointer of its own has its caller's, so a frame is left out and none is
 *    made up, with two exceptions: a word that looks like a return address by chance, and an old one
 *    into code that is gone since it was seen (known_calls). AArch64 has the record anywhere in its
 *    frame, so the stack pointer is not known then; the walk goes on by the frame pointer until a
 *    row counts from that.
 *
 * Threads: any, with the program's locks held, also the dynamic linker's; also in signal handlers.
 * glibc answers without a lock from 2.35 on (older_libc.c has the rest).
 */
#include "machine/row_walk.h"

#if defined(__x86_64__) || defined(__aarch64__)

#include "lang/atomic.h"
#include "lang/bits.h"
#include "machine/find_object.h"
#include "machine/frame_row.h"
#include "machine/lasting.h"
#include "machine/system.h"

#include <assert.h>
#include <string.h>

/* ---- Kept rows --------------------------------------------------------------------------- */

enum { WORD = 8, SET_BITS = 12, WAYS = 2 };

/*
 * A kept row, from the lowest bit: whether the word is in use, is_last, is_from_frame_pointer, -saved and
 * -return_address in words, base in units, and the return address without the bits that choose the
 * set. x86-64 has all return addresses a word below the base.
 */
#ifdef __aarch64__
enum { INSTRUCTION_ALIGN = 4, SAVED_BITS = 8, RETURN_BITS = 9, BASE_BITS = 10, BASE_UNIT = 16 };
#else
enum { INSTRUCTION_ALIGN = 1, SAVED_BITS = 11, RETURN_BITS = 0, BASE_BITS = 14, BASE_UNIT = 8 };
#endif
enum {
        IN_USE = 1,
        IS_LAST = 2,
        IS_FROM_FRAME_POINTER = 4,
        SAVED_SHIFT = 3,
        RETURN_SHIFT = SAVED_SHIFT + SAVED_BITS,
        BASE_SHIFT = RETURN_SHIFT + RETURN_BITS,
        TAG_SHIFT = BASE_SHIFT + BASE_BITS,
        TAG_BITS = 64 - TAG_SHIFT,
};

#define LOW_BITS(bits) (((uint64_t)1 << (bits)) - 1)

/* Addresses of programs have 48 bits, but for those that ask for more. */
static_assert(TAG_BITS + SET_BITS >= 48 - (INSTRUCTION_ALIGN == 4 ? 2 : 0), "no room for a tag");

static KMEM_SPARSE uint64_t kept[1 << SET_BITS][WAYS];
static KMEM_SPARSE uint32_t hints[1 << SET_BITS];

static unsigned int set_of(uintptr_t address)
{
        return (address / INSTRUCTION_ALIGN) & LOW_BITS(SET_BITS);
}

static uint64_t tag_of(uintptr_t address)
{
        return (address / INSTRUCTION_ALIGN) >> SET_BITS;
}

static bool fits(int64_t bytes, unsigned int unit, unsigned int bits)
{
        return bytes >= 0 && bytes % unit == 0 && (uint64_t)bytes / unit <= LOW_BITS(bits);
}

static bool return_address_fits(const struct frame_row *row)
{
        return RETURN_BITS ? fits(-row->return_address, WORD, RETURN_BITS)
                           : row->return_address == -WORD;
}

/* 0 for a row that has no room in a word. */
static uint64_t pack(uintptr_t address, const struct frame_row *row)
{
        uint64_t word = tag_of(address) << TAG_SHIFT | IN_USE;

        if (tag_of(address) > LOW_BITS(TAG_BITS) || address % INSTRUCTION_ALIGN)
                return 0;
        if (row->is_last)
                return word | IS_LAST;
        if (!return_address_fits(row) || !fits(-row->saved, WORD, SAVED_BITS) ||
            !fits(row->base, BASE_UNIT, BASE_BITS))
                return 0;
        if (RETURN_BITS)
                word |= (uint64_t)-row->return_address / WORD << RETURN_SHIFT;
        if (row->is_from_frame_pointer)
                word |= IS_FROM_FRAME_POINTER;
        return word | (uint64_t)row->base / BASE_UNIT << BASE_SHIFT |
               (uint64_t)-row->saved / WORD << SAVED_SHIFT;
}

static int64_t field(uint64_t word, unsigned int shift, unsigned int bits)
{
        return (int64_t)(word >> shift & LOW_BITS(bits));
}

static struct frame_row unpack(uint64_t word)
{
        return (struct frame_row){
                .is_last = word & IS_LAST,
                .is_from_frame_pointer = word & IS_FROM_FRAME_POINTER,
                .base = field(word, BASE_SHIFT, BASE_BITS) * BASE_UNIT,
                .return_address =
                        RETURN_BITS ? -field(word, RETURN_SHIFT, RETURN_BITS) * WORD : -WORD,
                .saved = -field(word, SAVED_SHIFT, SAVED_BITS) * WORD,
        };
}

/* Relaxed: invariant 1. The row that was kept last moves to the second place. */
static void keep(uintptr_t address, const struct frame_row *row)
{
        unsigned int set = set_of(address);
        uint64_t word = pack(address, row);

        if (!word)
                return;
        store_relaxed(&kept[set][1], load_relaxed(&kept[set][0]));
        store_relaxed(&kept[set][0], word);
}

/* The kept row of an address, 0 if there is none. */
static inline uint64_t find_kept(uintptr_t address)
{
        unsigned int set = set_of(address);

        for (unsigned int way = 0; way < WAYS; way++) {
                /* Relaxed: invariant 1. */
                uint64_t word = load_relaxed(&kept[set][way]);

                if (word >> TAG_SHIFT == tag_of(address) && word & IN_USE)
                        return word;
        }
        return 0;
}

/* ---- Made rows --------------------------------------------------------------------------- */

enum { MADE_BITS = 12 };

/*
 * A word as above, without a return address, and its key, which has the word in it: so a key and a word of two
 * rows, which other threads have written, do not fit together.
 */
struct made {
        uint64_t mixed; /* key ^ word */
        uint64_t word;
};

/* Mapped when walks are prepared, as mlockall would lock a static table. */
static struct made *made_rows;

void row_walk_prepare(void)
{
        struct made *none = NULL;
        struct made *rows;

        if (load_acquire(&made_rows))
                return;
        rows = system_map(sizeof(*rows) << MADE_BITS);
        /* Release, with the acquire in make_row; another thread may have been first. */
        if (rows && !compare_swap(&made_rows, &none, rows))
                system_unmap(rows, sizeof(*rows) << MADE_BITS);
}

/* Relaxed: a key tells whether its word belongs to it. */
static enum row_answer make_row(const struct frame_description *found, struct frame_row *row)
{
        struct made *rows = load_acquire(&made_rows);
        uint64_t key = rows ? frame_row_key(found) : 0;
        struct made *made = rows + (key >> (64 - MADE_BITS));
        enum row_answer answer;
        uint64_t word;

        if (!key)
                return frame_row_make(found, row);
        word = load_relaxed(&made->word);
        if (word & IN_USE && (load_relaxed(&made->mixed) ^ word) == key) {
                *row = unpack(word);
                return ROW_FOUND;
        }
        answer = frame_row_make(found, row);
        word = answer == ROW_FOUND ? pack(0, row) : 0;
        if (word) {
                store_relaxed(&made->mixed, key ^ word);
                store_relaxed(&made->word, word);
        }
        return answer;
}

/* ---- Rows -------------------------------------------------------------------------------- */

static KMEM_NOINLINE enum row_answer read_row(uintptr_t address, struct frame_row *row)
{
        unsigned int set = set_of(address);
        uint32_t hint = load_relaxed(&hints[set]); /* relaxed: any number will do */
        struct frame_description found;
        enum row_answer answer;
        struct found_object object;
        uint32_t before = hint;

        if (!find_object)
                return ROW_UNKNOWN;
        if (find_object((void *)(address - 1), &object) != 0)
                return ROW_NONE;
        answer = frame_row_find(object.frames, address, &hint, &found);
        if (answer != ROW_FOUND)
                return answer;
        if (!is_lasting(address - 1)) {
                if (hint != before)
                        store_relaxed(&hints[set], hint);
                return make_row(&found, row);
        }
        answer = frame_row_make(&found, row);
        if (answer == ROW_FOUND)
                keep(address, row);
        return answer;
}

/* ---- The walk ---------------------------------------------------------------------------- */

struct frame {
        uintptr_t return_address;
        uintptr_t stack_pointer; /* behind the call that returns there */
        uintptr_t frame_pointer;
        bool is_higher; /* the stack pointer may be */
};

/*
 * Pages that the kernel has said can be read, by number; 0: none. They hold for a single walk, as a page may
 * be unmapped before the next. Without them each frame of made code would ask the kernel four times.
 */
enum { READABLE_PAGES = 8 };
struct readable {
        uintptr_t pages[READABLE_PAGES];
};

static uintptr_t word_at(uintptr_t address)
{
        return *(const uintptr_t *)address;
}

/* A signed return address becomes plain; others stay. */
static uintptr_t plain(uintptr_t address)
{
#ifdef __aarch64__
        register uintptr_t stripped __asm__("x30") = address;

        __asm__("hint #7" : "+r"(stripped)); /* xpaclri, nothing on machines without signatures */
        return stripped;
#else
        return address;
#endif
}

/* To the caller. */
static void leave(struct frame *frame, const struct frame_row *row)
{
        uintptr_t base = row->is_from_frame_pointer ? frame->frame_pointer : frame->stack_pointer;

        base += (uintptr_t)row->base;
        frame->return_address = plain(word_at(base + (uintptr_t)row->return_address));
        if (row->saved)
                frame->frame_pointer = word_at(base + (uintptr_t)row->saved);
        frame->stack_pointer = base;
        frame->is_higher = false;
}

static bool can_read(struct readable *readable, uintptr_t address)
{
        uintptr_t page = address >> PAGE_SHIFT;
        uintptr_t *place = &readable->pages[page % READABLE_PAGES];

        if (*place == page)
                return true;
        if (!system_can_read((const void *)(page << PAGE_SHIFT)))
                return false;
        *place = page;
        return true;
}

/*
 * Whether the kernel's code for the return from a signal's handler is at @address: the unwinder knows
 * it by its bytes where there is no row. A program may have unmapped code that it never returns to, as
 * Mono does at its end, so the bytes cannot be read unasked.
 */
static bool is_signal_return(struct readable *readable, uintptr_t address)
{
#ifdef __aarch64__
        static const uint8_t code[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4};
#else
        static const uint8_t code[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};
#endif

        return can_read(readable, address) && can_read(readable, address + sizeof(code) - 1) &&
               memcmp((const void *)address, code, sizeof(code)) == 0;
}

/*
 * Whether a call ends at @address: its bytes stand in front of it. Code lies in whole pages, so it can
 * be read around the address, also by is_signal_return, if both ends can.
 */
static bool follows_call(struct readable *readable, uintptr_t address)
{
        const uint8_t *end = (const uint8_t *)address;

        if (address < 2 * PAGE_SIZE || !can_read(readable, address - WORD) ||
            !can_read(readable, address + 2 * WORD - 1))
                return false;
#ifdef __aarch64__
        uint32_t code;

        memcpy(&code, end - sizeof(code), sizeof(code));
        /* bl; blr, and its forms that check a signature */
        return (code & 0xfc000000) == 0x94000000 || (code & 0xfffffc1f) == 0xd63f0000 ||
               (code & 0xfefff800) == 0xd63f0800;
#else
        if (end[-5] == 0xe8)
                return true;
        /* An indirect call has two to seven bytes, and 2 in the middle bits of the second. */
        for (int bytes = 2; bytes <= 7; bytes++)
                if (end[-bytes] == 0xff && (end[1 - bytes] >> 3 & 7) == 2)
                        return true;
        return false;
#endif
}

/*
 * Return addresses in code without rows: a call stood in front of each when it was looked at, and the kernel's
 * code for the return from a signal's handler was not there. Code is looked at once, because the kernel has to be
 * asked about its page in every walk, and the frames of a stack lie in as many pages. Relaxed: a word is an
 * address whole, whoever wrote it.
 */
enum { KNOWN_BITS = 10 };
static KMEM_SPARSE uintptr_t known_calls[1 << KNOWN_BITS];

static uintptr_t *place_of_call(uintptr_t address)
{
        return &known_calls[(address * 0x9e3779b97f4a7c15u) >> (64 - KNOWN_BITS)];
}

static bool is_known_call(uintptr_t address)
{
        return load_relaxed(place_of_call(address)) == address;
}

enum { FRAME_BYTES_MOST = 1 << 20 }; /* from a stack pointer to the frame that is found */

/* Invariant 4: to the frame that the frame pointer leads to; false if it leads nowhere. */
static bool leave_by_frame_pointer(struct readable *readable, struct frame *frame)
{
        uintptr_t record = frame->frame_pointer;
        uintptr_t address;

        /* A record below the stack pointer is as far away as one behind the end. */
        if (record % WORD || record - frame->stack_pointer > FRAME_BYTES_MOST ||
            !can_read(readable, record) || !can_read(readable, record + WORD))
                return false;
        address = plain(word_at(record + WORD));
        if (!is_known_call(address) && !follows_call(readable, address))
                return false;
        *frame = (struct frame){
                .return_address = address,
                .stack_pointer = record + 2 * WORD,
                .frame_pointer = word_at(record),
#ifdef __aarch64__
                .is_higher = true,
#endif
        };
        return true;
}

enum step { STEP_DONE, STEP_END, STEP_UNKNOWN };

/* A frame whose row is not kept, or needs more than a row. @word: the kept row, 0: none. */
static KMEM_NOINLINE enum step leave_slowly(struct readable *readable, struct frame *frame,
                                            uint64_t word)
{
        struct frame_row row;

        if (word) {
                row = unpack(word);
        } else {
                switch (read_row(frame->return_address, &row)) {
                case ROW_FOUND:
                        break;
                case ROW_NONE:
                        if (!is_known_call(frame->return_address)) {
                                if (is_signal_return(readable, frame->return_address))
                                        return STEP_UNKNOWN;
                                if (follows_call(readable, frame->return_address))
                                        store_relaxed(place_of_call(frame->return_address),
                                                      frame->return_address);
                        }
                        return leave_by_frame_pointer(readable, frame) ? STEP_DONE : STEP_END;
                case ROW_UNKNOWN:
                        return STEP_UNKNOWN;
                }
        }
        if (row.is_last)
                return STEP_END;
        if (row.is_from_frame_pointer || !frame->is_higher)
                leave(frame, &row);
        else if (!leave_by_frame_pointer(readable, frame))
                return STEP_END;
        return STEP_DONE;
}

/*
 * The frames of the last long walk, of a few threads by their stacks. A sample comes so seldom that the
 * program has pushed rows and the stack's outer parts out of the processor's caches, and each frame says
 * alone where the next one is. Walks of a thread have most outer frames in common, so all that the last one
 * read is asked for at once. Nothing is read there, so whatever other threads have left will do: relaxed.
 */
enum { EXPECTED_FRAMES = 128, EXPECTED_STACKS = 8, STACK_SHIFT = 16, SHORT_WALK = 32 };
struct expected {
        uintptr_t address;
        uintptr_t base;
};
static KMEM_SPARSE struct expected expected[EXPECTED_STACKS][EXPECTED_FRAMES + 1];

static struct expected *expected_of(uintptr_t stack_pointer)
{
        uint64_t hash = (stack_pointer >> STACK_SHIFT) * 0x9e3779b97f4a7c15u;

        return expected[hash >> 61];
}

static void ask_for(const struct expected *last)
{
        for (int i = 0; i < EXPECTED_FRAMES; i++) {
                uintptr_t address = load_relaxed(&last[i].address);

                if (!address)
                        return;
                __builtin_prefetch(kept[set_of(address)]);
                __builtin_prefetch((const void *)(load_relaxed(&last[i].base) - WORD));
        }
}

/* @address was read below @base; the end of the stack may follow. */
static inline void expect(struct expected *last, uintptr_t address, uintptr_t base)
{
        store_relaxed(&last[0].address, address);
        store_relaxed(&last[0].base, base);
        store_relaxed(&last[1].address, (uintptr_t)0);
}

/*
 * Registers of the walk stay in registers of the processor: each frame waits for the frame before, and a way through
 * memory would be most of it.
 */
KMEM_NOINLINE int row_walk(void **frames, int room, uintptr_t own, uintptr_t own_end)
{
        const uintptr_t *record = __builtin_frame_address(0);
        uintptr_t address = plain((uintptr_t)__builtin_return_address(0));
        uintptr_t stack_pointer = (uintptr_t)__builtin_dwarf_cfa();
        uintptr_t frame_pointer = record[0];
        struct expected *last = room > SHORT_WALK ? expected_of(stack_pointer) : NULL;
        struct readable readable = {0};
        bool is_higher = false;
        int count = 0;

        if (last)
                ask_for(last);
        while (address && count < room) {
                uint64_t word = find_kept(address);

                if (count || address < own || address >= own_end)
                        frames[count++] = (void *)address;
                if (last && count && count <= EXPECTED_FRAMES)
                        expect(&last[count - 1], address, stack_pointer);
                if (likely(word && !(word & IS_LAST)) &&
                    likely(word & IS_FROM_FRAME_POINTER || !is_higher)) {
                        struct frame_row row = unpack(word);
                        uintptr_t base = row.is_from_frame_pointer ? frame_pointer : stack_pointer;

                        base += (uintptr_t)row.base;
                        address = plain(word_at(base + (uintptr_t)row.return_address));
                        if (row.saved)
                                frame_pointer = word_at(base + (uintptr_t)row.saved);
                        stack_pointer = base;
                        is_higher = false;
                } else {
                        struct frame frame = {address, stack_pointer, frame_pointer, is_higher};
                        enum step step = leave_slowly(&readable, &frame, word);

                        if (step != STEP_DONE)
                                return step == STEP_END ? count : ROW_WALK_UNKNOWN;
                        address = frame.return_address;
                        stack_pointer = frame.stack_pointer;
                        frame_pointer = frame.frame_pointer;
                        is_higher = frame.is_higher;
                }
        }
        return count;
}

#else

void row_walk_prepare(void)
{
}

int row_walk(void **frames, int room, uintptr_t own, uintptr_t own_end)
{
        (void)frames, (void)room, (void)own, (void)own_end;
        return ROW_WALK_UNKNOWN;
}

#endif
