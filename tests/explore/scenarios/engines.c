/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Back ends debug, slob and hardened, and slub on two nodes. CPUs 0 and 1 are of the first node then, 2 and 3
 * of the second.
 */
#include "scenario.h"

#include "engines/debug/report.h"
#include "engines/hardened/hardened.h"
#include "heap/heap.h"

#include <string.h>

/* A page has a few objects, and slabs that are emptied go at once. */
#define SMALL_SLABS "sheaf_capacity=0,slub_max_order=0,slub_min_objects=1,min_partial=0"
#define DEBUG "debug=FZP," SMALL_SLABS

enum { OBJECTS = 4 };

static void *held[OBJECTS];

static void hold_four(void)
{
        make_cache(1500);
        for (unsigned int i = 0; i < OBJECTS; i++)
                held[i] = take();
}

/* Slabs of two objects, each in use by one. */
static void hold_first(void)
{
        hold_four();
        give(held[1]);
        give(held[3]);
}

static void free_first(void)
{
        give(held[0]);
        give(held[1]);
}

static void free_second(void)
{
        give(held[2]);
        give(held[3]);
}

/* Of both slabs, as free_odd. */
static void free_even(void)
{
        give(held[0]);
        give(held[2]);
}

static void free_odd(void)
{
        give(held[1]);
        give(held[3]);
}

static void free_0(void)
{
        give(held[0]);
}

static void take_two(void)
{
        void *object = take();

        give(take());
        give(object);
}

static void shrink(void)
{
        kmem_cache_shrink(cache);
}

/* ---- debug: a request grows in its object while all objects are checked ------------------- */

enum { REQUEST_BYTES = 50, GROWN_BYTES = 60 };

static char *grown;

static void hold_request(void)
{
        grown = kmalloc(REQUEST_BYTES, GFP_KERNEL);
        take_notes(grown);
        memset(grown, 1, REQUEST_BYTES);
}

static void grow_request(void)
{
        CHECK(krealloc(grown, GROWN_BYTES, GFP_KERNEL) == grown);
        memset(grown, 2, GROWN_BYTES);
}

static void validate(void)
{
        CHECK(kmem_attr_write("kmalloc-64", "validate", "1") == 0);
}

static void validate_cache(void)
{
        CHECK(kmem_attr_write("explored", "validate", "1") == 0);
}

static void check_validated(void)
{
        CHECK(debug_errors(cache) == 0);
        for (unsigned int i = 0; i < OBJECTS; i++)
                give(held[i]);
        check_empty();
}

static void check_grown(void)
{
        struct kmem_cache *class = cache_named_locked("kmalloc-64");

        CHECK(class);
        validate();
        give_notes(grown);
        kfree(grown);
        CHECK(debug_errors(class) == 0);
}

static void check_second(void)
{
        free_second();
        check_empty();
}

static void check_0_and_2(void)
{
        free_even();
        check_empty();
}

static void check_2(void)
{
        give(held[2]);
        check_empty();
}

/* ---- slob: its pages go with their last object, and its figures are of all caches ---------- */

static void check_slob(void)
{
        struct kmem_cache_info info = {.size = sizeof(info)};

        CHECK(kmem_cache_info(cache, &info) == 0);
        if (info.objects_inuse)
                explore_fail("%lu objects are lost", (unsigned long)info.objects_inuse);
        kmem_cache_destroy(cache);
}

/* Readers may look at objects behind their free: they are kept for the next requests. */
static void keep_idle(void)
{
        cache = kmem_cache_create("explored", 64, 0, SLAB_TYPESAFE_BY_RCU, NULL);
        CHECK(cache);
        give(take());
}

/* ---- hardened: threads of one arena, whose pool a lock protects ---------------------------- */

enum { HARDENED_BYTES = 100, LEFT_MAX = 300 };

static void *take_block(void)
{
        void *block = kmalloc(HARDENED_BYTES, GFP_KERNEL);

        take_notes(block);
        return block;
}

static void give_block(void *block)
{
        give_notes(block);
        kfree(block);
}

/* As for a thread that libc does not know of: libc knows of none here, and pools would go without locks. */
static void hold_blocks(void)
{
        hardened_share();
        for (unsigned int i = 0; i < OBJECTS; i++)
                held[i] = take_block();
}

static void use_block(void)
{
        give_block(take_block());
}

static void free_block(void)
{
        give_block(held[0]);
}

