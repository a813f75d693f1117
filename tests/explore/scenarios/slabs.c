/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The back end of slub without sheaves: CPU slabs, node lists and frees by other CPUs, with slabs
 * of two objects and both schemes of freezing.
 */
#include "scenario.h"

#include "heap/reclaim.h"

#define SMALL_SLABS "sheaf_capacity=0,slub_max_order=0,slub_min_objects=1,min_partial=0"

static void *held[6];
static void *used[3];

static void hold_of_size(unsigned int size, unsigned int count)
{
        make_cache(size);
        for (unsigned int i = 0; i < count; i++)
                held[i] = take();
}

static void hold(unsigned int count)
{
        hold_of_size(2048, count);
}

/* Slabs of three objects; the first has one that is free. */
static void hold_five_of_three(void)
{
        hold_of_size(1344, 6);
        give(held[0]);
}

/* A slab of four objects, three of them free and on its list. */
static void hold_one_of_four(void)
{
        hold_of_size(1024, 4);
        for (unsigned int i = 1; i < 4; i++)
                give(held[i]);
}

static void construct(void *object)
{
        *(uint64_t *)object = 0;
}

/* The slab that a constructor's cache needs is made without the slot cache lock. */
static void make_constructed(void)
{
        cache = kmem_cache_create("explored", 2048, 0, SLAB_NO_MERGE, construct);
        CHECK(cache);
}

static void hold_two(void)
{
        hold(2);
}

static void hold_four(void)
{
        hold(4);
}

static void hold_six(void)
{
        hold(6);
}

static void hold_half_of_four(void)
{
        hold(4);
        give(held[1]);
        give(held[3]);
}

/* The slabs of three objects that are held have a free object each. */
static void hold_half(void)
{
        hold(6);
        for (unsigned int i = 1; i < 6; i += 2)
                give(held[i]);
}

static void check_held(void)
{
        for (unsigned int i = 0; i < 6; i += 2)
                give(held[i]);
        check_empty();
}

static void free_0(void)
{
        give(held[0]);
}

static void free_1(void)
{
        give(held[1]);
}

static void free_both(void)
{
        give(held[0]);
        give(held[1]);
}

static void free_four(void)
{
        for (unsigned int i = 0; i < 4; i++)
                give(held[i]);
}

static void free_0_and_2(void)
{
        give(held[0]);
        give(held[2]);
}

static void free_1_and_3(void)
{
        give(held[1]);
        give(held[3]);
}

static void free_rest_of_six(void)
{
        give(held[4]);
        give(held[5]);
}

static void free_bulk_of_three(void)
{
        void *objects[] = {held[0], held[2], held[4]};

        for (unsigned int i = 0; i < 3; i++)
                give_notes(objects[i]);
        kmem_cache_free_bulk(cache, 3, objects);
}

/* Of six: slabs of three objects each. */
static void free_1_of_five(void)
{
        give(held[1]);
}

static void check_rest_of_five(void)
{
        for (unsigned int i = 2; i < 6; i++)
                give(held[i]);
        check_empty();
}

static void check_first(void)
{
        give(held[0]);
        check_empty();
}

static void take_bulk(void)
{
        void *objects[5];

        CHECK(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 5, objects) == 5);
        for (unsigned int i = 0; i < 5; i++)
                take_notes(objects[i]);
        for (unsigned int i = 0; i < 5; i++)
                give(objects[i]);
}

static void free_others_of_six(void)
{
        for (unsigned int i = 1; i < 6; i += 2)
                give(held[i]);
}

/* The sheaf is emptied by its own CPU. */
static void free_three_and_shrink(void)
{
        for (unsigned int i = 0; i < 6; i += 2)
                give(held[i]);
        kmem_cache_shrink(cache);
}

static void check_flushed(void)
{
        give(held[3]);
        give(held[5]);
        check_empty();
}

static void check_others_of_six(void)
{
        free_others_of_six();
        check_empty();
}

static void take_two(void)
{
        void *object = take();

        give(take());
        give(object);
}

static void take_one(void)
{
        held[5] = take();
}

static void check_last(void)
{
        give(held[4]);
        check_empty();
}

static void check_one(void)
{
        give(held[5]);
        check_empty();
}

/* The page of a slab that a shrink frees may be a slab again before another CPU looks at it. */
static void shrink_and_use(void)
{
        kmem_cache_shrink(cache);
        for (unsigned int i = 0; i < 3; i++)
                used[i] = take();
        give(used[0]);
}

static void check_used(void)
{
        give(held[2]);
        give(held[3]);
        give(used[1]);
        give(used[2]);
        check_empty();
}

