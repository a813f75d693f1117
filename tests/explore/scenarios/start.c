/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The start of the heap (heap/init.c): the first calls of two threads meet.
 */
#include "scenario.h"

#include "heap/heap.h"
#include "process/start.h"

enum { BLOCK_BYTES = 100, LARGE_BYTES = 40 << 10 };

static void use(void *block)
{
        take_notes(block);
        give_notes(block);
        kfree(block);
}

static void use_block(void)
{
        use(kmalloc(BLOCK_BYTES, GFP_KERNEL));
}

static void use_large(void)
{
        use(kmalloc(LARGE_BYTES, GFP_KERNEL));
}

static void make_own(void)
{
        struct kmem_cache *own = kmem_cache_create("own", BLOCK_BYTES, 0, SLAB_NO_MERGE, NULL);

        CHECK(own);
        kmem_cache_destroy(own);
}

static void check_started(void)
{
        CHECK(heap_is_up());
        make_cache(64);
        check_empty();
}

const struct scenario start_scenarios[] = {
        {.name = "start_caches",
         .large = true,
         .about = "the first calls of two threads, which make caches, meet",
         .options = "sheaf_capacity=2",
         .cold = true,
         .thread = {make_own, make_own},
         .cpu = {0, 1},
         .check = check_started},
        {.name = "start_same_cpu",
         .large = true,
         .about = "the first calls of two threads of a CPU meet",
         .options = "sheaf_capacity=2",
         .cold = true,
         .thread = {use_block, use_large},
         .cpu = {0, 0},
         .check = check_started},
        {0},
};
