/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The sequences of kmem-sequence.h for AArch64. That header says for each sequence which words it
 * reads, its commit, the state after an abort, and its opponents; this header says only the
 * differences. It is included from there, and programs include kmem-inline.h.
 *
 * The commit of a push is a store-release: a drainer on another CPU that sees the new size sees the
 * objects below it.
 *
 * Each sequence reads the thread pointer itself. A compiler may keep it over a call in which a
 * coroutine changes its thread, and a sequence on another thread's area is never aborted.
 */
#ifndef KMEM_SEQUENCE_AARCH64_H
#define KMEM_SEQUENCE_AARCH64_H

/* Assembly is laid out by hand. */
/* clang-format off */

/* A brk, never executed. */
#define KMEM_RSEQ_SIGNATURE 0xd428bc00

#define KMEM_RSEQ_BEGIN                                                                            \
        ".pushsection __rseq_cs, \"aw?\"\n\t"                                                      \
        ".balign 32\n"                                                                             \
        "5:\t.long 0, 0\n\t"                                                                       \
        ".quad 1f, 2f - 1f, 4f\n"                                                                  \
        "11:\t.long 0, 0\n\t"                                                                      \
        ".quad 1f, 2f - 1f, 12f\n\t"                                                               \
        ".popsection\n\t"                                                                          \
        "mrs %[thread], tpidr_el0\n\t"                                                             \
        "add %[area], %[thread], %[rseq]\n\t"                                                      \
        "adrp %[work], 5b\n\t"                                                                     \
        "add %[work], %[work], :lo12:5b\n"                                                         \
        "3:\tstr %[work], [%[area], #8]\n"                                                         \
        "1:\n\t"

#define KMEM_RSEQ_END                                                                              \
        "\n2:\n\t"                                                                                 \
        ".pushsection __rseq_failure, \"ax?\"\n\t"                                                 \
        ".inst " KMEM_TEXT(KMEM_RSEQ_SIGNATURE) "\n"                                               \
        "4:\tadrp %[work], 11b\n\t"                                                                \
        "add %[work], %[work], :lo12:11b\n\t"                                                      \
        "b 3b\n\t"                                                                                 \
        ".inst " KMEM_TEXT(KMEM_RSEQ_SIGNATURE) "\n"                                               \
        "12:\tb %l[slow]\n\t"                                                                      \
        ".popsection\n\t"

/* work := this thread's slot. */
#define KMEM_RSEQ_LOAD_SLOT                                                                        \
        "ldr %w[work], [%[area], #4]\n\t"                                                          \
        "cmp %w[work], #0\n\t"                                                                     \
        "b.lt %l[slow]\n\t"                                                                        \
        "ldr %w[work], [%[thread], %[field]]\n\t"                                                  \
        "ldr %[work], [%[slots], %[work], lsl #3]\n\t"

/* The registers and operands that these texts name. */
#define KMEM_RSEQ_OUTPUTS [thread] "=&r"(thread), [area] "=&r"(area), [work] "=&r"(work)
#define KMEM_RSEQ_OPERANDS(map, area_offset, field_offset)                                         \
        [slots] "r"((const char *)(map) + KMEM_SLOT_POINTERS), [rseq] "r"(area_offset),            \
                [field] "r"(field_offset), [first] "i"(KMEM_SHEAF_OBJECTS),                        \
                [count_at] "i"(KMEM_SHEAF_SIZE)

static inline __attribute__((always_inline)) void *
kmem_sequence_pop(const uint16_t *map, intptr_t rseq, intptr_t slot_field, uint64_t pair_offset)
{
        void *object;
        uint64_t thread;
        uint64_t area;
        uint64_t work;
        uint64_t size;

        __asm__ volatile goto(KMEM_RSEQ_BEGIN KMEM_RSEQ_LOAD_SLOT
                              "ldr %[work], [%[work], %[offset]]\n\t"
                              "ldr %w[size], [%[work], #%c[count_at]]\n\t"
                              "cbz %w[size], %l[slow]\n\t"
                              "sub %w[size], %w[size], #1\n\t"
                              "add %[object], %[work], #%c[first]\n\t"
                              "ldr %[object], [%[object], %[size], lsl #3]\n\t"
                              "str %w[size], [%[work], #%c[count_at]]" KMEM_RSEQ_END
                              : [object] "=&r"(object), [size] "=&r"(size), KMEM_RSEQ_OUTPUTS
                              : [offset] "r"(pair_offset),
                                KMEM_RSEQ_OPERANDS(map, rseq, slot_field)
                              : "memory", "cc"
                              : slow);
        KMEM_OUTPUTS_STORED;
        if (!object)
                __builtin_unreachable();
        return object;
slow:
        KMEM_OUTPUTS_STORED;
        return NULL;
}

/*
 * @look comes behind the test for room; the library has another text there for frees by address,
 * with an operand that follows it.
 */
#define KMEM_LOOK_ON_TOP                                                                           \
        "ldr %[newest], [%[place], #%c[first]-8]\n\t"                                              \
        "cmp %[newest], %[object]\n\t"                                                             \
        "b.eq %l[on_top]\n\t"

#define KMEM_SEQUENCE_PUSH(look, ...)                                                              \
        uint64_t thread;                                                                           \
        uint64_t area;                                                                             \
        uint64_t work;                                                                             \
        uint64_t size;                                                                             \
        uint64_t place;                                                                            \
        uint64_t newest;                                                                           \
                                                                                                   \
        __asm__ volatile goto(KMEM_RSEQ_BEGIN KMEM_RSEQ_LOAD_SLOT                                  \
                              "ldr %[work], [%[work], %[offset]]\n\t"                              \
                              "ldp %w[size], %w[place], [%[work], #%c[count_at]]\n\t"              \
                              "cmp %w[size], %w[place]\n\t"                                        \
                              "b.hs %l[slow]\n\t"                                                  \
                              "add %[place], %[work], %[size], lsl #3\n\t"                         \
                              look                                                                 \
                              "str %[object], [%[place], #%c[first]]\n\t"                          \
                              "add %w[size], %w[size], #1\n\t"                                     \
                              "add %[work], %[work], #%c[count_at]\n\t"                            \
                              "stlr %w[size], [%[work]]" KMEM_RSEQ_END                             \
                              : [size] "=&r"(size), [place] "=&r"(place), [newest] "=&r"(newest),  \
                                KMEM_RSEQ_OUTPUTS                                                  \
                              : __VA_ARGS__ [object] "r"(object), [offset] "r"(pair_offset),       \
                                KMEM_RSEQ_OPERANDS(map, rseq, slot_field)                          \
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
        KMEM_SEQUENCE_PUSH(KMEM_LOOK_ON_TOP, )
}

/* For kmem-inline.h: a word of the layout or of a cache, and the layout's address. */
#define KMEM_TEXT_LOAD "ldr %[to], [%[base], #%c[at]]"
#define KMEM_TEXT_LAYOUT                                                                           \
        "adrp %[to], :got:kmem_inline_layout_1\n\t"                                                \
        "ldr %[to], [%[to], #:got_lo12:kmem_inline_layout_1]"

/* clang-format on */
#endif
