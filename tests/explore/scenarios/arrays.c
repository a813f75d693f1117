/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The back end slab: arrays of one or two objects, the arrays that CPUs share and those for objects
 * of other nodes, and its lists of slabs.
 */
#include "scenario.h"

#define ARRAYS "engine=slab,limit=2,batchcount=1,shared="

/* Three that a CPU frees are one more than its array holds. */
static void *held[6];

static void hold_six(void)
{
        make_cache(1024);
        for (unsigned int i = 0; i < 6; i++)
                held[i] = take();
}

static void make_node_list(void)
{
        hold_six();
        for (unsigned int i = 0; i < 6; i++)
                give(held[i]);
}

static void free_first(void)
{
        for (unsigned int i = 0; i < 3; i++)
                give(held[i]);
}

static void free_second(void)
{
        for (unsigned int i = 3; i < 6; i++)
                give(held[i]);
}

static void check_second(void)
{
        free_second();
        check_empty();
}

static void take_three(void)
{
        void *object[3];

        for (unsigned int i = 0; i < 3; i++)
                object[i] = take();
        for (unsigned int i = 0; i < 3; i++)
                give(object[i]);
}

static void shrink(void)
{
        kmem_cache_shrink(cache);
}

static void set_arrays(void)
{
        CHECK(kmem_slabinfo_write("explored 3 1 0") == 0);
}

const struct scenario array_scenarios[] = {
        {.name = "arrays_frees",
         .about = "slab: two CPUs free objects of one slab",
         .options = ARRAYS "0",
         .setup = hold_six,
         .thread = {free_first, free_second},
         .cpu = {0, 1}},
        {.name = "arrays_same_cpu",
         .about = "slab: two threads of a CPU free and take by its array",
         .options = ARRAYS "0",
         .setup = hold_six,
         .thread = {free_first, take_three},
         .cpu = {0, 0},
         .check = check_second},
        {.name = "arrays_shared",
         .about = "slab: CPUs exchange objects by the shared array",
         .options = ARRAYS "1",
         .setup = hold_six,
         .thread = {free_first, take_three},
         .cpu = {0, 1},
         .check = check_second},
        {.name = "arrays_shrink",
         .about = "slab: a refill against a shrink",
         .options = ARRAYS "0",
         .setup = make_node_list,
         .thread = {take_three, shrink},
         .cpu = {0, 1}},
        {.name = "arrays_alien",
         .about = "slab: frees of another node's objects against takes there",
         .options = ARRAYS "0",
         .nodes = 2,
         .setup = hold_six,
         .thread = {free_first, take_three, free_second},
         .cpu = {2, 0, 3},
         .large = true},
        {.name = "arrays_tune",
         .about = "slab: arrays get another size while a CPU frees and takes",
         .options = ARRAYS "0",
         .setup = make_node_list,
         .thread = {take_three, set_arrays},
         .cpu = {0, 1},
         .large = true},
        {0},
};