/* More than the slab and the quarantine have: nothing is there twice. */
static void check_blocks(void)
{
        static void *left[LEFT_MAX];

        for (unsigned int i = 1; i < OBJECTS; i++)
                give_block(held[i]);
        for (unsigned int i = 0; i < LEFT_MAX; i++)
                left[i] = take_block();
        for (unsigned int i = 0; i < LEFT_MAX; i++)
                give_block(left[i]);
}

static void check_held_blocks(void)
{
        give_block(held[0]);
        check_blocks();
}

const struct scenario engine_scenarios[] = {
        {.name = "debug_frees",
         .about = "debug: two CPUs free the last objects of slabs",
         .options = DEBUG,
         .setup = hold_four,
         .thread = {free_even, free_odd},
         .cpu = {0, 1}},
        {.name = "debug_take_free",
         .about = "debug: a CPU takes from the slab to which another frees",
         .options = DEBUG,
         .setup = hold_four,
         .thread = {take_two, free_first},
         .cpu = {0, 1},
         .check = check_second},
        {.name = "debug_takers",
         .about = "debug: two CPUs take from the node's list and from new slabs",
         .options = DEBUG,
         .setup = hold_first,
         .thread = {take_two, take_two},
         .cpu = {0, 1},
         .check = check_0_and_2},
        {.name = "debug_free_shrink",
         .about = "debug: a shrink against the free of a slab's last object",
         .options = DEBUG,
         .setup = hold_first,
         .thread = {free_0, shrink},
         .cpu = {0, 1},
         .check = check_2},
        {.name = "debug_take_validate",
         .about = "debug: all slabs are counted and checked while a CPU makes slabs and ends them",
         .options = DEBUG,
         .setup = hold_four,
         .thread = {take_two, validate_cache},
         .cpu = {0, 1},
         .check = check_validated},
        {.name = "debug_grow_validate",
         .about = "debug: a request grows in its object while all objects are checked",
         .options = "debug=FZPU",
         .setup = hold_request,
         .thread = {grow_request, validate},
         .cpu = {0, 1},
         .check = check_grown},
        {.name = "slob_frees",
         .about = "slob: two CPUs free the last objects of pages",
         .options = "engine=slob",
         .setup = hold_four,
         .thread = {free_even, free_odd},
         .cpu = {0, 1},
         .check = check_slob},
        {.name = "slob_take_free",
         .about = "slob: a CPU takes from the page to which another frees",
         .options = "engine=slob",
         .setup = hold_first,
         .thread = {take_two, free_even},
         .cpu = {0, 1},
         .check = check_slob},
        {.name = "slob_idle",
         .about = "slob: two CPUs want the freed object that is kept because readers may see it",
         .options = "engine=slob",
         .setup = keep_idle,
         .thread = {take_two, take_two},
         .cpu = {0, 1},
         .check = check_slob},
        {.name = "hardened_takers",
         .about = "hardened: two threads take and free by one pool",
         .options = "protect=hardened",
         .setup = hold_blocks,
         .thread = {use_block, use_block},
         .cpu = {0, 1},
         .large = true,
         .check = check_held_blocks},
        {.name = "hardened_free",
         .about = "hardened: a thread frees to the pool that another takes from",
         .options = "protect=hardened",
         .setup = hold_blocks,
         .thread = {use_block, free_block},
         .cpu = {0, 1},
         .large = true,
         .check = check_blocks},
        {.name = "nodes_frees",
         .about = "slub, two nodes: CPUs of both free the last objects of one node's slabs",
         .options = SMALL_SLABS,
         .nodes = 2,
         .setup = hold_four,
         .thread = {free_even, free_odd},
         .cpu = {0, 2}},
        {.name = "nodes_take_free",
         .about = "slub, two nodes: the other node frees objects while a CPU takes",
         .options = SMALL_SLABS,
         .nodes = 2,
         .setup = hold_four,
         .thread = {take_two, free_first},
         .cpu = {0, 2},
         .large = true,
         .check = check_second},
        {.name = "nodes_free_shrink",
         .about = "slub, two nodes: a shrink of both against frees from the other node",
         .options = SMALL_SLABS,
         .nodes = 2,
         .setup = hold_first,
         .thread = {free_0, shrink},
         .cpu = {2, 0},
         .large = true,
         .check = check_2},
        {.name = "nodes_sheaves",
         .about = "slub, two nodes: sheaves refuse the other node's objects while that node takes",
         .options = "sheaf_capacity=2,slub_max_order=0,min_partial=0",
         .nodes = 2,
         .setup = hold_four,
         .thread = {take_two, free_first},
         .cpu = {0, 2},
         .large = true,
         .check = check_second},
        {0},
};
