/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Sheaves: pops, pushes and replaces on a CPU, against each other and against drains of other CPUs.
 * Sheaves of one or two objects reach every slow path in a few calls.
 */
#include "scenarios/sheaf_calls.h"

#include "percpu/drain.h"

static void drain_twice(void)
{
        kmem_cache_shrink(cache);
        kmem_cache_shrink(cache);
}

static void bulk(void)
{
        void *objects[3];

        CHECK(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 3, objects) == 3);
        for (unsigned int i = 0; i < 3; i++)
                take_notes(objects[i]);
        for (unsigned int i = 0; i < 3; i++)
                give_notes(objects[i]);
        kmem_cache_free_bulk(cache, 3, objects);
}

static void free_in_bulk(void)
{
        for (unsigned int i = 0; i < 3; i++)
                give_notes(held[i]);
        kmem_cache_free_bulk(cache, 3, held);
}

static void free_fourth(void)
{
        give(held[3]);
}

/* As a heap that has grown empties the slot's unused caches, and goes on to use this one. */
static void drain_own(void)
{
        struct slot *slot = slot_current();

        lock_take(&cache_mutex);
        slot_record(&slot, cache)->quiet = true;
        percpu_drain_own(slot);
        lock_drop(&cache_mutex);
}

static void drain_own_then_pop(void)
{
        drain_own();
        pop_and_push();
}

const struct scenario sheaf_scenarios[] = {
        {.name = "drain_own_same_cpu",
         .about = "a thread empties its own slot, and another replaces sheaves on that CPU",
         .options = "sheaf_capacity=1",
         .setup = fill_two,
         .thread = {drain_own, pop_two},
         .cpu = {0, 0}},
        {.name = "drain_own_drain",
         .about = "a thread empties its own slot and goes on, against a drain by another CPU",
         .options = "sheaf_capacity=2",
         .setup = fill_three,
         .thread = {drain_own_then_pop, drain},
         .cpu = {0, 1}},
        {.name = "pop_drain",
         .about = "pop and push on a CPU against a drain by another",
         .options = "sheaf_capacity=2",
         .setup = fill_three,
         .thread = {pop_and_push, drain},
         .cpu = {0, 1}},
        {.name = "push_drain",
         .about = "two pushes into sheaves that a drain takes, which frees objects itself then",
         .options = "sheaf_capacity=2",
         .setup = fill_and_hold,
         .thread = {push_first, drain_then_push},
         .cpu = {0, 1}},
        {.name = "pops_same_cpu",
         .about = "two threads on a CPU pop and push, and abort each other",
         .options = "sheaf_capacity=2",
         .setup = fill_three,
         .thread = {pop_and_push, pop_and_push},
         .cpu = {0, 0}},
        {.name = "pushes_same_cpu",
         .about = "two threads on a CPU push until sheaves are full",
         .options = "sheaf_capacity=2",
         .setup = fill_and_hold,
         .thread = {push_first, push_second},
         .cpu = {0, 0}},
        {.name = "replaces_same_cpu",
         .about = "two threads on a CPU replace sheaves of one object",
         .options = "sheaf_capacity=1",
         .setup = fill_two,
         .thread = {pop_two, pop_two},
         .cpu = {0, 0}},
        {.name = "replace_drain",
         .large = true,
         .about = "replaces on a CPU against a drain by another",
         .options = "sheaf_capacity=1",
         .setup = fill_two,
         .thread = {pop_two, drain},
         .cpu = {0, 1}},
        {.name = "drain_same_cpu",
         .large = true,
         .about = "a drain on the CPU of a thread that pops and pushes",
         .options = "sheaf_capacity=2",
         .setup = fill_three,
         .thread = {pop_and_push, drain},
         .cpu = {0, 0}},
        {.name = "drain_drain",
         .large = true,
         .about = "two drains, and a thread that pops and pushes",
         .options = "sheaf_capacity=2",
         .setup = fill_three,
         .thread = {pop_and_push, drain, drain},
         .cpu = {0, 1, 2}},
        {.name = "bulk_drain",
         .large = true,
         .about = "a bulk allocation and a bulk free against a drain",
         .options = "sheaf_capacity=2",
         .setup = fill_three,
         .thread = {bulk, drain},
         .cpu = {0, 1}},
        {.name = "bulk_same_cpu",
         .about = "a bulk allocation and a bulk free against a thread on the same CPU",
         .options = "sheaf_capacity=2",
         .setup = fill_three,
         .thread = {bulk, pop_and_push},
         .cpu = {0, 0}},
        {.name = "bulk_free_drain",
         .large = true,
         .about = "a bulk free and a free elsewhere against two drains",
         .options = "sheaf_capacity=2",
         .setup = fill_and_hold,
         .thread = {free_in_bulk, free_fourth, drain_twice},
         .cpu = {0, 1, 2}},
        {.name = "stock_drain",
         .about = "frees that fill the stock against a drain that empties it",
         .options = "sheaf_capacity=1",
         .setup = fill_and_hold,
         .thread = {push_all, drain},
         .cpu = {0, 1}},
        {.name = "stock_same_cpu",
         .about = "two threads of a CPU fill and use its stock",
         .options = "sheaf_capacity=1",
         .large = true,
         .setup = fill_and_hold,
         .thread = {push_all, pop_two},
         .cpu = {0, 0}},
        {0},
};
