/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The two restartable sequences that may stand in a program's own code, and the parts of the
 * library's memory that they touch. Programs include kmem-inline.h; the library includes this
 * header, so that its calls and inlined code run the same instructions.
 *
 * Layout 1 is everything that compiled programs know:
 *  - struct kmem_inline_layout, the library's object of that name and number;
 *  - the first 32 bits of a cache: the distance of the cache's pair from a slot's first;
 *  - the pointers to slots' first pairs, 64 KiB in front of layout->map, one for each slot number;
 *  - a pair begins with the pointer to its main sheaf; size, capacity and objects of a sheaf are at
 *    KMEM_SHEAF_SIZE, 4 bytes behind it, and at KMEM_SHEAF_OBJECTS.
 * A library with another layout has another symbol, so a program that was compiled for layout 1
 * does not link with it, or does not start: "undefined symbol: kmem_inline_layout_1".
 */
#ifndef KMEM_SEQUENCE_H
#define KMEM_SEQUENCE_H

#include <stddef.h>
#include <stdint.h>

/* Assembly is laid out by hand. */
/* clang-format off */

/*
 * The words that the fast paths read, in a single line of the processor's cache. They are set when
 * the heap starts, before the first cache is made. From then on heap_bytes grows, and rseq changes
 * for a moment while a program in a sandbox calls vfork. Without restartable sequences, and in that
 * moment, rseq names an area that says "not registered", so that every sequence leaves by its slow
 * path. Either value serves every thread but the child of vfork.
 */
struct kmem_inline_layout {
        const uint16_t *map;  /* the page map; the slot pointers lie in front of it */
        intptr_t rseq;        /* bytes from the thread pointer to the rseq area */
        intptr_t slot_field;  /* bytes from the thread pointer to the 32-bit slot number */
        uintptr_t heap_base;  /* address of the heap */
        size_t heap_bytes;    /* bytes of address space with objects; grows. 0: every free takes
                                 the slow path */
        size_t malloc_limit;  /* for the library only: malloc sizes up to here may hit a class */
        size_t heap_units;    /* for the library only: heap_bytes in units of 16 bytes */
};

enum {
        KMEM_SLOT_POINTERS = -65536, /* from layout->map */
        KMEM_SHEAF_SIZE = 8,
        KMEM_SHEAF_OBJECTS = 16,
};

/* The result of a push. */
enum kmem_push {
        KMEM_PUSH_DONE,
        KMEM_PUSH_FULL,
        KMEM_PUSH_ON_TOP, /* the object is the newest in the sheaf already: freed twice in a row */
};

/*
 * Stands behind a sequence with an output that is used, on each way out of it. gcc before 12.4 and
 * 13.3 may copy an output for later code before the statement has stored it (its bug 113921), but
 * not across another statement.
 */
#define KMEM_OUTPUTS_STORED __asm__ volatile("")

#define KMEM_TEXT_(value) #value
#define KMEM_TEXT(value) KMEM_TEXT_(value)

/* asm goto with outputs exists from gcc 11 and clang 11 on. */
#if defined(__linux__) && !defined(__ILP32__) &&                                                   \
        (defined(__x86_64__) || defined(__AARCH64EL__)) &&                                         \
        ((defined(__clang__) && __clang_major__ >= 11) ||                                          \
         (!defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 11))
#define KMEM_HAS_SEQUENCES 1
#else
#define KMEM_HAS_SEQUENCES 0
#endif

/* clang-format on */

#if KMEM_HAS_SEQUENCES && defined(__AARCH64EL__)

#include "kmem-sequence-aarch64.h"

#elif KMEM_HAS_SEQUENCES

/* clang-format off */

/*
 * Each sequence stores the address of its descriptor into the thread's rseq area, then runs. If the
 * kernel preempts, migrates or signals the thread between start and commit, it continues at the
 * abort address: the kernel has cleared the field. There it begins anew, once, with a second
 * descriptor. The abort of the second leaves by the slow label, because a debugger that goes
 * through a sequence by single steps makes the kernel abort it at each step. The area's other
 * fields are the kernel's and only read. A conditional jump out of the sequence is allowed at any
 * point before the commit.
 *
 * A thread that is not registered reads cpu_id below 0 and leaves by the slow label.
 *
 * The text is AT&T's (not -masm=intel). It pushes nothing, so it leaves the red zone alone.
 */

/* The word before an abort address, by which the kernel recognises the address. */
#define KMEM_RSEQ_SIGNATURE 0x53053053

