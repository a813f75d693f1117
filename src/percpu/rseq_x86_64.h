/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The restartable sequences for x86-64. pop and push of a single object, and the text that all
 * sequences share, are in kmem-sequence.h, because programs have them too.
 */
#ifndef KMEM_PERCPU_RSEQ_X86_64_H
#define KMEM_PERCPU_RSEQ_X86_64_H

/* Assembly is laid out by hand. */
/* clang-format off */

#define RSEQ_SIGNATURE_VALUE KMEM_RSEQ_SIGNATURE
#define RSEQ_OPERANDS KMEM_RSEQ_OPERANDS(fast.map, fast.rseq, "r"(fast.slot_field))

static KMEM_ALWAYS_INLINE void *rseq_pop(uint64_t pair_offset)
{
        KMEM_SEQUENCE_POP(fast.map, fast.rseq, KMEM_RSEQ_LOAD_FIELD_AND_SLOT,
                          "m"(fast.slot_field))
}

static KMEM_ALWAYS_INLINE enum push_result rseq_push(uint64_t pair_offset, void *object)
{
        return (enum push_result)kmem_sequence_push_short(fast.map, fast.rseq, fast.slot_field,
                                                          pair_offset, object);
}

/*
 * rseq_push that marks the object (percpu/freed.h) in place of the look at the newest object. The
 * caller has seen that there is no mark. Writes the mark too, into an object that is still the
 * caller's: aborted before the commit, the mark may be there, and nothing else has changed.
 */
#define MARK_FREED "movq $" KMEM_TEXT(FREED_MARK_NUMBER) ", (%[object])\n\t"

static KMEM_ALWAYS_INLINE enum kmem_push push_marked(const uint16_t *map, intptr_t rseq,
                                                     intptr_t slot_field, uint64_t pair_offset,
                                                     void *object)
{
        KMEM_SEQUENCE_PUSH(MARK_FREED, KMEM_COMMIT_IN_MEMORY)
}

static KMEM_ALWAYS_INLINE bool rseq_push_marked(uint64_t pair_offset, void *object)
{
        return push_marked(fast.map, fast.rseq, fast.slot_field, pair_offset, object) ==
               KMEM_PUSH_DONE;
}

/*
 * Replaces a whole pair, if the thread still runs on @slot, the slot is not stopped, and the pair
 * is still the expected pair.
 * Reads: slot number, stop mark, both pointers.  Commits: one aligned 16-byte store.
 * Aborted before the commit: nothing changed.
 * Against: threads on the slot's own CPU, which abort this one, and a drainer. A replace that read
 * the mark clear is committed or aborted by the first fence, before the drainer reads the pointers;
 * later replaces see the mark (INV-4).
 *
 * The new pair is loaded in halves because the caller has just stored it in halves: a load of both
 * would wait until the two stores have reached the cache.
 */
static inline bool rseq_replace(struct slot *slot, uint64_t pair_offset,
                                const struct pair *expected, const struct pair *new_pair)
{
        uint64_t work;

        __asm__ volatile goto(KMEM_RSEQ_BEGIN KMEM_RSEQ_LOAD_SLOT
                              "cmpq %[slot], %[work]\n\t"
                              "jne %l[slow]\n\t"
                              "cmpl $0, %c[stopped](%[work])\n\t"
                              "jne %l[slow]\n\t"
                              "cmpq %[main], (%[work],%[offset])\n\t"
                              "jne %l[slow]\n\t"
                              "cmpq %[spare], 8(%[work],%[offset])\n\t"
                              "jne %l[slow]\n\t"
                              "movq (%[new_pair]), %%xmm0\n\t"
                              "movhps 8(%[new_pair]), %%xmm0\n\t"
                              "movaps %%xmm0, (%[work],%[offset])" KMEM_RSEQ_END
                              : [work] "=&r"(work)
                              : [slot] "r"(slot->pairs), [offset] "r"(pair_offset),
                                [main] "r"(expected->main), [spare] "r"(expected->spare),
                                [new_pair] "r"(new_pair),
                                [stopped] "i"((int)offsetof(struct slot, stopped) -
                                              (int)offsetof(struct slot, pairs)),
                                RSEQ_OPERANDS
                              : "memory", "cc", "xmm0"
                              : slow);
        return true;
slow:
        return false;
}

/*
 * Copies @taken pointers, eight a step and the rest by fours, twos and single. Loads and stores
 * have equal width in both directions: the processor hands a pointer that was just stored to a load
 * of equal width at once, and makes any other load wait. Between a load and its store CHECK_n looks
 * at xmm0 up to xmm(n-1), which hold two pointers each.
 */
#define COPY_2(source, target, at, register)                                                       \
        "movups " #at "(" source ",%[index],8), %%" register "\n\t"                                \
        "movups %%" register ", " #at "(" target ",%[index],8)\n\t"
#define COPY_POINTERS(source, target, CHECK_4, CHECK_2, CHECK_1)                                   \
        "xorl %k[index], %k[index]\n\t"                                                            \
        "jmp 7f\n"                                                                                 \
        "6:\t" COPY_2(source, target, 0, "xmm0") COPY_2(source, target, 16, "xmm1")                \
        COPY_2(source, target, 32, "xmm2") COPY_2(source, target, 48, "xmm3") CHECK_4              \
        "movq %[next], %[index]\n"                                                                 \
        "7:\tleaq 8(%[index]), %[next]\n\t"                                                        \
        "cmpq %[taken], %[next]\n\t"                                                               \
        "jbe 6b\n\t"                                                                               \
        "testb $4, %b[taken]\n\t"                                                                  \
        "jz 8f\n\t"                                                                                \
        COPY_2(source, target, 0, "xmm0") COPY_2(source, target, 16, "xmm1") CHECK_2               \
        "addq $4, %[index]\n"                                                                      \
        "8:\ttestb $2, %b[taken]\n\t"                                                              \
        "jz 9f\n\t"                                                                                \
        COPY_2(source, target, 0, "xmm0") CHECK_1                                                  \
        "addq $2, %[index]\n"                                                                      \
        "9:\ttestb $1, %b[taken]\n\t"                                                              \
        "jz 10f\n\t"                                                                               \
        "movq (" source ",%[index],8), %%xmm0\n\t"                                                 \
        "movq %%xmm0, (" target ",%[index],8)\n\t"

