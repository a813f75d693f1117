/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The explorer's twins of the restartable sequences as a library of their own, whose steps are
 * written down: test_sequences.py holds the assembly of the built libraries against them.
 */
#include "percpu/slot.h"

enum { STEPS_MAX = 4096 };

/* In the order of SEQUENCES in sequences.py. */
enum sequence { POP, PUSH, PUSH_MARKED, POP_BULK, PUSH_BULK, REPLACE };

struct step {
        uint64_t address;
        uint64_t value; /* of up to eight bytes */
        uint32_t bytes;
        uint32_t is_store;
};

struct arguments {
        struct pair *const *place; /* of the slot in the table of slots */
        uint64_t pair_offset;
        void **objects; /* also a single one */
        uint64_t count;
        struct slot *slot;
        const struct pair *expected, *new_pair;
};

uint64_t run(enum sequence sequence, const struct arguments *arguments, uint64_t base,
             uint64_t outside);

struct step steps[STEPS_MAX];
unsigned int steps_count;

/* What sequences.py must know of the library's structures. */
const uint64_t layout[] = {
        sizeof(struct slot),
        offsetof(struct slot, pairs),
        offsetof(struct slot, stopped),
        offsetof(struct heap, base),
        offsetof(struct heap, outside),
        offsetof(struct kmem_inline_layout, slot_field),
};

struct heap heap;
struct kmem_inline_layout fast;
static struct pair *const *place;
static bool begun;

struct pair *const *sequence_slot(void)
{
        return place;
}

bool sequence_begin(void)
{
        bool first = !begun;

        begun = true;
        return first;
}

bool sequence_point(const struct place *where, const volatile void *address, enum access access)
{
        (void)where;
        (void)address;
        (void)access;
        return true;
}

void sequence_end(void)
{
        begun = false;
}

/* Of more than eight bytes each eight are a step. */
static void note(const volatile void *address, const void *value, size_t bytes, bool is_store)
{
        for (size_t at = 0; at < bytes; at += 8) {
                struct step *step = &steps[steps_count++ % STEPS_MAX];
                size_t part = min_of(bytes - at, (size_t)8);

                *step = (struct step){.address = (uintptr_t)address + at,
                                      .bytes = (uint32_t)part,
                                      .is_store = is_store};
                memcpy(&step->value, (const char *)value + at, part);
        }
}

void explore_load_bytes(const struct place *where, const volatile void *address, void *value,
                        size_t bytes, int order)
{
        (void)where;
        (void)order;
        memcpy(value, (const void *)(uintptr_t)address, bytes);
        note(address, value, bytes, false);
}

void explore_store_bytes(const struct place *where, volatile void *address, const void *value,
                         size_t bytes, int order)
{
        (void)where;
        (void)order;
        note(address, value, bytes, true);
        memcpy((void *)(uintptr_t)address, value, bytes);
}

/* Runs a twin; its result as a number. */
uint64_t run(enum sequence sequence, const struct arguments *arguments, uint64_t base,
             uint64_t outside)
{
        uint64_t offset = arguments->pair_offset;

        steps_count = 0;
        place = arguments->place;
        heap.base = base;
        heap.outside = outside;
        switch (sequence) {
        case POP:
                return (uintptr_t)rseq_pop(offset);
        case PUSH:
                return rseq_push(offset, arguments->objects[0]);
        case PUSH_MARKED:
                return rseq_push_marked(offset, arguments->objects[0]);
        case POP_BULK:
                return rseq_pop_bulk(offset, arguments->objects, arguments->count);
        case PUSH_BULK:
                return rseq_push_bulk(offset, arguments->objects, arguments->count);
        case REPLACE:
                return rseq_replace(arguments->slot, offset, arguments->expected,
                                    arguments->new_pair);
        }
        return 0;
}