/*
 * Label 1 is the start, 2 the end, 3 the store, 4 the abort address, 5 the descriptor: version 0,
 * no flags, start, length, abort. 11 and 12 are the second descriptor and its abort address. Both
 * ways begin with the store right in front of the start, because the kernel clears the field of a
 * thread that it finds outside the sequence. Both sections join the group of the code ("?"), if
 * that has one: then the linker keeps or drops them together with a copy of a C++ function.
 */
#define KMEM_RSEQ_BEGIN                                                                            \
        ".pushsection __rseq_cs, \"aw?\"\n\t"                                                      \
        ".balign 32\n"                                                                             \
        "5:\t.long 0, 0\n\t"                                                                       \
        ".quad 1f, 2f - 1f, 4f\n"                                                                  \
        "11:\t.long 0, 0\n\t"                                                                      \
        ".quad 1f, 2f - 1f, 12f\n\t"                                                               \
        ".popsection\n\t"                                                                          \
        "leaq 5b(%%rip), %[work]\n"                                                                \
        "3:\tmovq %[work], %%fs:8(%[rseq])\n"                                                      \
        "1:\n\t"

/* ud1, never executed: the signature is its operand. */
#define KMEM_RSEQ_SIGN                                                                             \
        ".byte 0x0f, 0xb9, 0x3d\n\t"                                                               \
        ".long " KMEM_TEXT(KMEM_RSEQ_SIGNATURE) "\n"

#define KMEM_RSEQ_END                                                                              \
        "\n2:\n\t"                                                                                 \
        ".pushsection __rseq_failure, \"ax?\"\n\t"                                                 \
        KMEM_RSEQ_SIGN                                                                             \
        "4:\tleaq 11b(%%rip), %[work]\n\t"                                                         \
        "jmp 3b\n\t"                                                                               \
        KMEM_RSEQ_SIGN                                                                             \
        "12:\tjmp %l[slow]\n\t"                                                                    \
        ".popsection\n\t"

/*
 * work := this thread's slot, as long as the sequence is not aborted. The offset of the slot
 * number's field is in a register, or loaded on the way.
 */
#define KMEM_RSEQ_LOAD_SLOT KMEM_RSEQ_LOAD_SLOT_BY("movl %%fs:(%[field]), %k[work]\n\t")
#define KMEM_RSEQ_LOAD_FIELD_AND_SLOT                                                              \
        KMEM_RSEQ_LOAD_SLOT_BY("movq %[field], %[work]\n\t"                                        \
                               "movl %%fs:(%[work]), %k[work]\n\t")
#define KMEM_RSEQ_LOAD_SLOT_BY(load_number)                                                        \
        "cmpl $0, %%fs:4(%[rseq])\n\t"                                                             \
        "js %l[slow]\n\t"                                                                          \
        load_number "movq %c[slots](%[map],%[work],8), %[work]\n\t"

/* The operands that these texts name. */
#define KMEM_RSEQ_OPERANDS(table, area, number)                                                    \
        [map] "r"(table), [rseq] "r"(area), [field] number, [slots] "i"(KMEM_SLOT_POINTERS),       \
                [first] "i"(KMEM_SHEAF_OBJECTS), [count_at] "i"(KMEM_SHEAF_SIZE)

/*
 * Pops the newest object of the slot's main sheaf. NULL if the sheaf is empty or cold, or the
 * thread has no slot, or was aborted twice.
 * Reads: slot, main, size, object[size - 1].  Commits: the store of size - 1.
 * The object's place is computed by an instruction of its own, here and in the push: a processor that
 * hands a word which was just stored to a load at once does so only if neither has an index register
 * (Sapphire Rapids; docs/performance.md).
 * Aborted before the commit: nothing changed.
 * Against: threads on the slot's own CPU, which abort this one, and a drainer. The drainer's second
 * fence aborts a pop that read main before the exchange (INV-4).
 */
#define KMEM_SEQUENCE_POP(map, rseq, load_slot, field_operand)                                     \
        void *object;                                                                              \
        uint64_t work;                                                                             \
        uint64_t size;                                                                             \
                                                                                                   \
        __asm__ volatile goto(KMEM_RSEQ_BEGIN load_slot                                            \
                              "movq (%[work],%[offset]), %[work]\n\t"                              \
                              "movl %c[count_at](%[work]), %k[size]\n\t"                           \
                              "subl $1, %k[size]\n\t"                                              \
                              "jb %l[slow]\n\t"                                                    \
                              "leaq (%[work],%[size],8), %[object]\n\t"                            \
                              "movq %c[first](%[object]), %[object]\n\t"                           \
                              "movl %k[size], %c[count_at](%[work])" KMEM_RSEQ_END                 \
                              : [object] "=&a"(object), [work] "=&r"(work), [size] "=&r"(size)     \
                              : [offset] "r"(pair_offset),                                         \
                                KMEM_RSEQ_OPERANDS(map, rseq, field_operand)                       \
                              : "memory", "cc"                                                     \
                              : slow);                                                             \
        KMEM_OUTPUTS_STORED;                                                                       \
        if (!object)                                                                               \
                __builtin_unreachable();                                                           \
        return object;                                                                             \
