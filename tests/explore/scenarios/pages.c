/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Blocks of whole pages: those that are kept for the next request, and the return of memory to the
 * system (malloc_trim), against threads that allocate and free.
 */
#include "scenario.h"

#include "heap/reclaim.h"
#include "page/large.h"
#include "page/zone.h"

enum { LARGE_BYTES = 40 << 10 };

static void *held;
static void *taken;

static void take_large(void **block)
{
        *block = kmalloc(LARGE_BYTES, GFP_KERNEL);
        take_notes(*block);
}

static void give_large(void *block)
{
        give_notes(block);
        kfree(block);
}

static void fill(void)
{
        void *other;

        make_cache(64);
        take_large(&held);
        take_large(&other);
        give_large(other);
        give(take());
}

/* A block is kept when the threads begin. */
static void keep(void)
{
        void *other;

        make_cache(64);
        give(take());
        take_large(&held);
        take_large(&other);
        give_large(other);
}

static void use_large(void)
{
        void *block;

        take_large(&block);
        give_large(block);
}

static void free_held(void)
{
        give_large(held);
}

static void use_small(void)
{
        give(take());
}

static void take_block(void)
{
        take_large(&taken);
}

/* The block that was taken is nobody else's: another one is not the same. */
static void check_block(void)
{
        void *other;

        take_large(&other);
        give_large(other);
        give_large(taken);
        give_large(held);
        check_empty();
}

static void trim(void)
{
        heap_trim(0);
}

static void check_held(void)
{
        free_held();
        check_empty();
}

/* A huge block is there, and another one is kept. */
static void keep_huge(void)
{
        void *other;

        make_cache(64);
        give(take());
        held = kmalloc(HUGE_BYTES, GFP_KERNEL);
        take_notes(held);
        other = kmalloc(HUGE_BYTES, GFP_KERNEL);
        CHECK(other && other != held);
        kfree(other);
}

static void use_huge(void)
{
        void *block = kmalloc(HUGE_BYTES, GFP_KERNEL);

        take_notes(block);
        CHECK(ksize(block) >= HUGE_BYTES);
        give_large(block);
}

/* Chunks of two zones, all handed out but one of the second zone. */
static struct page *chunks[2];
static struct page *moved;
static struct page *found;

static void use_up_zones(void)
{
        make_cache(64);
        give(take());
        for (int node = 0; node < 2; node++)
                for (struct page *page; (page = pages_alloc(ORDER_MAX, node, NULL));)
                        chunks[node] = page;
        CHECK(chunks[0] && chunks[1]);
        pages_free(chunks[1], CHUNK_PAGES);
}

/* At each moment a chunk is free, in this zone or in that (ZONE-2). */
static void take_chunk(void)
{
        found = pages_alloc(ORDER_MAX, NODE_ANY, NULL);
        if (!found)
                explore_fail("no chunk was found, and one was free all the time");
}

static void move_chunk(void)
{
        pages_free(chunks[0], CHUNK_PAGES);
        moved = pages_alloc(ORDER_MAX, 1, NULL);
}

static void check_chunks(void)
{
        CHECK(found != moved);
        pages_free(found, CHUNK_PAGES);
        if (moved)
                pages_free(moved, CHUNK_PAGES);
        check_empty();
}

const struct scenario page_scenarios[] = {
        {.name = "zones_move",
         .about = "a request looks at two zones while the free chunk moves from this to that",
         .options = "sheaf_capacity=2,node_limit=12M",
         .nodes = 2,
         .setup = use_up_zones,
         .thread = {take_chunk, move_chunk},
         .cpu = {0, 2},
         .check = check_chunks},
        {.name = "kept_take_put",
         .about = "a block is kept and taken again by two threads",
         .options = "sheaf_capacity=2",
         .setup = fill,
         .thread = {use_large, free_held},
         .cpu = {0, 1}},
        {.name = "kept_three",
         .large = true,
         .about = "three threads want and keep blocks of one size",
         .options = "sheaf_capacity=2",
         .setup = fill,
         .thread = {use_large, use_large, free_held},
         .cpu = {0, 1, 2}},
        {.name = "kept_trim",
         .about = "malloc_trim frees kept blocks that a thread wants",
         .options = "sheaf_capacity=2",
         .setup = fill,
         .thread = {use_large, trim},
         .cpu = {0, 1},
         .check = check_held},
        {.name = "kept_take_trim",
         .about = "malloc_trim frees a kept block that a thread takes for good",
         .options = "sheaf_capacity=2",
         .setup = keep,
         .thread = {take_block, trim},
         .cpu = {0, 1},
         .check = check_block},
        {.name = "free_trim",
         .about = "malloc_trim against the free of a large block",
         .options = "sheaf_capacity=2",
         .setup = fill,
         .thread = {free_held, trim},
         .cpu = {0, 1}},
        {.name = "small_trim",
         .large = true,
         .about = "malloc_trim against pops and pushes of a cache",
         .options = "sheaf_capacity=2",
         .setup = fill,
         .thread = {use_small, trim},
         .cpu = {0, 1},
         .check = check_held},
        {.name = "trim_trim",
         .large = true,
         .about = "two malloc_trim at once",
         .options = "sheaf_capacity=2",
         .setup = fill,
         .thread = {trim, trim},
         .cpu = {0, 1},
         .check = check_held},
        {.name = "huge_two",
         .about = "two threads want the huge block that is kept",
         .options = "sheaf_capacity=2",
         .setup = keep_huge,
         .thread = {use_huge, use_huge},
         .cpu = {0, 1},
         .check = check_held},
        {.name = "huge_free",
         .about = "a huge block is freed while a thread takes and frees another",
         .options = "sheaf_capacity=2",
         .setup = keep_huge,
         .thread = {use_huge, free_held},
         .cpu = {0, 1}},
        {.name = "huge_trim",
         .about = "malloc_trim unmaps the huge block that is kept and that a thread wants",
         .options = "sheaf_capacity=2",
         .setup = keep_huge,
         .thread = {use_huge, trim},
         .cpu = {0, 1},
         .check = check_held},
        {0},
};