static void take_and_give(void)
{
        give(take());
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

static void trim(void)
{
        heap_trim(0);
}

/* A class whose slabs have two objects in three pages. */
enum { EXACT_BYTES = 6144 };

static void *take_exact(void)
{
        void *object = kmalloc(EXACT_BYTES, GFP_KERNEL);

        take_notes(object);
        return object;
}

static void give_exact(void *object)
{
        give_notes(object);
        kfree(object);
}

static void hold_exact(void)
{
        make_cache(64);
        for (unsigned int i = 0; i < 6; i++)
                held[i] = take_exact();
}

static void free_exact_bulk(void)
{
        void *objects[] = {held[0], held[1]};

        give_notes(held[0]);
        give_notes(held[1]);
        kfree_bulk(2, objects);
}

static void use_exact(void)
{
        give_exact(take_exact());
        give_exact(held[2]);
}

/* No slab is left in any class of that size. */
static void check_exact(void)
{
        struct kmem_cache_info info = {.size = sizeof(info)};
        uint64_t position = 0;

        for (unsigned int i = 3; i < 6; i++)
                give_exact(held[i]);
        heap_trim(0);
        while (kmem_cache_next(&position, &info) == 1)
                if (info.flags & SLAB_KMALLOC && info.object_size == EXACT_BYTES) {
                        CHECK(info.pagesperslab == 3 && info.objects_inuse == 0);
                        if (info.num_slabs)
                                explore_fail("%lu slabs are left", (unsigned long)info.num_slabs);
                }
        check_empty();
}

/* Emptied slabs stay on CPU partial lists, or go to the node's lists at once. */
#define NODE_LISTS SMALL_SLABS ",cpu_partial=0"

#define EACH_FREEZING_OF(name_, options_, ...)                                                     \
        {.name = name_ "_delayed", .options = options_ ",freeze=delayed", __VA_ARGS__},            \
        {                                                                                          \
                .name = name_ "_eager", .options = options_ ",freeze=eager", __VA_ARGS__           \
        }
#define EACH_FREEZING(name_, ...) EACH_FREEZING_OF(name_, SMALL_SLABS, __VA_ARGS__)

const struct scenario slab_scenarios[] = {
        EACH_FREEZING("last_frees", .about = "both objects of a slab are freed by other CPUs",
                      .setup = hold_two, .thread = {free_0, free_1}, .cpu = {1, 2}),
        EACH_FREEZING("last_free_lists",
                      .about = "frees that put slabs on the node's list and take them off",
                      .setup = hold_four, .thread = {free_0_and_2, free_1_and_3}, .cpu = {1, 2}),
        EACH_FREEZING("free_refill", .large = true,
                      .about = "frees into slabs that a CPU refills from and takes for its own",
                      .setup = hold_four, .thread = {free_0_and_2, take_three, free_1_and_3},
                      .cpu = {1, 2, 3}),
        EACH_FREEZING("free_shrink", .large = true,
                      .about = "last frees against a shrink that discards slabs",
                      .setup = hold_four, .thread = {free_0_and_2, free_1_and_3, shrink},
                      .cpu = {0, 1, 2}),
        EACH_FREEZING("free_all_shrink", .about = "a CPU frees two slabs, another shrinks",
                      .setup = hold_four, .thread = {free_four, shrink}, .cpu = {1, 2}),
        EACH_FREEZING("refill_shrink", .large = true, .about = "a refill against a shrink",
                      .setup = hold_half, .thread = {take_three, shrink}, .cpu = {1, 2},
                      .check = check_held),
        EACH_FREEZING("refill_free", .about = "a refill against a free of another CPU",
                      .setup = hold_two, .thread = {take_three, free_both}, .cpu = {1, 2}),
        EACH_FREEZING("takers_same_cpu", .large = true,
                      .about = "two threads share the CPU slab of a CPU", .setup = hold_half,
                      .thread = {take_and_give, take_three}, .cpu = {0, 0}, .check = check_held),
        EACH_FREEZING("refill_reclaim", .large = true, .about = "a refill against malloc_trim",
                      .setup = hold_half, .thread = {take_three, trim}, .cpu = {1, 2},
                      .check = check_held),
        EACH_FREEZING("six_frees", .large = true, .about = "three slabs are emptied by three CPUs",
                      .setup = hold_six, .thread = {free_0_and_2, free_1_and_3, free_rest_of_six},
                      .cpu = {1, 2, 3}),
        EACH_FREEZING_OF("node_frees", NODE_LISTS, .large = true,
                         .about = "frees that list and discard slabs, without CPU partial lists",
                         .setup = hold_four, .thread = {free_0_and_2, free_1_and_3}, .cpu = {1, 2}),
        EACH_FREEZING_OF(
                "node_free_shrink", NODE_LISTS,
                .about = "the frees of two slabs against a shrink, without CPU partial lists",
                .setup = hold_four, .thread = {free_four, shrink}, .cpu = {1, 2}),
        EACH_FREEZING_OF("node_refill_free", NODE_LISTS, .large = true,
                         .about = "a refill from the node's list against frees into its slabs",
                         .setup = hold_half_of_four, .thread = {take_three, free_0_and_2},
                         .cpu = {1, 2}),
        EACH_FREEZING_OF("node_refill_shrink", NODE_LISTS, .large = true,
                         .about = "a refill from the node's list against a shrink",
                         .setup = hold_half, .thread = {take_three, shrink}, .cpu = {1, 2},
                         .check = check_held),
        EACH_FREEZING_OF("node_takers", NODE_LISTS, .large = true,
                         .about = "two threads of a CPU want a new slab, and others free",
                         .setup = hold_four, .thread = {take_two, take_two, free_four},
                         .cpu = {1, 1, 2}),
        EACH_FREEZING_OF("node_bulk_free", NODE_LISTS, .large = true,
                         .about = "a bulk free over three slabs against single frees",
                         .setup = hold_six, .thread = {free_bulk_of_three, free_others_of_six},
                         .cpu = {1, 2}),
        EACH_FREEZING_OF("node_bulk_shrink", NODE_LISTS,
                         .about = "a bulk free that lists three slabs at once against a shrink",
                         .setup = hold_six, .thread = {free_bulk_of_three, shrink}, .cpu = {1, 2},
                         .check = check_others_of_six),
        EACH_FREEZING_OF("node_free_use", NODE_LISTS, .large = true,
                         .about = "the frees of two slabs against a shrink and new slabs",
                         .setup = hold_four, .thread = {free_both, shrink_and_use}, .cpu = {1, 2},
                         .check = check_used),
        EACH_FREEZING_OF("node_refill_of_three", NODE_LISTS, .large = true,
                         .about = "a refill against a free that leaves its slab on the list",
                         .setup = hold_five_of_three, .thread = {take_two, free_1_of_five},
                         .cpu = {1, 2}, .check = check_rest_of_five),
        EACH_FREEZING_OF("node_bulk_take", NODE_LISTS,
                         .about = "a bulk allocation makes several slabs at once",
                         .setup = hold_two, .thread = {take_bulk, free_both}, .cpu = {1, 2}),
        EACH_FREEZING("bulk_take", .about = "a bulk allocation makes slabs, CPU partial lists too",
                      .setup = hold_two, .thread = {take_bulk, free_both}, .cpu = {1, 2}),
        EACH_FREEZING("bulk_free_lists", .about = "a bulk free over three slabs against a shrink",
                      .setup = hold_six, .thread = {free_bulk_of_three, shrink}, .cpu = {1, 2},
                      .check = check_others_of_six),
        EACH_FREEZING("list_takers", .about = "two threads of a CPU take from a slab's list",
                      .setup = hold_one_of_four, .thread = {take_two, take_and_give}, .cpu = {0, 0},
                      .check = check_first),
        EACH_FREEZING("new_takers", .large = true,
                      .about = "two threads of a CPU make its slab, which has a constructor",
                      .setup = make_constructed, .thread = {take_one, take_and_give}, .cpu = {1, 1},
                      .check = check_one),
        {.name = "exact_bulk_free",
         .about = "a chain empties a slab of exact pages while another CPU takes and frees",
         .options = "sheaf_capacity=0,classes=fine,min_partial=0",
         .setup = hold_exact,
         .thread = {free_exact_bulk, use_exact},
         .cpu = {1, 2},
         .check = check_exact},
        {.name = "sheaf_refill_free",
         .large = true,
         .about = "sheaves are filled from the node's list while another CPU frees into its slabs",
         .options = "sheaf_capacity=2,slub_max_order=0,slub_min_objects=1,min_partial=0,"
                    "cpu_partial=0,slot_cache_max=0",
         .setup = hold_half,
         .thread = {take_two, free_0_and_2},
         .cpu = {1, 2},
         .check = check_last},
        {.name = "sheaf_flush",
         .large = true,
         .about = "a sheaf with objects of three slabs is emptied while another CPU frees there",
         .options = "sheaf_capacity=3,slub_max_order=0,slub_min_objects=1,min_partial=0,"
                    "slot_cache_max=0",
         .setup = hold_six,
         .thread = {free_three_and_shrink, free_1},
         .cpu = {1, 2},
         .check = check_flushed},
        {.name = "single_refill_free",
         .large = true,
         .about = "objects are taken from the node's list one by one while another CPU frees",
         .options = NODE_LISTS ",cpu_slabs=0",
         .setup = hold_half,
         .thread = {take_two, free_0_and_2},
         .cpu = {1, 2},
         .check = check_last},
        {.name = "single_bulk_free",
         .large = true,
         .about = "a bulk allocation from the node's list while another CPU empties its slabs",
         .options = NODE_LISTS ",cpu_slabs=0",
         .setup = hold_half,
         .thread = {take_bulk, free_0_and_2},
         .cpu = {1, 2},
         .check = check_last},
        {0},
};