/*
 * Pops up to @count (1 or more) of the newest objects into an array. Returns how many; 0 if
 * rseq_pop would give NULL.
 * Reads and commits as pop does, with size - n. The array belongs to the caller: an aborted copy
 * into it is begun anew.  Against: as pop.
 */
static KMEM_ALWAYS_INLINE unsigned int rseq_pop_bulk(uint64_t pair_offset, void **objects,
                                                     uint64_t count)
{
        uint64_t work;
        uint64_t size;
        uint64_t taken;
        uint64_t source;
        uint64_t index;
        uint64_t next;

        __asm__ volatile goto(KMEM_RSEQ_BEGIN KMEM_RSEQ_LOAD_SLOT
                              "movq (%[work],%[offset]), %[work]\n\t"
                              "movl %c[count_at](%[work]), %k[size]\n\t"
                              "testl %k[size], %k[size]\n\t"
                              "jz %l[slow]\n\t"
                              "movq %[size], %[taken]\n\t"
                              "cmpq %[count], %[taken]\n\t"
                              "cmovaq %[count], %[taken]\n\t"
                              "subq %[taken], %[size]\n\t"
                              "leaq %c[first](%[work],%[size],8), %[source]\n\t"
                              COPY_POINTERS("%[source]", "%[objects]", "", "", "")
                              "10:\tmovl %k[size], %c[count_at](%[work])" KMEM_RSEQ_END
                              : [work] "=&r"(work), [size] "=&r"(size), [taken] "=&r"(taken),
                                [source] "=&r"(source), [index] "=&r"(index), [next] "=&r"(next)
                              : [objects] "r"(objects), [count] "r"(count),
                                [offset] "r"(pair_offset), RSEQ_OPERANDS
                              : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3"
                              : slow);
        KMEM_OUTPUTS_STORED;
        return (unsigned int)taken;
slow:
        KMEM_OUTPUTS_STORED;
        return 0;
}

/* xmm5 gathers the bits of all distances from the heap's base, which xmm4 holds twice. */
#define GATHER(register)                                                                           \
        "psubq %%xmm4, %%" register "\n\t"                                                         \
        "por %%" register ", %%xmm5\n\t"

/*
 * Pushes up to @count (1 or more) objects of an array. Returns how many. 0 if rseq_push would give
 * PUSH_FULL, or if there is a stranger among them: NULL, or an address outside the heap's
 * reservation. The distance of a stranger from the heap's base has a bit of heap.outside. Double
 * frees are not looked for.
 * Writes above size, which nobody reads before the commit: the store of size + n. If the sequence
 * is aborted before the commit, or stops at a stranger, nothing has changed.  Against: as push.
 */
static KMEM_ALWAYS_INLINE unsigned int rseq_push_bulk(uint64_t pair_offset, void **objects,
                                                      uint64_t count)
{
        uint64_t work;
        uint64_t size;
        uint64_t taken;
        uint64_t target;
        uint64_t index;
        uint64_t next;

        __asm__ volatile goto(KMEM_RSEQ_BEGIN KMEM_RSEQ_LOAD_SLOT
                              "movq (%[work],%[offset]), %[work]\n\t"
                              "movl %c[count_at](%[work]), %k[size]\n\t"
                              "movl %c[count_at]+4(%[work]), %k[taken]\n\t"
                              "subl %k[size], %k[taken]\n\t"
                              "jbe %l[slow]\n\t"
                              "cmpq %[count], %[taken]\n\t"
                              "cmovaq %[count], %[taken]\n\t"
                              "leaq %c[first](%[work],%[size],8), %[target]\n\t"
                              "addl %k[taken], %k[size]\n\t"
                              "movq %[base], %%xmm4\n\t"
                              "punpcklqdq %%xmm4, %%xmm4\n\t"
                              "pxor %%xmm5, %%xmm5\n\t"
                              COPY_POINTERS("%[objects]", "%[target]",
                                            GATHER("xmm0") GATHER("xmm1") GATHER("xmm2")
                                                    GATHER("xmm3"),
                                            GATHER("xmm0") GATHER("xmm1"), GATHER("xmm0"))
                              "punpcklqdq %%xmm0, %%xmm0\n\t" GATHER("xmm0")
                              "10:\tpshufd $0xee, %%xmm5, %%xmm0\n\t"
                              "por %%xmm0, %%xmm5\n\t"
                              "movq %%xmm5, %[next]\n\t"
                              "testq %[outside], %[next]\n\t"
                              "jnz %l[slow]\n\t"
                              "movl %k[size], %c[count_at](%[work])" KMEM_RSEQ_END
                              : [work] "=&r"(work), [size] "=&r"(size), [taken] "=&r"(taken),
                                [target] "=&r"(target), [index] "=&r"(index), [next] "=&r"(next)
                              : [objects] "r"(objects), [count] "r"(count),
                                [offset] "r"(pair_offset), [base] "m"(heap.base),
                                [outside] "m"(heap.outside), RSEQ_OPERANDS
                              : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5"
                              : slow);
        KMEM_OUTPUTS_STORED;
        return (unsigned int)taken;
slow:
        KMEM_OUTPUTS_STORED;
        return 0;
}

/* clang-format on */
#endif
