/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Requests for memory that are refused, in front of and behind every step of other threads. A call answers
 * NULL or does its work; nothing is lost either way.
 */
#include "scenario.h"

#include "base/metadata.h"
#include "heap/reclaim.h"
#include "lang/atomic.h"
#include "machine/state.h"
#include "percpu/percpu.h"

#include <errno.h>

#define SMALL_SLABS "sheaf_capacity=0,slub_max_order=0,slub_min_objects=1,min_partial=0"
#define SMALL_SHEAVES                                                                              \
        "sheaf_capacity=2,slub_max_order=0,slub_min_objects=1,min_partial=0,slot_cache_max=0"

enum { OBJECT_BYTES = 2048, LARGE_BYTES = 40 << 10, BULK = 5 };

static void *held[4];

static void hold(unsigned int count)
{
        make_cache(OBJECT_BYTES);
        for (unsigned int i = 0; i < count; i++)
                held[i] = take();
}

static void hold_two(void)
{
        hold(2);
}

static void hold_four(void)
{
        hold(4);
}

static void free_two(void)
{
        give(held[0]);
        give(held[1]);
}

static void free_0_and_2(void)
{
        give(held[0]);
        give(held[2]);
}

static void free_four(void)
{
        for (unsigned int i = 0; i < 4; i++)
                give(held[i]);
}

/* Slots and records are there, and the cache is empty: what it has then of the library's own memory. */
static size_t metadata_bytes;

static void hold_four_and_count(void)
{
        make_cache(OBJECT_BYTES);
        for (sim.cpu = 2; sim.cpu; sim.cpu--)
                give(take());
        give(take());
        kmem_cache_shrink(cache);
        metadata_bytes = metadata_used_bytes();
        for (unsigned int i = 0; i < 4; i++)
                held[i] = take();
}

static void check_tables(void)
{
        give(held[1]);
        give(held[3]);
        kmem_cache_shrink(cache);
        if (metadata_used_bytes() != metadata_bytes)
                explore_fail("an empty cache has %zu bytes of metadata: expected %zu",
                             metadata_used_bytes(), metadata_bytes);
        check_empty();
}

/* ---- Slabs and sheaves --------------------------------------------------------------------- */

static void take_three(void)
{
        void *object[3];

        for (unsigned int i = 0; i < 3; i++)
                object[i] = take_if_any();
        for (unsigned int i = 0; i < 3; i++)
                if (object[i])
                        give(object[i]);
}

static void take_one(void)
{
        void *object = take_if_any();

        if (object)
                give(object);
}

/* All objects or none. */
static void take_bulk(void)
{
        void *objects[BULK];
        int taken = kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, BULK, objects);

        CHECK(taken == 0 || taken == BULK);
        for (int i = 0; i < taken; i++)
                take_notes(objects[i]);
        for (int i = 0; i < taken; i++)
                give(objects[i]);
}

static void shrink(void)
{
        kmem_cache_shrink(cache);
}

/* ---- Blocks of whole pages ------------------------------------------------------------------ */

static void hold_large(void)
{
        hold(2);
        held[2] = kmalloc(LARGE_BYTES, GFP_KERNEL);
        take_notes(held[2]);
}

static void give_large(void *block)
{
        give_notes(block);
        kfree(block);
}

static void use_large(void)
{
        void *block = kmalloc(LARGE_BYTES, GFP_KERNEL | __GFP_NOWARN);

        if (!block)
                return;
        take_notes(block);
        give_large(block);
}

/* What the heap frees for the request that was refused is in use here. */
static void free_large(void)
{
        give(held[0]);
        give_large(held[2]);
}

static void check_second(void)
{
        give(held[1]);
        check_empty();
}

/* ---- Caches --------------------------------------------------------------------------------- */

static unsigned int count_caches(void)
{
        struct kmem_cache_info info = {.size = sizeof(info)};
        uint64_t position = 0;
        unsigned int count = 0;

        while (kmem_cache_next(&position, &info) == 1)
                count++;
        return count;
}

/* Before the threads begin. */
static unsigned int caches;
static uint32_t indexes;

/* Two caches more than there are have been there. */
static void hold_and_count(void)
{
        struct kmem_cache *own[2];

        hold(2);
        caches = count_caches();
        for (unsigned int i = 0; i < 2; i++)
                own[i] = kmem_cache_create("own", OBJECT_BYTES, 0, SLAB_NO_MERGE, NULL);
        for (unsigned int i = 0; i < 2; i++)
                kmem_cache_destroy(own[i]);
        indexes = slots_index_end();
}

