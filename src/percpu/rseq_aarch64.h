/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The restartable sequences for AArch64. kmem-sequence.h and rseq_x86_64.h say for each sequence
 * the words it reads, its commit, the state after an abort, and its opponents. This file says only
 * the differences.
 *
 * The commit of push and replace is a store-release: a drainer on another CPU that sees the new
 * size or pointer sees the objects below it. A pair is replaced by a single stp, which FEAT_LSE2
 * makes single-copy atomic when aligned to 16; without LSE2 no slots are made from sequences at all
 * (slots.c), so that an interrupt between the halves cannot be seen.
 */
#ifndef KMEM_PERCPU_RSEQ_AARCH64_H
#define KMEM_PERCPU_RSEQ_AARCH64_H

/* Assembly is laid out by hand. */
/* clang-format off */

#define RSEQ_SIGNATURE "0xd428bc00"
#define RSEQ_SIGNATURE_VALUE 0xd428bc00u

#define RSEQ_BEGIN                                                                                 \
        ".pushsection __rseq_cs, \"aw\"\n\t"                                                       \
        ".balign 32\n"                                                                             \
        "5:\t.long 0, 0\n\t"                                                                       \
        ".quad 1f, 2f - 1f, 4f\n"                                                                  \
        "11:\t.long 0, 0\n\t"                                                                      \
        ".quad 1f, 2f - 1f, 12f\n\t"                                                               \
        ".popsection\n\t"                                                                          \
        "adrp %[work], 5b\n\t"                                                                     \
        "add %[work], %[work], :lo12:5b\n"                                                         \
        "3:\tstr %[work], [%[rseq], #8]\n"                                                         \
        "1:\n\t"

#define RSEQ_END                                                                                   \
        "\n2:\n\t"                                                                                 \
        ".pushsection __rseq_failure, \"ax\"\n\t"                                                  \
        ".inst " RSEQ_SIGNATURE "\n"                                                               \
        "4:\tadrp %[work], 11b\n\t"                                                                \
        "add %[work], %[work], :lo12:11b\n\t"                                                      \
        "b 3b\n\t"                                                                                 \
        ".inst " RSEQ_SIGNATURE "\n"                                                               \
        "12:\tb %l[slow]\n\t"                                                                      \
        ".popsection\n\t"

#define RSEQ_LOAD_SLOT                                                                             \
        "ldr %w[size], [%[rseq], #4]\n\t"                                                          \
        "cmp %w[size], #0\n\t"                                                                    \
        "b.mi %l[slow]\n\t"                                                                       \
        "ldr %w[work], [%[field]]\n\t"                                                             \
        "ldr %[work], [%[slots], %[work], lsl #3]\n\t"

static inline uintptr_t rseq_address(intptr_t offset)
{
        return (uintptr_t)thread_pointer() + (uintptr_t)offset;
}

