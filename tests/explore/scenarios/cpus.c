/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * CPUs that come and go: a thread reads the CPUs again, as calls that make or shrink a cache and malloc_trim do, and
 * empties the slots of CPUs that have left (S12-01) while threads use the slots.
 */
#include "scenarios/sheaf_calls.h"

#include "engines/caches.h"
#include "percpu/percpu.h"
#include "simulator/machine.h"

enum { CPU = 1 }; /* the one that leaves */

/* What the setup leaves in the slot is of that CPU. */
static void set_up_there(void (*setup)(void))
{
        sim.cpu = CPU;
        setup();
        sim.cpu = 0;
}

static void fill_its_slot(void)
{
        set_up_there(fill_three);
}

static void fill_two_there(void)
{
        set_up_there(fill_two);
}

static void fill_and_hold_there(void)
{
        set_up_there(fill_and_hold);
}

static void hold_three(void)
{
        make_cache(2048);
        for (unsigned int i = 0; i < 3; i++)
                held[i] = take();
}

/* Its CPU slab has a free object; others are full. */
static void fill_its_slab(void)
{
        set_up_there(hold_three);
}

static void read_again(void)
{
        lock_take(&cache_mutex);
        percpu_follow_cpus();
        lock_drop(&cache_mutex);
}

/* The threads of the scenario go on to run there: the affinity that the library has read is old. */
static void change(bool online)
{
        explore_effect(&machine, sizeof(machine), true);
        machine.online[CPU] = online;
        machine.cpus_online = online ? 2 : 1;
        machine.left |= !online;
        read_again();
}

static void leave(void)
{
        change(false);
}

static void come(void)
{
        change(true);
}

static void leave_and_come(void)
{
        change(false);
        change(true);
}

static void take_two(void)
{
        void *object = take();

        give(take());
        give(object);
}

static void free_three(void)
{
        for (unsigned int i = 0; i < 3; i++)
                give(held[i]);
}

static void check_three(void)
{
        free_three();
        check_empty();
}

/* Nobody has used the slot of the CPU since it left. */
static void check_left(void)
{
        for (unsigned int number = 0; number < slots_made_count(); number++) {
                struct slot *slot = slot_made(number);

                if (slot->id == CPU && !sheaf_is_cold(slot_pair(slot, sheaf_offset(cache))->main))
                        explore_fail("the slot of a CPU that has left has a sheaf");
        }
        check_empty();
}

const struct scenario cpu_scenarios[] = {
        {.name = "cpu_left",
         .about = "the slot of a CPU that has left is emptied while another CPU pops and pushes",
         .options = "sheaf_capacity=2",
         .setup = fill_its_slot,
         .thread = {leave, pop_and_push},
         .cpu = {0, 2},
         .check = check_left},
        {.name = "cpu_left_shrink",
         .about = "a shrink against the emptying of a slot whose CPU has left",
         .options = "sheaf_capacity=2",
         .setup = fill_its_slot,
         .thread = {leave, drain},
         .cpu = {0, 2},
         .check = check_left},
        {.name = "cpu_left_use",
         .about = "the slot of a CPU that has left is emptied while a thread still runs there",
         .options = "sheaf_capacity=2",
         .setup = fill_its_slot,
         .thread = {leave, pop_two},
         .cpu = {0, CPU}},
        {.name = "cpu_left_free",
         .large = true,
         .about = "the slot of a CPU that has left is emptied while a thread frees there",
         .options = "sheaf_capacity=1",
         .setup = fill_and_hold_there,
         .thread = {leave, push_all},
         .cpu = {0, CPU}},
        {.name = "cpu_left_free_shrink",
         .large = true,
         .about = "a CPU leaves while a thread frees there and another shrinks",
         .options = "sheaf_capacity=2",
         .setup = fill_and_hold_there,
         .thread = {leave, push_first, drain_then_push},
         .cpu = {0, CPU, 2}},
        {.name = "cpu_back_use",
         .large = true,
         .about = "a CPU leaves and comes back while a thread runs there",
         .options = "sheaf_capacity=1",
         .setup = fill_two_there,
         .thread = {leave_and_come, pop_two},
         .cpu = {0, CPU}},
        {.name = "cpu_left_slab",
         .about = "the CPU slab of a CPU that has left is given back while a thread takes there",
         .options = "sheaf_capacity=0,slub_max_order=0,slub_min_objects=1,min_partial=0",
         .setup = fill_its_slab,
         .thread = {leave, take_two},
         .cpu = {0, CPU},
         .check = check_three},
        {.name = "cpu_left_locked",
         .about = "the second of two locked slots is given up while a thread uses it",
         .options = "slots=locked,sheaf_capacity=2",
         .usable = 2,
         .setup = fill_its_slot,
         .thread = {leave, pop_two},
         .cpu = {0, CPU}},
        {.name = "cpu_came_locked",
         .about = "a second locked slot is made while a thread uses the first",
         .options = "slots=locked,sheaf_capacity=2",
         .usable = 1,
         .setup = fill_three,
         .thread = {come, pop_two},
         .cpu = {0, CPU}},
        {0},
};