slow:                                                                                              \
        KMEM_OUTPUTS_STORED;                                                                       \
        return NULL;

static inline __attribute__((always_inline)) void *
kmem_sequence_pop(const uint16_t *map, intptr_t rseq, intptr_t slot_field, uint64_t pair_offset)
{
        KMEM_SEQUENCE_POP(map, rseq, KMEM_RSEQ_LOAD_SLOT, "r"(slot_field))
}

/*
 * Pushes an object onto the slot's main sheaf. KMEM_PUSH_FULL if the sheaf is full or cold, or the
 * thread has no slot, or was aborted twice; KMEM_PUSH_ON_TOP if the object is the newest in the
 * sheaf already (a double free). @look says that; the library has another text there for frees by
 * address (percpu/rseq_x86_64.h).
 * Reads: slot, main, size, capacity, object[size - 1]; for size 0 the last is the word of size and
 * capacity, which is no object's address. Writes object[size], which nobody reads before the
 * commit.
 * Commits: the store of size + 1, by either of two texts. KMEM_COMMIT_BY_REGISTER has a load less,
 * for inlined code, where loads are the bottleneck; KMEM_COMMIT_IN_MEMORY has an instruction less,
 * for free.
 * Aborted before the commit: nothing changed.  Against: as pop.
 */
#define KMEM_COMMIT_BY_REGISTER                                                                    \
        "addl $1, %k[size]\n\t"                                                                    \
        "movl %k[size], %c[count_at](%[work])"
#define KMEM_COMMIT_IN_MEMORY "incl %c[count_at](%[work])"

#define KMEM_LOOK_ON_TOP                                                                           \
        "cmpq %[object], %c[first]-8(%[place])\n\t"                                                \
        "je %l[on_top]\n\t"

#define KMEM_SEQUENCE_PUSH(look, commit)                                                           \
        uint64_t work;                                                                             \
        uint64_t size;                                                                             \
        uint64_t place;                                                                            \
                                                                                                   \
        __asm__ volatile goto(KMEM_RSEQ_BEGIN KMEM_RSEQ_LOAD_SLOT                                  \
                              "movq (%[work],%[offset]), %[work]\n\t"                              \
                              "movl %c[count_at](%[work]), %k[size]\n\t"                           \
                              "cmpl %c[count_at]+4(%[work]), %k[size]\n\t"                         \
                              "jae %l[slow]\n\t"                                                   \
                              "leaq (%[work],%[size],8), %[place]\n\t"                             \
                              look                                                                 \
                              "movq %[object], %c[first](%[place])\n\t"                            \
                              commit KMEM_RSEQ_END                                                 \
                              : [work] "=&r"(work), [size] "=&r"(size), [place] "=&r"(place)       \
                              : [object] "r"(object), [offset] "r"(pair_offset),                   \
                                KMEM_RSEQ_OPERANDS(map, rseq, "r"(slot_field))                     \
                              : "memory", "cc"                                                     \
                              : slow, on_top);                                                     \
        return KMEM_PUSH_DONE;                                                                     \
slow:                                                                                              \
        return KMEM_PUSH_FULL;                                                                     \
on_top:                                                                                            \
        return KMEM_PUSH_ON_TOP;

static inline __attribute__((always_inline)) enum kmem_push
kmem_sequence_push(const uint16_t *map, intptr_t rseq, intptr_t slot_field, uint64_t pair_offset,
                   void *object)
{
        KMEM_SEQUENCE_PUSH(KMEM_LOOK_ON_TOP, KMEM_COMMIT_BY_REGISTER)
}

static inline __attribute__((always_inline)) enum kmem_push
kmem_sequence_push_short(const uint16_t *map, intptr_t rseq, intptr_t slot_field,
                         uint64_t pair_offset, void *object)
{
        KMEM_SEQUENCE_PUSH(KMEM_LOOK_ON_TOP, KMEM_COMMIT_IN_MEMORY)
}

/* For kmem-inline.h: a word of the layout or of a cache, and the layout's address. */
#define KMEM_TEXT_LOAD "movq %c[at](%[base]), %[to]"
#define KMEM_TEXT_LAYOUT "movq kmem_inline_layout_1@GOTPCREL(%%rip), %[to]"

/* clang-format on */
#endif

#endif
