/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Call stacks, each kept once and for good (S4-10).
 */
#ifndef KMEM_BASE_DEPOT_H
#define KMEM_BASE_DEPOT_H

#include "machine/stack.h"

struct stack {
        struct stack *next;             /* the next older stack in its bucket */
        struct registry_stack *figures; /* of samples with this stack, for other processes to see,
                                           or NULL */
        uint32_t hash;
        uint32_t count;
        uintptr_t frame[]; /* return addresses, innermost first */
};

/* NULL without memory, or for no frames. Takes no lock but the arena's. */
KMEM_HIDDEN const struct stack *depot_keep(const uintptr_t *frames, unsigned int count);

/*
 * Whether a pointer from memory that programs can write to leads to a stack; reads nothing there.
 */
KMEM_HIDDEN bool depot_has(const struct stack *stack);

#endif
