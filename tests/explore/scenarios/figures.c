/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The figures that other processes see: however the threads ran, the last figure shown is of the
 * last value.
 */
#include "scenario.h"

#include "engines/caches.h"
#include "page/kept.h"
#include "percpu/figures.h"
#include "percpu/percpu.h"

enum { LARGE_BYTES = 40 << 10 };

static void *held[4];
static void *block;

static void hold_four(void)
{
        make_cache(2048);
        for (unsigned int i = 0; i < 4; i++)
                held[i] = take();
        registry_due = true;
}

static void hold_and_start(void)
{
        hold_four();
        figures_act();
        CHECK(cache->node[0].figures);
}

static void hold_block(void)
{
        hold_four();
        block = kmalloc(LARGE_BYTES, GFP_KERNEL);
        take_notes(block);
}

static void start(void)
{
        figures_act();
}

static void free_two(void)
{
        give(held[0]);
        give(held[1]);
}

static void free_others(void)
{
        give(held[2]);
        give(held[3]);
}

static void free_0(void)
{
        give(held[0]);
}

static void free_1(void)
{
        give(held[1]);
}

static void free_block(void)
{
        give_notes(block);
        kfree(block);
}

static void check_slot(struct kmem_cache *shown, struct engine_slot *slot, uint32_t id)
{
        (void)shown;
        CHECK(slot->figures);
        if (slot->figures->given != slot->given || slot->figures->taken != slot->taken)
                explore_fail("slot %u shows %lu taken and %lu given: expected %lu and %lu", id,
                             (unsigned long)slot->figures->taken,
                             (unsigned long)slot->figures->given, (unsigned long)slot->taken,
                             (unsigned long)slot->given);
}

static void check_shown(void)
{
        const struct engine_node *node = &cache->node[0];

        CHECK(node->figures);
        if (node->figures->slabs != node->slabs || node->figures->objects != node->objects)
                explore_fail("a node shows %lu slabs and %lu objects: expected %lu and %lu",
                             (unsigned long)node->figures->slabs,
                             (unsigned long)node->figures->objects, (unsigned long)node->slabs,
                             (unsigned long)node->objects);
        slots_each_record(cache, check_slot);
}

static void check_all_free(void)
{
        check_shown();
        check_empty();
}

static void check_rest(void)
{
        check_shown();
        give(held[2]);
        give(held[3]);
        check_empty();
}

static void check_block(void)
{
        const struct registry_zone *zone = &registry->zone[0];
        uint64_t kept = 0;

        for (unsigned int i = 0; i < REGISTRY_KEPT; i++)
                kept += registry->kept[i].block >> 32;
        if (zone->large_pages != kept)
                explore_fail("a zone shows %lu pages of large blocks, and %lu pages are kept",
                             (unsigned long)zone->large_pages, (unsigned long)kept);
        free_two();
        free_others();
        check_empty();
}

/* Slabs that are emptied go at once. */
#define SMALL_SLABS                                                                                \
        "sheaf_capacity=0,slub_max_order=0,slub_min_objects=1,min_partial=0,cpu_partial=0"

const struct scenario figures_scenarios[] = {
        {.name = "figures_start_free",
         .large = true,
         .about = "the registry is made while a thread frees objects and slabs",
         .options = SMALL_SLABS,
         .setup = hold_four,
         .thread = {free_two, start},
         .cpu = {1, 2},
         .check = check_rest},
        {.name = "figures_frees",
         .large = true,
         .about = "two threads change and show the figures of a node",
         .options = SMALL_SLABS,
         .setup = hold_and_start,
         .thread = {free_two, free_others},
         .cpu = {1, 2},
         .check = check_all_free},
        {.name = "figures_same_cpu",
         .large = true,
         .about = "two threads change and show the figures of a slot",
         .options = SMALL_SLABS,
         .setup = hold_and_start,
         .thread = {free_0, free_1},
         .cpu = {1, 1},
         .check = check_rest},
        {.name = "figures_start_block",
         .about = "the registry is made while a large block is kept",
         .setup = hold_block,
         .thread = {free_block, start},
         .cpu = {1, 2},
         .check = check_block},
        {0},
};
