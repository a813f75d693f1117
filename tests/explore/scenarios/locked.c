/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Locked slots (option slots=locked, or no restartable sequences): pops, pushes and replaces under a
 * slot's lock, by threads of any CPU, against each other and against drains. The process may use one
 * CPU or two, so there are as many slots, and threads meet.
 */
#include "scenarios/sheaf_calls.h"

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

static void close_cache(void)
{
        CHECK(kmem_attr_write("explored", "sheaf_capacity", "5") == 0);
}

#define LOCKED(capacity_) .options = "slots=locked,sheaf_capacity=" #capacity_

const struct scenario locked_scenarios[] = {
        {.name = "locked_pops",
         .about = "two threads pop and push in one locked slot",
         LOCKED(2),
         .usable = 1,
         .setup = fill_three,
         .thread = {pop_and_push, pop_and_push},
         .cpu = {0, 1}},
        {.name = "locked_pushes",
         .about = "two threads push into one locked slot until sheaves are full",
         LOCKED(2),
         .usable = 1,
         .setup = fill_and_hold,
         .thread = {push_first, push_second},
         .cpu = {0, 1}},
        {.name = "locked_replaces",
         .large = true,
         .about = "two threads replace sheaves of one object in one locked slot",
         LOCKED(1),
         .usable = 1,
         .setup = fill_two,
         .thread = {pop_two, pop_two},
         .cpu = {0, 1}},
        {.name = "locked_drain",
         .about = "pop and push in a locked slot against a drain",
         LOCKED(2),
         .usable = 1,
         .setup = fill_three,
         .thread = {pop_and_push, drain},
         .cpu = {0, 1}},
        {.name = "locked_push_drain",
         .about = "two pushes into locked sheaves that a drain takes, which frees objects itself "
                  "then",
         LOCKED(2),
         .usable = 1,
         .setup = fill_and_hold,
         .thread = {push_first, drain_then_push},
         .cpu = {0, 1}},
        {.name = "locked_replace_drain",
         .large = true,
         .about = "replaces in a locked slot against a drain",
         LOCKED(1),
         .usable = 1,
         .setup = fill_two,
         .thread = {pop_two, drain},
         .cpu = {0, 1}},
        {.name = "locked_stock_drain",
         .large = true,
         .about = "frees that fill a locked slot's stock against a drain that empties it",
         LOCKED(1),
         .usable = 1,
         .setup = fill_and_hold,
         .thread = {push_all, drain},
         .cpu = {0, 1}},
        {.name = "locked_two_slots",
         .about = "two threads of two locked slots, each of which takes the other's if its own is "
                  "held",
         LOCKED(2),
         .usable = 2,
         .setup = fill_three,
         .thread = {pop_and_push, pop_and_push, drain},
         .large = true,
         .cpu = {0, 1, 2}},
        {.name = "locked_bulk",
         .large = true,
         .about = "bulk calls with locked slots against a thread that pops and pushes",
         LOCKED(2),
         .usable = 1,
         .setup = fill_three,
         .thread = {bulk, pop_and_push},
         .cpu = {0, 1}},
        {.name = "locked_capacity",
         .large = true,
         .about = "sheaves of a locked slot get another size while a thread uses them",
         LOCKED(2),
         .usable = 1,
         .setup = fill_three,
         .thread = {pop_and_push, close_cache},
         .cpu = {0, 1}},
        {0},
};