static KMEM_ALWAYS_INLINE void *rseq_pop(uint64_t pair_offset)
{
        void *object;
        uint64_t work;
        uint64_t size;

        __asm__ volatile goto(RSEQ_BEGIN RSEQ_LOAD_SLOT
                              "ldr %[work], [%[work], %[pair]]\n\t"
                              "ldr %w[size], [%[work], #%c[count_at]]\n\t"
                              "cbz %w[size], %l[slow]\n\t"
                              "sub %w[size], %w[size], #1\n\t"
                              "add %[object], %[work], #%c[first]\n\t"
                              "ldr %[object], [%[object], %[size], lsl #3]\n\t"
                              "str %w[size], [%[work], #%c[count_at]]" RSEQ_END
                              : [object] "=&r"(object), [work] "=&r"(work), [size] "=&r"(size)
                              : [pair] "r"(pair_offset),
                                [slots] "r"(front()->slots), [rseq] "r"(rseq_address(fast.rseq)),
                                [field] "r"(rseq_address(fast.slot_field)),
                                [first] "i"(offsetof(struct sheaf, object)),
                                [count_at] "i"(offsetof(struct sheaf, size))
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

/* @look comes behind the test for room, and may name the operands that follow it. */
#define SEQUENCE_PUSH(look, ...)                                                                   \
        uint64_t work;                                                                             \
        uint64_t size;                                                                             \
        uint64_t place;                                                                            \
                                                                                                   \
        __asm__ volatile goto(RSEQ_BEGIN RSEQ_LOAD_SLOT                                            \
                              "ldr %[work], [%[work], %[pair]]\n\t"                                \
                              "ldp %w[size], %w[place], [%[work], #%c[count_at]]\n\t"              \
                              "cmp %w[size], %w[place]\n\t"                                        \
                              "b.hs %l[slow]\n\t"                                                  \
                              "add %[place], %[work], %[size], lsl #3\n\t"                         \
                              look                                                                 \
                              "str %[object], [%[place], #%c[first]]\n\t"                          \
                              "ldr %w[size], [%[work], #%c[count_at]]\n\t"                         \
                              "add %w[size], %w[size], #1\n\t"                                     \
                              "add %[work], %[work], #%c[count_at]\n\t"                            \
                              "stlr %w[size], [%[work]]" RSEQ_END                                  \
                              : [work] "=&r"(work), [size] "=&r"(size), [place] "=&r"(place)       \
                              : __VA_ARGS__ [object] "r"(object), [pair] "r"(pair_offset),           \
                                [slots] "r"(front()->slots), [rseq] "r"(rseq_address(fast.rseq)),  \
                                [field] "r"(rseq_address(fast.slot_field)),                        \
                                [first] "i"(offsetof(struct sheaf, object)),                       \
                                [count_at] "i"(offsetof(struct sheaf, size))                       \
                              : "memory", "cc"                                                     \
                              : slow, on_top);                                                     \
        return PUSH_DONE;                                                                          \
slow:                                                                                              \
        return PUSH_FULL;                                                                          \
on_top:                                                                                            \
        return PUSH_ON_TOP;

static KMEM_ALWAYS_INLINE enum push_result rseq_push(uint64_t pair_offset, void *object)
{
        SEQUENCE_PUSH("ldr %[size], [%[place], #%c[first]-8]\n\t"
                      "cmp %[size], %[object]\n\t"
                      "b.eq %l[on_top]\n\t", )
}

/* rseq_push that marks the object in place of the look at the newest one (rseq_x86_64.h). */
static KMEM_ALWAYS_INLINE enum push_result push_marked(uint64_t pair_offset, void *object)
{
        SEQUENCE_PUSH("str %[mark], [%[object]]\n\t", [mark] "r"(FREED_MARK), )
}

static KMEM_ALWAYS_INLINE bool rseq_push_marked(uint64_t pair_offset, void *object)
{
        return push_marked(pair_offset, object) == PUSH_DONE;
}

/*
 * AArch64 has no sequence for several objects, so these loops pop or push one object at a time,
 * each in a sequence of its own. A stranger ends a push.
 */
static inline unsigned int rseq_pop_bulk(uint64_t pair_offset, void **objects, uint64_t count)
{
        unsigned int taken = 0;

        while (taken < count && (objects[taken] = rseq_pop(pair_offset)))
                taken++;
        return taken;
}

static inline unsigned int rseq_push_bulk(uint64_t pair_offset, void **objects, uint64_t count)
{
        unsigned int taken = 0;

        while (taken < count && !(((uintptr_t)objects[taken] - heap.base) & heap.outside) &&
               rseq_push(pair_offset, objects[taken]) == PUSH_DONE)
                taken++;
        return taken;
}

static inline bool rseq_replace(struct slot *slot, uint64_t pair_offset,
                                const struct pair *expected, const struct pair *new_pair)
{
        uint64_t work;
        uint64_t size;

        __asm__ volatile goto(RSEQ_BEGIN RSEQ_LOAD_SLOT
                              "cmp %[work], %[slot]\n\t"
                              "b.ne %l[slow]\n\t"
                              "ldr %w[size], [%[stopped]]\n\t"
                              "cbnz %w[size], %l[slow]\n\t"
                              "ldr %[size], [%[pair]]\n\t"
                              "cmp %[size], %[main]\n\t"
                              "b.ne %l[slow]\n\t"
                              "ldr %[size], [%[pair], #8]\n\t"
                              "cmp %[size], %[spare]\n\t"
                              "b.ne %l[slow]\n\t"
                              "dmb ish\n\t"
                              "stp %[new_main], %[new_spare], [%[pair]]" RSEQ_END
                              : [work] "=&r"(work), [size] "=&r"(size)
                              : [slot] "r"(slot->pairs), [pair] "r"(&slot->pairs[pair_offset >> PAIR_SHIFT]),
                                [main] "r"(expected->main), [spare] "r"(expected->spare),
                                [new_main] "r"(new_pair->main), [new_spare] "r"(new_pair->spare),
                                [slots] "r"(front()->slots), [rseq] "r"(rseq_address(fast.rseq)),
                                [field] "r"(rseq_address(fast.slot_field)),
                                [stopped] "r"(&slot->stopped)
                              : "memory", "cc"
                              : slow);
        return true;
slow:
        return false;
}

/* clang-format on */
#endif
