/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The restartable sequences for x86-64.
 *
 * Each sequence stores the address of its descriptor into the thread's rseq area, then runs.
 * If the kernel preempts, migrates or signals the thread between start and commit, it continues
 * at the abort address, which jumps back to the store: the kernel has cleared the field. The
 * area's other fields are the kernel's and only read. A conditional jump out of the sequence is
 * allowed at any point before the commit.
 *
 * A thread that is not registered reads cpu_id below 0 and leaves by the slow label.
 */
#ifndef KMEM_PERCPU_RSEQ_X86_64_H
#define KMEM_PERCPU_RSEQ_X86_64_H

/* The word before an abort address, by which the kernel recognises one. */
#define RSEQ_SIGNATURE "0x53053053"
#define RSEQ_SIGNATURE_VALUE 0x53053053u

/*
 * Label 1 is the start, 2 the end, 3 the place to begin anew, 4 the abort address, 5 the
 * descriptor: version 0, no flags, start, length, abort.
 */
#define RSEQ_BEGIN                                                                                 \
        ".pushsection __rseq_cs, \"aw\"\n\t"                                                       \
        ".balign 32\n"                                                                             \
        "5:\t.long 0, 0\n\t"                                                                       \
        ".quad 1f, 2f - 1f, 4f\n\t"                                                                \
        ".popsection\n"                                                                            \
        "3:\tleaq 5b(%%rip), %[work]\n\t"                                                          \
        "movq %[work], %%fs:8(%[rseq])\n"                                                          \
        "1:\n\t"

#define RSEQ_END                                                                                   \
        "\n2:\n\t"                                                                                 \
        ".pushsection __rseq_failure, \"ax\"\n\t"                                                  \
        ".byte 0x0f, 0xb9, 0x3d\n\t" /* ud1: never executed, the signature is its operand */       \
        ".long " RSEQ_SIGNATURE "\n"                                                               \
        "4:\tjmp 3b\n\t"                                                                           \
        ".popsection\n\t"

/* work := this thread's slot, as long as the sequence is not aborted. */
#define RSEQ_LOAD_SLOT                                                                             \
        "cmpl $0, %%fs:4(%[rseq])\n\t"                                                             \
        "js %l[slow]\n\t"                                                                          \
        "movl %%fs:(%[field]), %k[work]\n\t"                                                       \
        "movq %c[slots](%[map],%[work],8), %[work]\n\t"

#define FRONT_OFFSET(member) ((long)offsetof(struct front, member) - (long)sizeof(struct front))

/*
 * Pop the newest object of the slot's main sheaf; NULL if it is empty, cold, or the thread has
 * no slot.
 * Reads: slot, main, size, object[size - 1].  Commits: the store of size - 1.
 * Aborted before it: nothing changed. Against: the same slot on this CPU, which aborts us, and
 * a drainer, whose second fence aborts a pop that read main before the exchange (INV-4).
 */
static KMEM_ALWAYS_INLINE void *rseq_pop(uint64_t pair_offset)
{
        void *object;
        uint64_t work;
        uint64_t size;

        __asm__ volatile goto(RSEQ_BEGIN RSEQ_LOAD_SLOT
                              "movq %c[pairs](%[work],%[offset]), %[work]\n\t"
                              "movl (%[work]), %k[size]\n\t"
                              "subl $1, %k[size]\n\t"
                              "jb %l[slow]\n\t"
                              "movq %c[first](%[work],%[size],8), %[object]\n\t"
                              "movl %k[size], (%[work])" RSEQ_END
                              : [object] "=&r"(object), [work] "=&r"(work), [size] "=&r"(size)
                              : [offset] "r"(pair_offset), [map] "r"(heap.map),
                                [rseq] "r"(fast.rseq), [field] "r"(fast.slot_field),
                                [slots] "i"(FRONT_OFFSET(slots)),
                                [pairs] "i"(offsetof(struct slot, pairs)),
                                [first] "i"(offsetof(struct sheaf, object))
                              : "memory", "cc"
                              : slow);
        if (!object)
                __builtin_unreachable();
        return object;
slow:
        return NULL;
}

