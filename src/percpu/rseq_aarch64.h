/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The restartable sequences for AArch64. pop and push of a single object are in
 * kmem-sequence-aarch64.h, because programs have them too. rseq_x86_64.h says for the others which
 * words they read, their commit, the state after an abort, and their opponents; this file says only
 * the differences.
 */
#ifndef KMEM_PERCPU_RSEQ_AARCH64_H
#define KMEM_PERCPU_RSEQ_AARCH64_H

/* Assembly is laid out by hand. */
/* clang-format off */

#define RSEQ_SIGNATURE_VALUE KMEM_RSEQ_SIGNATURE

static KMEM_ALWAYS_INLINE void *rseq_pop(uint64_t pair_offset)
{
        return kmem_sequence_pop(fast.map, fast.rseq, fast.slot_field, pair_offset);
}

static KMEM_ALWAYS_INLINE enum push_result rseq_push(uint64_t pair_offset, void *object)
{
        return (enum push_result)kmem_sequence_push(fast.map, fast.rseq, fast.slot_field,
                                                    pair_offset, object);
}

/* rseq_push that marks the object in place of the look at the newest one. */
static KMEM_ALWAYS_INLINE enum kmem_push push_marked(const uint16_t *map, intptr_t rseq,
                                                     intptr_t slot_field, uint64_t pair_offset,
                                                     void *object)
{
        KMEM_SEQUENCE_PUSH("str %[mark], [%[object]]\n\t", [mark] "r"(FREED_MARK), )
}

static KMEM_ALWAYS_INLINE bool rseq_push_marked(uint64_t pair_offset, void *object)
{
        return push_marked(fast.map, fast.rseq, fast.slot_field, pair_offset, object) ==
               KMEM_PUSH_DONE;
}

/* Copies @taken (1 or more) pointers, and does @check with each. */
#define COPY_POINTERS(source, target, check)                                                       \
        "mov %[index], #0\n"                                                                       \
        "6:\tldr %[copied], [" source ", %[index], lsl #3]\n\t"                                    \
        "str %[copied], [" target ", %[index], lsl #3]\n\t"                                        \
        check                                                                                      \
        "add %[index], %[index], #1\n\t"                                                           \
        "cmp %[index], %[taken]\n\t"                                                               \
        "b.lo 6b\n\t"

static inline unsigned int rseq_pop_bulk(uint64_t pair_offset, void **objects, uint64_t count)
{
        uint64_t thread;
        uint64_t area;
        uint64_t work;
        uint64_t size;
        uint64_t taken;
        uint64_t source;
        uint64_t index;
        uint64_t copied;

        __asm__ volatile goto(KMEM_RSEQ_BEGIN KMEM_RSEQ_LOAD_SLOT
                              "ldr %[work], [%[work], %[offset]]\n\t"
                              "ldr %w[size], [%[work], #%c[count_at]]\n\t"
                              "cbz %w[size], %l[slow]\n\t"
                              "cmp %[size], %[count]\n\t"
                              "csel %[taken], %[size], %[count], ls\n\t"
                              "sub %[size], %[size], %[taken]\n\t"
                              "add %[source], %[work], #%c[first]\n\t"
                              "add %[source], %[source], %[size], lsl #3\n\t"
                              COPY_POINTERS("%[source]", "%[objects]", "")
                              "str %w[size], [%[work], #%c[count_at]]" KMEM_RSEQ_END
                              : [size] "=&r"(size), [taken] "=&r"(taken), [source] "=&r"(source),
                                [index] "=&r"(index), [copied] "=&r"(copied), KMEM_RSEQ_OUTPUTS
                              : [objects] "r"(objects), [count] "r"(count),
                                [offset] "r"(pair_offset),
                                KMEM_RSEQ_OPERANDS(fast.map, fast.rseq, fast.slot_field)
                              : "memory", "cc"
                              : slow);
        KMEM_OUTPUTS_STORED;
        return (unsigned int)taken;
slow:
        KMEM_OUTPUTS_STORED;
        return 0;
}

