/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of percpu/sequences.h: their steps, on the slot of the simulated CPU. Nothing can abort
 * them. The real sequences document their results (kmem-sequence.h, percpu/rseq_x86_64.h).
 */
#ifndef KMEM_PERCPU_SEQUENCES_H
#define KMEM_PERCPU_SEQUENCES_H

#include "machine/state.h"

#include <string.h>

static KMEM_ALWAYS_INLINE struct sheaf *sim_main_sheaf(uint64_t pair_offset)
{
        return ((struct pair *)(void *)((char *)sim.slot->pairs + pair_offset))->main;
}

static KMEM_ALWAYS_INLINE void *rseq_pop(uint64_t pair_offset)
{
        struct sheaf *main = sim_main_sheaf(pair_offset);
        uint32_t size = main->size;

        if (!size)
                return NULL;
        main->size = size - 1;
        return main->object[size - 1];
}

static KMEM_ALWAYS_INLINE enum push_result rseq_push(uint64_t pair_offset, void *object)
{
        struct sheaf *main = sim_main_sheaf(pair_offset);
        uint32_t size = main->size;

        if (size >= main->capacity)
                return PUSH_FULL;
        if (size && main->object[size - 1] == object)
                return PUSH_ON_TOP;
        main->object[size] = object;
        main->size = size + 1;
        return PUSH_DONE;
}

static KMEM_ALWAYS_INLINE bool rseq_push_marked(uint64_t pair_offset, void *object)
{
        return rseq_push(pair_offset, object) == PUSH_DONE;
}

static inline unsigned int rseq_pop_bulk(uint64_t pair_offset, void **objects, uint64_t count)
{
        struct sheaf *main = sim_main_sheaf(pair_offset);
        uint32_t taken = (uint32_t)min_of((uint64_t)main->size, count);

        memcpy(objects, &main->object[main->size - taken], taken * sizeof(*objects));
        if (taken)
                main->size -= taken;
        return taken;
}

static inline unsigned int rseq_push_bulk(uint64_t pair_offset, void **objects, uint64_t count)
{
        struct sheaf *main = sim_main_sheaf(pair_offset);
        uint32_t taken = (uint32_t)min_of((uint64_t)(main->capacity - main->size), count);
        uintptr_t distances = 0;

        for (uint32_t i = 0; i < taken; i++)
                distances |= (uintptr_t)objects[i] - heap.base;
        if (!taken || distances & heap.outside)
                return 0;
        memcpy(&main->object[main->size], objects, taken * sizeof(*objects));
        main->size += taken;
        return taken;
}

#endif