static void use_own(const char *name)
{
        struct kmem_cache *own = kmem_cache_create(name, OBJECT_BYTES, 0, SLAB_NO_MERGE, NULL);
        void *object;

        if (!own) {
                CHECK(errno == ENOMEM);
                return;
        }
        object = kmem_cache_alloc(own, GFP_KERNEL | __GFP_NOWARN);
        if (object) {
                take_notes(object);
                give_notes(object);
                kmem_cache_free(own, object);
        }
        kmem_cache_destroy(own);
}

static void use_first(void)
{
        use_own("first");
}

static void make_second(void)
{
        struct kmem_cache *own = kmem_cache_create("second", OBJECT_BYTES, 0, SLAB_NO_MERGE, NULL);

        if (own)
                kmem_cache_destroy(own);
}

static void trim(void)
{
        heap_trim(0);
}

/* A cache that was not made is not there, and can be made afterwards. */
static void check_caches(void)
{
        struct kmem_cache *own[2];

        CHECK(count_caches() == caches);
        own[0] = kmem_cache_create("first", OBJECT_BYTES, 0, SLAB_NO_MERGE, NULL);
        own[1] = kmem_cache_create("second", OBJECT_BYTES, 0, SLAB_NO_MERGE, NULL);
        CHECK(own[0] && own[1]);
        if (slots_index_end() != indexes)
                explore_fail("indexes of caches are lost: there are %u, expected %u",
                             slots_index_end(), indexes);
        for (unsigned int i = 0; i < 2; i++) {
                held[2 + i] = kmem_cache_alloc(own[i], GFP_KERNEL);
                take_notes(held[2 + i]);
        }
        for (unsigned int i = 0; i < 2; i++) {
                give_notes(held[2 + i]);
                kmem_cache_free(own[i], held[2 + i]);
                kmem_cache_destroy(own[i]);
        }
        CHECK(count_caches() == caches);
        free_two();
        check_empty();
}

static void check_caches_and_freed(void)
{
        CHECK(count_caches() == caches);
        check_empty();
}

/* ---- Deferred frees ------------------------------------------------------------------------- */

enum { ALIVE = 1, OVERWRITTEN = 2 };

struct item {
        uint32_t value;
        struct kmem_rcu_head head;
};

static struct item *shared; /* what readers find */
static struct item *item[2];

static void share(void)
{
        make_cache(OBJECT_BYTES);
        for (unsigned int i = 0; i < 2; i++) {
                item[i] = take();
                item[i]->value = ALIVE;
        }
        shared = item[0];
        /* The way to fence is chosen; no explored thread has a record yet. */
        kmem_synchronize_rcu();
}

static void read_shared(void)
{
        struct item *found;

        kmem_rcu_read_lock();
        found = load_acquire(&shared);
        if (found) {
                CHECK(load_relaxed(&found->value) == ALIVE);
                cpu_relax();
                if (load_relaxed(&found->value) != ALIVE)
                        explore_fail("a reader sees what was written behind its grace period");
        }
        kmem_rcu_read_unlock();
}

/* The next users of freed memory write there. */
static void overwrite_freed(void)
{
        struct item *other[2];

        for (unsigned int i = 0; i < 2; i++) {
                other[i] = take_if_any();
                if (other[i])
                        store_relaxed(&other[i]->value, OVERWRITTEN);
        }
        for (unsigned int i = 0; i < 2; i++)
                if (other[i])
                        give(other[i]);
}

/* The object has no head that could be noted. */
static void defer_without_head(void)
{
        store_release(&shared, NULL);
        give_notes(item[0]);
        kfree_rcu(item[0]);
        overwrite_freed();
}

static void defer_with_head(void)
{
        store_release(&shared, NULL);
        give_notes(item[0]);
        kfree_rcu(item[0], head);
        overwrite_freed();
}

static void defer_second(void)
{
        give_notes(item[1]);
        kfree_rcu(item[1], head);
}

static void check_first_deferred(void)
{
        kfree_rcu_barrier();
        give(item[1]);
        check_empty();
}

static void check_both_deferred(void)
{
        kfree_rcu_barrier();
        check_empty();
}

/* Behind the barrier the blocks of its thread are free, wherever they were noted. */
static void defer_and_wait(void)
{
        struct kmem_cache_info info = {.size = sizeof(info)};

        give_notes(item[0]);
        kfree_rcu(item[0], head);
        kfree_rcu_barrier();
        CHECK(kmem_cache_info(cache, &info) == 0);
        if (info.objects_inuse > 1)
                explore_fail("%lu objects are in use behind the barrier: expected at most 1",
                             (unsigned long)info.objects_inuse);
}

