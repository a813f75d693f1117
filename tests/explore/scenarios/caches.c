/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A cache's life and its attributes: created, destroyed, and with sheaves of another size while
 * programs use it.
 */
#include "scenario.h"

#include "lang/atomic.h"

#include <string.h>

static void *held[2];
static unsigned int freed; /* by threads that then no longer use the cache */

static void fill(void)
{
        make_cache(64);
        held[0] = take();
        held[1] = take();
}

static void check_held(void)
{
        give(held[0]);
        give(held[1]);
        check_empty();
}

/* Whoever frees last ends the cache; another thread makes one of its own meanwhile. */
static void free_and_end(unsigned int number)
{
        give(held[number]);
        /* Release and acquire: the program orders the end of a cache behind all its uses. */
        if (__atomic_add_fetch(&freed, 1, __ATOMIC_ACQ_REL) == 2)
                kmem_cache_destroy(cache);
}

static void free_and_end_0(void)
{
        free_and_end(0);
}

static void free_and_end_1(void)
{
        free_and_end(1);
}

static void create_and_destroy(void)
{
        struct kmem_cache *own = kmem_cache_create("own", 64, 0, SLAB_NO_MERGE, NULL);
        void *object;

        CHECK(own);
        object = kmem_cache_alloc(own, GFP_KERNEL);
        take_notes(object);
        give_notes(object);
        kmem_cache_free(own, object);
        kmem_cache_destroy(own);
}

static void check_books(void)
{
        cache = NULL;
        make_cache(64);
        check_empty();
}

static void use(void)
{
        void *object = take();

        give(take());
        give(object);
}

static void set_capacity(void)
{
        CHECK(kmem_attr_write("explored", "sheaf_capacity", "5") == 0);
}

static void set_none(void)
{
        CHECK(kmem_attr_write("explored", "sheaf_capacity", "0") == 0);
}

static void read_figures(void)
{
        struct kmem_cache_info info = {.size = sizeof(info)};
        uint64_t position = 0;

        while (kmem_cache_next(&position, &info) == 1)
                if (strcmp(info.name, "explored") == 0)
                        CHECK(info.objects_inuse <= info.num_objs);
}

const struct scenario cache_scenarios[] = {
        {.name = "destroy_last_free",
         .about = "two threads free the last objects, and the later one ends the cache",
         .options = "sheaf_capacity=2",
         .setup = fill,
         .thread = {free_and_end_0, free_and_end_1},
         .cpu = {0, 1},
         .check = check_books},
        {.name = "destroy_create",
         .large = true,
         .about = "the end of a cache against the life of another",
         .options = "sheaf_capacity=2",
         .setup = fill,
         .thread = {free_and_end_0, free_and_end_1, create_and_destroy},
         .cpu = {0, 1, 2},
         .check = check_books},
        {.name = "create_create",
         .large = true,
         .about = "two threads make and end caches",
         .options = "sheaf_capacity=2",
         .setup = fill,
         .thread = {create_and_destroy, create_and_destroy},
         .cpu = {0, 1},
         .check = check_held},
        {.name = "capacity_use",
         .about = "sheaves get another size while a thread allocates and frees",
         .options = "sheaf_capacity=2",
         .setup = fill,
         .thread = {use, set_capacity},
         .cpu = {0, 1},
         .check = check_held},
        {.name = "capacity_none",
         .about = "sheaves are switched off while a thread allocates and frees",
         .options = "sheaf_capacity=2",
         .setup = fill,
         .thread = {use, set_none},
         .cpu = {0, 1},
         .check = check_held},
        {.name = "figures_use",
         .about = "a reader of the figures against a thread that allocates and frees",
         .options = "sheaf_capacity=2",
         .setup = fill,
         .thread = {use, read_figures},
         .cpu = {0, 1},
         .check = check_held},
        {0},
};
