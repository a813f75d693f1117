/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Buckets of stacks that are only ever added to, at the head, by compare-and-swap: readers follow
 * the links without a lock, and fork leaves nothing half done. Two threads that keep equal new
 * stacks at a time may add it twice.
 */
#include "base/depot.h"

#include "base/metadata.h"

#include <string.h>

enum {
        BUCKETS = 8192,
        STACKS_MAX = 1 << 18, /* a long stack counts as several */
        FRAMES_OF_ONE = 16,
};

static KMEM_SPARSE struct stack *buckets[BUCKETS];
static uint32_t kept;

static uint32_t hash_of(const uintptr_t *frames, unsigned int count)
{
        uint64_t hash = count;

        for (unsigned int i = 0; i < count; i++)
                hash = (hash ^ frames[i]) * 0x9e3779b97f4a7c15u;
        return (uint32_t)(hash >> 32);
}

const struct stack *depot_keep(const uintptr_t *frames, unsigned int count)
{
        uint32_t hash = hash_of(frames, count);
        struct stack **bucket = &buckets[hash % BUCKETS];
        size_t bytes = count * sizeof(*frames);
        struct stack *stack;

        if (!count)
                return NULL;
        /* Acquire: pairs with the swap below; the stacks of the list are complete. */
        for (stack = load_acquire(bucket); stack; stack = stack->next)
                if (stack->hash == hash && stack->count == count &&
                    memcmp(stack->frame, frames, bytes) == 0)
                        return stack;
        /* A program that makes up code for ever must not fill the memory with its stacks. */
        if (load_relaxed(&kept) >= STACKS_MAX)
                return NULL;
        stack = metadata_alloc(sizeof(*stack) + bytes);
        if (!stack)
                return NULL;
        add_relaxed(&kept, 1 + count / FRAMES_OF_ONE);
        stack->hash = hash;
        stack->count = count;
        memcpy(stack->frame, frames, bytes);
        stack->next = load_relaxed(bucket);
        /* Release: pairs with the acquire of readers in depot_keep and depot_has. */
        while (!compare_swap(bucket, &stack->next, stack))
                ;
        return stack;
}

bool depot_has(const struct stack *stack)
{
        for (size_t i = 0; i < BUCKETS; i++)
                /* Acquire: pairs with the swap in depot_keep. */
                for (const struct stack *each = load_acquire(&buckets[i]); each; each = each->next)
                        if (each == stack)
                                return true;
        return false;
}