const struct scenario refused_scenarios[] = {
        {.name = "refused_slab_delayed",
         .large = true,
         .about = "a refill whose new slab is refused against frees into the slab that was full",
         .options = SMALL_SLABS ",freeze=delayed",
         .refusals = 1,
         .setup = hold_two,
         .thread = {take_three, free_two},
         .cpu = {1, 2}},
        {.name = "refused_slab_eager",
         .large = true,
         .about = "a refill whose new slab is refused against frees into the slab that was full",
         .options = SMALL_SLABS ",freeze=eager",
         .refusals = 1,
         .setup = hold_two,
         .thread = {take_three, free_two},
         .cpu = {1, 2}},
        {.name = "refused_bulk",
         .about = "a bulk allocation that gets a part of its slabs against frees",
         .options = SMALL_SLABS ",cpu_partial=0",
         .refusals = 1,
         .setup = hold_four_and_count,
         .thread = {take_bulk, free_0_and_2},
         .cpu = {1, 2},
         .check = check_tables},
        {.name = "refused_sheaf",
         .large = true,
         .about = "slots, records and sheaves are refused to a thread, and another frees",
         .options = SMALL_SHEAVES,
         .refusals = 1,
         .setup = hold_four,
         .thread = {take_three, free_four},
         .cpu = {1, 2}},
        {.name = "refused_sheaf_same_cpu",
         .large = true,
         .about = "two threads of a CPU make its slot, its record and its sheaves",
         .options = SMALL_SHEAVES,
         .refusals = 1,
         .setup = hold_two,
         .thread = {take_one, free_two},
         .cpu = {1, 1}},
        {.name = "refused_sheaf_shrink",
         .large = true,
         .about = "sheaves are refused to frees while another thread shrinks",
         .options = SMALL_SHEAVES,
         .refusals = 1,
         .setup = hold_four,
         .thread = {free_four, shrink},
         .cpu = {1, 2}},
        {.name = "refused_large",
         .large = true,
         .about = "the heap frees what it keeps for a refused block, and another thread frees",
         .options = SMALL_SHEAVES,
         .refusals = 1,
         .setup = hold_large,
         .thread = {use_large, free_large},
         .cpu = {1, 2},
         .check = check_second},
        {.name = "refused_create",
         .large = true,
         .about = "two caches are made, of which one is refused half way",
         .options = "sheaf_capacity=2",
         .refusals = 1,
         .setup = hold_and_count,
         .thread = {use_first, make_second},
         .cpu = {1, 2},
         .check = check_caches},
        {.name = "refused_create_free",
         .large = true,
         .about = "a cache that is refused half way against frees of another cache",
         .options = "sheaf_capacity=2",
         .refusals = 1,
         .setup = hold_and_count,
         .thread = {use_first, free_two},
         .cpu = {1, 2},
         .check = check_caches_and_freed},
        {.name = "refused_create_trim",
         .large = true,
         .about = "a cache that is refused half way against malloc_trim, which walks all caches",
         .options = "sheaf_capacity=2",
         .refusals = 1,
         .setup = hold_and_count,
         .thread = {use_first, trim},
         .cpu = {1, 2},
         .check = check_caches},
        {.name = "refused_kfree_rcu",
         .about = "kfree_rcu without a batch waits for a reader itself",
         .options = SMALL_SLABS,
         .refusals = 1,
         .setup = share,
         .thread = {read_shared, defer_without_head},
         .cpu = {1, 0}, /* the object is in the slab of CPU 0 */
         .check = check_first_deferred},
        {.name = "refused_kfree_rcu_head",
         .about = "kfree_rcu without a batch notes the block in its head, against a reader",
         .options = SMALL_SLABS,
         .refusals = 1,
         .setup = share,
         .thread = {read_shared, defer_with_head},
         .cpu = {1, 0},
         .check = check_first_deferred},
        {.name = "refused_kfree_rcu_barrier",
         .large = true,
         .about = "a block without a batch behind a barrier, and another thread defers beside it",
         .options = SMALL_SLABS,
         .refusals = 1,
         .setup = share,
         .thread = {defer_and_wait, defer_second},
         .cpu = {0, 1},
         .check = check_both_deferred},
        {.name = "refused_kfree_rcu_7_0",
         .about = "sheaf_rule=7.0: the sheaf for kfree_rcu is refused to one of two threads of a "
                  "CPU",
         .options = "sheaf_capacity=2,sheaf_rule=7.0",
         .large = true,
         .refusals = 1,
         .setup = share,
         .thread = {defer_and_wait, defer_second},
         .cpu = {0, 0},
         .check = check_both_deferred},
        {0},
};