/*
 * Push an object onto the slot's main sheaf; false if it is full, cold, the thread has no slot,
 * or the object is the newest in the sheaf already (a double free).
 * Reads: slot, main, size, capacity, object[size - 1]; for size 0 that is the link of the sheaf,
 * which is never an object. Writes object[size], which nobody reads before the commit.
 * Commits: the increment of size in memory, one instruction. Aborted before it: nothing changed.
 * Against: as pop.
 */
static KMEM_ALWAYS_INLINE bool rseq_push(uint64_t pair_offset, void *object)
{
        uint64_t work;
        uint64_t size;

        __asm__ volatile goto(RSEQ_BEGIN RSEQ_LOAD_SLOT
                              "movq %c[pairs](%[work],%[offset]), %[work]\n\t"
                              "movl (%[work]), %k[size]\n\t"
                              "cmpl 4(%[work]), %k[size]\n\t"
                              "jae %l[slow]\n\t"
                              "cmpq %[object], %c[first]-8(%[work],%[size],8)\n\t"
                              "je %l[slow]\n\t"
                              "movq %[object], %c[first](%[work],%[size],8)\n\t"
                              "incl (%[work])" RSEQ_END
                              : [work] "=&r"(work), [size] "=&r"(size)
                              : [object] "r"(object), [offset] "r"(pair_offset),
                                [map] "r"(heap.map), [rseq] "r"(fast.rseq),
                                [field] "r"(fast.slot_field), [slots] "i"(FRONT_OFFSET(slots)),
                                [pairs] "i"(offsetof(struct slot, pairs)),
                                [first] "i"(offsetof(struct sheaf, object))
                              : "memory", "cc"
                              : slow);
        return true;
slow:
        return false;
}

/*
 * Replace a whole pair, if the thread still runs on @slot, the slot is not stopped, and the pair
 * is still the expected one.
 * Reads: slot number, stop mark, both pointers.  Commits: one aligned 16-byte store.
 * Aborted before it: nothing changed. Against: the same slot on this CPU, which aborts us, and a
 * drainer: a replace that read the mark clear is committed or aborted by the first fence, before
 * the drainer reads the pointers; later ones see the mark (INV-4).
 */
static inline bool rseq_replace(struct slot *slot, uint64_t pair_offset,
                                const struct pair *expected, const struct pair *new_pair)
{
        uint64_t work;

        __asm__ volatile goto(RSEQ_BEGIN RSEQ_LOAD_SLOT
                              "cmpq %[slot], %[work]\n\t"
                              "jne %l[slow]\n\t"
                              "cmpl $0, %c[stopped](%[work])\n\t"
                              "jne %l[slow]\n\t"
                              "cmpq %[main], %c[pairs](%[work],%[offset])\n\t"
                              "jne %l[slow]\n\t"
                              "cmpq %[spare], %c[pairs]+8(%[work],%[offset])\n\t"
                              "jne %l[slow]\n\t"
                              "movaps (%[new_pair]), %%xmm0\n\t"
                              "movaps %%xmm0, %c[pairs](%[work],%[offset])" RSEQ_END
                              : [work] "=&r"(work)
                              : [slot] "r"(slot), [offset] "r"(pair_offset),
                                [main] "r"(expected->main), [spare] "r"(expected->spare),
                                [new_pair] "r"(new_pair), [map] "r"(heap.map),
                                [rseq] "r"(fast.rseq), [field] "r"(fast.slot_field),
                                [slots] "i"(FRONT_OFFSET(slots)),
                                [stopped] "i"(offsetof(struct slot, stopped)),
                                [pairs] "i"(offsetof(struct slot, pairs))
                              : "memory", "cc", "xmm0"
                              : slow);
        return true;
slow:
        return false;
}

static inline void *thread_pointer(void)
{
        void *pointer;

        __asm__("movq %%fs:0, %0" : "=r"(pointer));
        return pointer;
}

#endif