static inline unsigned int rseq_push_bulk(uint64_t pair_offset, void **objects, uint64_t count)
{
        uint64_t thread;
        uint64_t area;
        uint64_t work;
        uint64_t size;
        uint64_t taken;
        uint64_t target;
        uint64_t index;
        uint64_t copied;
        uint64_t distances; /* the bits of all distances from the heap's base */

        __asm__ volatile goto(KMEM_RSEQ_BEGIN KMEM_RSEQ_LOAD_SLOT
                              "ldr %[work], [%[work], %[offset]]\n\t"
                              "ldp %w[size], %w[taken], [%[work], #%c[count_at]]\n\t"
                              "subs %w[taken], %w[taken], %w[size]\n\t"
                              "b.ls %l[slow]\n\t"
                              "cmp %[taken], %[count]\n\t"
                              "csel %[taken], %[taken], %[count], ls\n\t"
                              "add %[target], %[work], #%c[first]\n\t"
                              "add %[target], %[target], %[size], lsl #3\n\t"
                              "add %[size], %[size], %[taken]\n\t"
                              "mov %[distances], #0\n\t"
                              COPY_POINTERS("%[objects]", "%[target]",
                                            "sub %[copied], %[copied], %[base]\n\t"
                                            "orr %[distances], %[distances], %[copied]\n\t")
                              "tst %[distances], %[outside]\n\t"
                              "b.ne %l[slow]\n\t"
                              "add %[work], %[work], #%c[count_at]\n\t"
                              "stlr %w[size], [%[work]]" KMEM_RSEQ_END
                              : [size] "=&r"(size), [taken] "=&r"(taken), [target] "=&r"(target),
                                [index] "=&r"(index), [copied] "=&r"(copied),
                                [distances] "=&r"(distances), KMEM_RSEQ_OUTPUTS
                              : [objects] "r"(objects), [count] "r"(count), [base] "r"(heap.base),
                                [outside] "r"(heap.outside), [offset] "r"(pair_offset),
                                KMEM_RSEQ_OPERANDS(fast.map, fast.rseq, fast.slot_field)
                              : "memory", "cc"
                              : slow);
        KMEM_OUTPUTS_STORED;
        return (unsigned int)taken;
slow:
        KMEM_OUTPUTS_STORED;
        return 0;
}

/*
 * A plain store of two registers is whole only from FEAT_LSE2 on (Armv8.4): before, an interrupt
 * may come between its halves, and the sequence would be aborted with one sheaf in the pair that
 * its caller still owns. A store-exclusive of a pair is whole on every processor: either all 16
 * bytes change, or none (Arm ARM, "Requirements for single-copy atomicity").
 *
 * REPLACE-1  The pair is read by a load-exclusive, compared, and stored by a store-exclusive, which
 *            does nothing if anybody has written to the pair since. So a commit never overwrites
 *            anything but the expected pair. The halves of the load may be torn; then the store
 *            does nothing.
 * REPLACE-2  The store-exclusive is the last instruction of the sequence. An interrupt in front of
 *            it aborts; one behind it finds the sequence done, and the register that says whether
 *            the store was made is part of the thread's state.
 * REPLACE-3  A store that was not made has changed nothing. It may fail for reasons of the
 *            processor's, so it is tried again; after some attempts the caller installs nothing,
 *            as if it had been moved.
 *
 * Others see the two pointers of a commit at once or one after the other, depending on how they
 * load them: slot_read_pair loads halves, which may be of two pairs, and replace compares again.
 * The drainer loads halves only behind a fence, when nothing can commit (INV-4).
 *
 * Release: a sheaf is whole before it is seen; slot_read_pair acquires. Between the exclusives
 * stands no other access to memory, as the architecture asks for.
 */
enum { REPLACE_ATTEMPTS = 16 };

static inline bool rseq_replace(struct slot *slot, uint64_t pair_offset,
                                const struct pair *expected, const struct pair *new_pair)
{
        uint64_t thread;
        uint64_t area;
        uint64_t work;
        uint64_t main;
        uint64_t spare;
        uint32_t refused;

        for (unsigned int attempt = 0; attempt < REPLACE_ATTEMPTS; attempt++) {
                __asm__ volatile goto(KMEM_RSEQ_BEGIN KMEM_RSEQ_LOAD_SLOT
                                      "cmp %[work], %[slot]\n\t"
                                      "b.ne %l[slow]\n\t"
                                      "ldr %w[work], [%[stopped]]\n\t"
                                      "cbnz %w[work], %l[slow]\n\t"
                                      "ldxp %[main], %[spare], [%[pair]]\n\t"
                                      "cmp %[main], %[old_main]\n\t"
                                      "b.ne %l[slow]\n\t"
                                      "cmp %[spare], %[old_spare]\n\t"
                                      "b.ne %l[slow]\n\t"
                                      "stlxp %w[refused], %[new_main], %[new_spare], [%[pair]]"
                                      KMEM_RSEQ_END
                                      : [main] "=&r"(main), [spare] "=&r"(spare),
                                        [refused] "=&r"(refused), KMEM_RSEQ_OUTPUTS
                                      : [slot] "r"(slot->pairs), [stopped] "r"(&slot->stopped),
                                        [pair] "r"(&slot->pairs[pair_offset >> PAIR_SHIFT]),
                                        [old_main] "r"(expected->main),
                                        [old_spare] "r"(expected->spare),
                                        [new_main] "r"(new_pair->main),
                                        [new_spare] "r"(new_pair->spare),
                                        KMEM_RSEQ_OPERANDS(fast.map, fast.rseq, fast.slot_field)
                                      : "memory", "cc"
                                      : slow);
                KMEM_OUTPUTS_STORED;
                if (likely(!refused))
                        return true;
        }
slow:
        KMEM_OUTPUTS_STORED;
        return false;
}

/* clang-format on */
#endif
