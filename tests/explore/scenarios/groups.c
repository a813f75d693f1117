/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Memory groups: charges at their limit, and a cache that is closed by its first accounted request
 * while others use its sheaves.
 */
#include "scenario.h"

enum { OBJECT_BYTES = 64 };

static struct kmem_group *group;
static unsigned int refused;

static void make_group(size_t limit_bytes)
{
        group = kmem_group_create("explored", NULL, limit_bytes);
        CHECK(group);
}

static void *take_accounted(void)
{
        void *object;

        kmem_group_set(group);
        object = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_ACCOUNT | __GFP_NOWARN);
        kmem_group_set(NULL);
        if (object)
                take_notes(object);
        return object;
}

/* How much an object is charged with. */
static size_t charge_of_object(void)
{
        struct kmem_group_stats stats;
        void *object = take_accounted();

        CHECK(object);
        CHECK(kmem_group_stats(group, &stats) == 0 && stats.objects == 1);
        give(object);
        return stats.bytes;
}

static void open_cache(void)
{
        make_cache(OBJECT_BYTES);
        give(take());
        make_group(0);
}

/* There is room for a single object. */
static void full_group(void)
{
        open_cache();
        CHECK(kmem_group_set_limit(group, charge_of_object()) == 0);
}

static void use(void)
{
        void *object = take();

        give(take());
        give(object);
}

static void use_accounted(void)
{
        void *object = take_accounted();

        if (object)
                give(object);
        else
                refused++;
}

static void lower_limit(void)
{
        CHECK(kmem_group_set_limit(group, 1) == 0);
}

static void *charged; /* to the group, to one that ended, or to none */

/* What the setup's thread is in, the others are in when they begin. */
static void enter_group(void)
{
        full_group();
        kmem_group_set(group);
}

static void take_charged(void)
{
        charged = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_ACCOUNT | __GFP_NOWARN);
        take_notes(charged);
}

static void check_new_group(void)
{
        struct kmem_group_stats stats;

        CHECK(kmem_group_stats(group, &stats) == 0);
        if (stats.bytes || stats.objects)
                explore_fail("a new group has %zu objects charged that another was asked for",
                             stats.objects);
}

/* The record of a group without objects is the next group's. */
static void end_and_make_group(void)
{
        CHECK(kmem_group_destroy(group) >= 0);
        make_group(0);
        check_new_group();
}

static void check_ended_group(void)
{
        kmem_group_set(NULL);
        check_new_group();
        give(charged);
        check_new_group();
        CHECK(kmem_group_destroy(group) == 0);
        check_empty();
}

static void check_charges(void)
{
        struct kmem_group_stats stats;

        CHECK(kmem_group_stats(group, &stats) == 0);
        if (stats.bytes || stats.objects)
                explore_fail("a group without objects has %zu objects of %zu bytes charged",
                             stats.objects, stats.bytes);
        CHECK(stats.refusals == refused);
        CHECK(!stats.limit || stats.peak <= stats.limit || stats.limit == 1);
}

static void end_group(void)
{
        check_charges();
        CHECK(kmem_group_destroy(group) == 0);
        check_empty();
}

/* Behind the close no sheaf of the old index takes an object that is to be uncharged. */
static void check_closed(void)
{
        use_accounted();
        end_group();
}

const struct scenario group_scenarios[] = {
        {.name = "close_use",
         .about = "an accounted request closes a cache whose sheaves another CPU uses",
         .options = "sheaf_capacity=1",
         .large = true,
         .setup = open_cache,
         .thread = {use, use_accounted},
         .cpu = {0, 1},
         .check = check_closed},
        {.name = "close_same_cpu",
         .about = "an accounted request closes a cache whose sheaves the CPU's other thread uses",
         .options = "sheaf_capacity=1",
         .large = true,
         .setup = open_cache,
         .thread = {use, use_accounted},
         .cpu = {0, 0},
         .check = check_closed},
        {.name = "group_limit",
         .about = "two threads want the last object that a group's limit allows",
         .options = "sheaf_capacity=2",
         .setup = full_group,
         .thread = {use_accounted, use_accounted},
         .cpu = {0, 1},
         .check = end_group},
        {.name = "group_lower_limit",
         .about = "a group's limit is lowered while a thread charges and uncharges",
         .options = "sheaf_capacity=2",
         .setup = full_group,
         .thread = {use_accounted, lower_limit},
         .cpu = {0, 1},
         .check = end_group},
        {.name = "group_end_charge",
         .about = "a group ends, and its record is the next group's, while a thread charges to it",
         .options = "sheaf_capacity=2",
         .setup = enter_group,
         .thread = {take_charged, end_and_make_group},
         .cpu = {0, 1},
         .check = check_ended_group},
        {0},
};
