/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The policies of the SLUB back end and its counters: the length of CPU partial lists under each
 * accounting rule (S2), their figures in the attribute files, and the counts of the kernel's
 * statistics (S9.2).
 */
#define _GNU_SOURCE
#include "child.h"
#include "walker.h"

#include "base/options.h"
#include "introspect/counters.h"
#include "introspect/totals.h"
#include "percpu/percpu.h"
#include "engines/slub/slab.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { SLOTS = 3, SLABS = 140, OBJECTS = 512, WITH_SHEAVES = 8 };

static struct kmem_cache *cache;
static struct engine_slot slots[SLOTS];
static struct slub_counters counters[SLOTS];
static void *objects[SLABS][OBJECTS];

static struct walk_counts walk(void)
{
        struct walk_counts counts;

        walk_heap(cache, &counts);
        return counts;
}

static void begin(uint32_t size, bool count_objects, uint32_t cpu_partial)
{
        cache = kmem_cache_create("policies", size, 0, 0, NULL);
        check(cache != NULL && cache->objects <= OBJECTS);
        cache->count_objects = count_objects;
        cache->has_cpu_partial = true;
        cache->min_partial = 5;
        slub_set_cpu_partial(cache, cpu_partial);
        memset(counters, 0, sizeof(counters));
        for (unsigned int i = 0; i < SLOTS; i++)
                slots[i] = (struct engine_slot){
                        .freelist = ENGINE_NO_OBJECT, .home = 1 + i, .counters = &counters[i]};
        walk_own_slots(cache, slots, SLOTS);
}

static void give(unsigned int slot, unsigned int slab, unsigned int from, unsigned int to)
{
        void *batch[OBJECTS];

        memcpy(batch, &objects[slab][from], (to - from) * sizeof(batch[0]));
        cache->engine->give(cache, &slots[slot], batch, to - from);
}

static void make_full(unsigned int count)
{
        for (unsigned int slab = 0; slab < count; slab++) {
                check_equal(cache->engine->take(cache, &slots[0], objects[slab], cache->objects),
                            cache->objects);
                cache->engine->flush_slot(cache, &slots[0]);
        }
        walk();
}

static void end(void)
{
        for (unsigned int slot = 0; slot < SLOTS; slot++)
                cache->engine->flush_slot(cache, &slots[slot]);
        check_equal(walk().inuse, 0);
        check(!cache->engine->shrink(cache));
        walk_own_slots(NULL, NULL, 0);
        kmem_cache_destroy(cache);
}

static uint32_t list_slabs(unsigned int slot)
{
        return (uint32_t)slub_slot_partial(&slots[slot]).slabs;
}

/* ---- The length of a list (S2-03, S2-05, S2-12) -------------------------------------------- */

/*
 * A free for each slab. By objects the list grows to the limit and one more, as the test is `>` and
 * looks at the list before the slab joins; by slabs it stops at the limit in slabs.
 */
static void length_of_a_list(void **state)
{
        static const uint32_t limits[] = {2, 6, 13, 30, 120};
        static const uint32_t sizes[] = {64, 256, 512, 1024};

        for (unsigned int count_objects = 0; count_objects < 2; count_objects++)
                for (size_t i = 0; i < array_size(limits) * array_size(sizes); i++) {
                        uint32_t limit = limits[i / array_size(sizes)];
                        uint32_t longest = 0;
                        uint32_t expected;

                        begin(sizes[i % array_size(sizes)], count_objects, limit);
                        expected = count_objects ? limit + 1 : cache->cpu_partial_slabs;
                        make_full(expected + 1);
                        for (unsigned int slab = 0; slab <= expected; slab++) {
                                give(1, slab, 0, 1);
                                longest = list_slabs(1) > longest ? list_slabs(1) : longest;
                                check_equal(list_slabs(1), slab < expected ? slab + 1 : 1);
                                check_equal(counters[1].event[CPU_PARTIAL_DRAIN], slab == expected);
                        }
                        check_equal(longest, expected);
                        check_equal(walk().node_partial, expected);
                        for (unsigned int slab = 0; slab <= expected; slab++)
                                give(2, slab, 1, cache->objects);
                        end();
                }
}

/* A slab for each digit of @who goes to the node's list, by a free through the slot of that number. */
static void list_on_node(const char *who)
{
        bool has_cpu_partial = cache->has_cpu_partial;

        make_full((unsigned int)strlen(who));
        cache->has_cpu_partial = false;
        for (unsigned int slab = 0; who[slab]; slab++)
                give((unsigned int)(who[slab] - '0'), slab, 0, 1);
        cache->has_cpu_partial = has_cpu_partial;
        check_equal(walk().node_partial, strlen(who));
}

/* The slab whose only free object a slot takes. */
static unsigned int slab_taken(unsigned int slot)
{
        unsigned int slab = 0;
        void *object;

        check_equal(cache->engine->take(cache, &slots[slot], &object, 1), 1);
        while (objects[slab][0] != object)
                check(++slab < SLABS);
        return slab;
}

static void expect_slabs(unsigned int slot, const char *order)
{
        for (; *order; order++)
                check_equal(slab_taken(slot), (unsigned int)(*order - '0'));
}

static void end_full(unsigned int slabs)
{
        for (unsigned int slab = 0; slab < slabs; slab++)
                give(0, slab, 0, cache->objects);
        end();
}

/*
 * A slot takes slabs that it listed itself before those of others, and these before a new one, if a page
 * has several objects. Larger objects, and all without sheaves, go by the list alone, as the kernel's.
 */
static void own_slabs_come_first(void **state)
{
        static const uint32_t sizes[] = {64, 512, 1024};

        for (size_t i = 0; i < array_size(sizes); i++) {
                bool by_list = sizes[i] > 512;

                for (int sheaves = 1; sheaves >= 0; sheaves--) {
                        begin(sizes[i], false, 0);
                        cache->has_cpu_partial = false;
                        cache->sheaf_capacity = sheaves ? WITH_SHEAVES : 0;
                        list_on_node("121211");
                        expect_slabs(2, by_list || !sheaves ? "0123" : "1302");
                        expect_slabs(1, "45");
                        end_full(6);
                }
        }
}

/*
 * A refill that finds a slab of the slot's own takes no others besides; one that finds none takes as many
 * as the kernel's.
 */
static void refills_bring_own_slabs(void **state)
{
        begin(64, false, 0);
        slub_set_cpu_partial(cache, 60 * cache->objects);
        cache->sheaf_capacity = WITH_SHEAVES;
        list_on_node("11212112");
        check_equal(slab_taken(2), 2);
        check_equal(list_slabs(2), 2);
        check_equal(walk().node_partial, 5);
        expect_slabs(2, "74");
        check_equal(slab_taken(2), 0);
        check_equal(list_slabs(2), 4);
        check_equal(walk().node_partial, 0);
        expect_slabs(2, "6531");
        end_full(8);
}

/* A refill looks at the first 32 slabs of the list. */
static void own_slabs_are_near(void **state)
{
        char who[34];

        for (unsigned int before = 31; before < 33; before++) {
                memset(who, '1', before);
                who[before] = '2';
                who[before + 1] = 0;
                begin(64, false, 0);
                cache->has_cpu_partial = false;
                cache->sheaf_capacity = WITH_SHEAVES;
                list_on_node(who);
                check_equal(slab_taken(2), before < 32 ? before : 0);
                for (unsigned int left = before; left; left--)
                        slab_taken(1);
                end_full(before + 1);
        }
}

/* S2-05: and the slabs may all have become empty; the counted number does not change. */
static void empty_slabs_pile_up(void **state)
{
        begin(128, true, 30);
        make_full(31);
        for (unsigned int slab = 0; slab < 31; slab++)
                give(1, slab, 0, 1);
        for (unsigned int slab = 0; slab < 31; slab++)
                give(2, slab, 1, cache->objects);
        check_equal(list_slabs(1), 31);
        check_equal(slub_slot_partial(&slots[1]).objects, 31);
        check_equal(walk().inuse, 0);
        check_equal(cache->node[0].slabs, 31); /* none of them is free to go */
        end();
}

/* S2-01: a slab that joins with more free objects counts them all. */
static void free_objects_when_joining(void **state)
{
        begin(256, true, 10);
        make_full(4);
        give(1, 0, 0, 4);
        check_equal(slub_slot_partial(&slots[1]).objects, 4);
        give(1, 1, 0, 6);
        check_equal(slub_slot_partial(&slots[1]).objects, 10); /* not above 10 */
        give(1, 2, 0, 1);
        check_equal(slub_slot_partial(&slots[1]).objects, 11);
        check_equal(list_slabs(1), 3);
        give(1, 3, 0, 2); /* 11 > 10: the list goes, the slab starts a new list */
        check_equal(slub_slot_partial(&slots[1]).objects, 2);
        check_equal(list_slabs(1), 1);
        give(1, 0, 4, cache->objects);
        give(1, 1, 6, cache->objects);
        give(1, 2, 1, cache->objects);
        give(1, 3, 2, cache->objects);
        end();
}

/* ---- Refill (S2-20) ---------------------------------------------------------------------------- */

/* Stops when the free objects of all slabs taken, the first too, are more than half the limit. */
static void refill_by_objects(void **state)
{
        for (unsigned int eager = 0; eager < 2; eager++)
                for (uint32_t limit = 1; limit <= 24; limit++)
                        for (unsigned int each = 1; each <= 3; each++) {
                                uint32_t expected = limit / 2 / each + 1; /* sum > limit / 2 */
                                void *one;

                                begin(256, true, limit);
                                cache->freeze_eagerly = eager;
                                cache->sheaf_capacity = 0; /* as the kernel takes slabs */
                                make_full(14);
                                cache->has_cpu_partial = false;
                                for (unsigned int slab = 0; slab < 14; slab++)
                                        give(0, slab, 0, each);
                                cache->has_cpu_partial = true;
                                check_equal(cache->engine->take(cache, &slots[1], &one, 1), 1);
                                check_equal(list_slabs(1) + 1, expected);
                                check_equal(slub_slot_partial(&slots[1]).objects,
                                            (expected - 1) * each);
                                check_equal(walk().node_partial, 14 - expected);
                                cache->engine->give(cache, &slots[1], &one, 1);
                                for (unsigned int slab = 0; slab < 14; slab++)
                                        give(2, slab, each, cache->objects);
                                end();
                        }
}

/*
 * ---- Defaults (S2.3) and the files' figures (S2-30, S2-31) --------------------------------------
 */

static void child_seed_defaults(void)
{
        /* size, cpu_partial; with 64 CPUs and kernel orders, slabs computed by S2-11 */
        static const uint32_t expected[][2] = {{8, 30},    {64, 30},  {255, 30}, {256, 13},
                                               {1023, 13}, {1024, 6}, {4095, 6}, {4096, 2}};

        for (size_t i = 0; i < array_size(expected); i++) {
                struct kmem_cache *made = kmem_cache_create("defaults", expected[i][0], 0, 0, NULL);
                uint32_t by_stride = made->size >= 4096   ? 2
                                     : made->size >= 1024 ? 6
                                     : made->size >= 256  ? 13
                                                          : 30;

                check_equal(made->cpu_partial, by_stride);
                if (made->size == expected[i][0])
                        check_equal(made->cpu_partial, expected[i][1]);
                check_equal(made->cpu_partial_slabs,
                            (2 * by_stride + made->objects - 1) / made->objects);
                kmem_cache_destroy(made);
        }
}

static void child_options_by_cache(void)
{
        struct kmem_cache *one = kmem_cache_create("one", 64, 0, 0, NULL);
        struct kmem_cache *two = kmem_cache_create("two", 64, 0, 0, NULL);

        check(one->count_objects && !one->freeze_eagerly && one->cpu_partial == 30);
        check(counters_are_on(one));
        check(!two->count_objects && two->freeze_eagerly && two->cpu_partial == 120);
        check(!counters_are_on(two));
        check(one->has_cpu_partial && two->has_cpu_partial);
}

static void options_reach_caches(void **state)
{
        child_passes("seed_defaults", "cpu_partial_defaults=seed");
        child_passes("options_by_cache",
                     "one.cpu_partial_accounting=objects,one.cpu_partial_defaults=seed,"
                     "two.freeze=eager,one.stats=1");
}

/* A single CPU, so that a single slot has everything. */
static void stay_on_one_cpu(void)
{
        cpu_set_t cpus, one;

        CPU_ZERO(&one);
        check_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
        for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
                if (CPU_ISSET(cpu, &cpus)) {
                        CPU_SET(cpu, &one);
                        break;
                }
        check_equal(sched_setaffinity(0, sizeof(one), &one), 0);
}

static uint64_t counted(enum slub_counter counter)
{
        return counters_sum(cache, counter);
}

/*
 * The figures of both files after a free in each of five slabs; and counters with the slot's name.
 */
static void child_texts(void)
{
        uint64_t by_objects;
        char room[128], expected[128];
        struct text text;
        void *all[6 * 64];
        unsigned int count;

        stay_on_one_cpu();
        cache = kmem_cache_create("texts", 512, 0, 0, NULL);
        count = 5 * cache->objects;
        check(count <= array_size(all) && cache->cpu_partial_slabs >= 5);
        text_begin(&text, room, sizeof(room));
        cpu_partial_text(cache, &text);
        check(strcmp(room, "0(0)") == 0);
        for (unsigned int i = 0; i <= count; i++)
                all[i] = kmem_cache_alloc(cache, 0);
        for (unsigned int slab = 0; slab < 5; slab++)
                kmem_cache_free(cache, all[slab * cache->objects]);
        by_objects = cache->count_objects ? 5 : 5 * cache->objects / 2;
        text_begin(&text, room, sizeof(room));
        cpu_partial_text(cache, &text);
        snprintf(expected, sizeof(expected), "%lu(5) C%u=%lu(5)", (unsigned long)by_objects,
                 slot_current()->id, (unsigned long)by_objects);
        if (strcmp(room, expected) != 0)
                printf("shown %s, expected %s\n", room, expected);
        check(strcmp(room, expected) == 0);
        text_begin(&text, room, sizeof(room));
        counters_text(cache, CPU_PARTIAL_FREE, &text);
        snprintf(expected, sizeof(expected), "5 C%u=5", slot_current()->id);
        check(strcmp(room, expected) == 0);
        text_begin(&text, room, sizeof(room));
        counters_text(cache, FREE_FROZEN, &text);
        check(strcmp(room, "0") == 0);
        /* Too little room: the slot is left out. */
        text_begin(&text, room, 4);
        counters_text(cache, CPU_PARTIAL_FREE, &text);
        check(strcmp(room, "5") == 0);
        counters_reset(cache, CPU_PARTIAL_FREE);
        text_begin(&text, room, sizeof(room));
        counters_text(cache, CPU_PARTIAL_FREE, &text);
        check(strcmp(room, "0") == 0);
        check(counted(FREE_SLOWPATH) == 5);
        for (unsigned int counter = 0; counter < SLUB_COUNTERS; counter++)
                counters_reset(cache, (enum slub_counter)counter);
        check(counted(FREE_SLOWPATH) == 0);
        for (unsigned int i = 0; i <= count; i++)
                if (i == count || i % cache->objects)
                        kmem_cache_free(cache, all[i]);
        kmem_cache_destroy(cache);
}

static void texts(void **state)
{
        child_passes("texts", "sheaf_capacity=0,stats=1");
        child_passes("texts", "sheaf_capacity=0,stats=1,cpu_partial_accounting=objects");
        child_passes("texts", "sheaf_capacity=0,stats=1,freeze=eager");
        child_passes("texts", "sheaf_capacity=0,stats=1,slots=locked");
}

/* S2-31: totals of several slots are halved once, so they may exceed the sum by rounding. */
static void rounding_of_totals(void **state)
{
        struct kmem_cache three = {.objects = 3};
        struct slub_partial_list one = {.slabs = 1, .objects = 2};
        struct slub_partial_list two = {.slabs = 2, .objects = 4};

        check_equal(slub_partial_objects(&three, &one), 1);
        check_equal(slub_partial_objects(&three, &two), 3);
        three.count_objects = true;
        check_equal(slub_partial_objects(&three, &two), 4);
}

/* ---- The kernel's statistics (S9.2) --------------------------------------------------------------- */

/* With sheaf_capacity=0 every call is counted, with the kernel's meaning. */
static void child_exact_counts(void)
{
        void *all[3 * 64];
        unsigned int each;

        stay_on_one_cpu();
        cache = kmem_cache_create("exact", 512, 0, 0, NULL);
        each = cache->objects;
        for (unsigned int i = 0; i < each; i++)
                all[i] = kmem_cache_alloc(cache, 0);
        check_equal(counted(ALLOC_SLOWPATH), 1); /* the first, which made the slab */
        check_equal(counted(ALLOC_FASTPATH), each - 1);
        check_equal(counted(ALLOC_SLAB), 1);
        /* S1-30: into the CPU slab; and out again. */
        kmem_cache_free(cache, all[0]);
        kmem_cache_free(cache, all[1]);
        check_equal(counted(FREE_FASTPATH), 2);
        check_equal(counted(FREE_SLOWPATH), 0);
        check(kmem_cache_alloc(cache, 0) == all[1]);
        check(kmem_cache_alloc(cache, 0) == all[0]);
        check_equal(counted(ALLOC_FASTPATH), each + 1);
        /* A second slab: the first is found exhausted. */
        for (unsigned int i = each; i < 2 * each; i++)
                all[i] = kmem_cache_alloc(cache, 0);
        check_equal(counted(ALLOC_SLOWPATH), 2);
        check_equal(counted(DEACTIVATE_BYPASS), 1);
        check_equal(counted(ALLOC_SLAB), 2);
        /* Into the first slab, which is FULL: to the CPU partial list, then more into it. */
        for (unsigned int i = 0; i < each; i++)
                kmem_cache_free(cache, all[i]);
        check_equal(counted(FREE_SLOWPATH), each);
        check_equal(counted(FREE_FASTPATH), 2);
        check_equal(counted(CPU_PARTIAL_FREE), 1);
        check_equal(counted(FREE_FROZEN), cache->freeze_eagerly ? each - 1 : 0);
        /* From the CPU partial list; S1-21: the kernel before delayed freezing counted twice. */
        all[0] = kmem_cache_alloc(cache, 0);
        check_equal(counted(CPU_PARTIAL_ALLOC), 1);
        check_equal(counted(ALLOC_REFILL), cache->freeze_eagerly);
        check_equal(counted(ALLOC_SLOWPATH), 3);
        check_equal(counted(DEACTIVATE_BYPASS), 2);
        kmem_cache_free(cache, all[0]);
        for (unsigned int i = each; i < 2 * each; i++)
                kmem_cache_free(cache, all[i]);
        check_equal(counted(CPU_PARTIAL_FREE), 2);
        /* The flush: CPU slab to the node, being empty and the first; the list after it. */
        kmem_cache_shrink(cache);
        check_equal(counted(CPUSLAB_FLUSH), 1);
        check_equal(counted(DEACTIVATE_TO_HEAD), 1);
        check_equal(counted(FREE_ADD_PARTIAL), 1);
        check_equal(counted(FREE_SLAB), 0); /* a shrink has no CPU */
        check_equal(counted(CMPXCHG_DOUBLE_FAIL) + counted(CMPXCHG_DOUBLE_CPU_FAIL), 0);
        check_equal(counted(ALLOC_NODE_MISMATCH) + counted(ORDER_FALLBACK), 0);
        kmem_cache_destroy(cache);
}

/* With sheaves only calls that reach the back end are counted: a refill, then a drain. */
static void child_counts_with_sheaves(void)
{
        void *all[10];

        stay_on_one_cpu();
        cache = kmem_cache_create("sheaves", 512, 0, 0, NULL);
        check_equal(cache->sheaf_capacity, 10);
        for (unsigned int i = 0; i < 10; i++)
                all[i] = kmem_cache_alloc(cache, 0);
        check_equal(counted(ALLOC_FASTPATH) + counted(ALLOC_SLOWPATH), 10); /* a single sheaf */
        for (unsigned int round = 0; round < 5; round++) {
                for (unsigned int i = 0; i < 10; i++)
                        kmem_cache_free(cache, all[i]);
                for (unsigned int i = 0; i < 10; i++)
                        all[i] = kmem_cache_alloc(cache, 0);
        }
        check_equal(counted(ALLOC_FASTPATH) + counted(ALLOC_SLOWPATH), 10);
        check_equal(counted(FREE_FASTPATH) + counted(FREE_SLOWPATH), 0);
        for (unsigned int i = 0; i < 10; i++)
                kmem_cache_free(cache, all[i]);
        kmem_cache_shrink(cache); /* drains the sheaf, all of a single slab */
        check_equal(counted(FREE_FASTPATH), 10);
        kmem_cache_destroy(cache);
}

static void child_not_counted(void)
{
        void *object;

        cache = kmem_cache_create("quiet", 64, 0, 0, NULL);
        object = kmem_cache_alloc(cache, 0);
        kmem_cache_free(cache, object);
        kmem_cache_shrink(cache);
        check(!counters_are_on(cache));
        for (unsigned int counter = 0; counter < SLUB_COUNTERS; counter++)
                check_equal(counted((enum slub_counter)counter), 0);
        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                struct slot *slot = number ? slot_made(number - 1) : &shared_slot;
                struct slot_cache *record = slot_peek(slot, cache_index(cache));

                check(!record || !record->engine.counters);
        }
        kmem_cache_destroy(cache);
}

static void statistics(void **state)
{
        child_passes("exact_counts", "sheaf_capacity=0,stats=1,cpu_partial=200");
        child_passes("exact_counts", "sheaf_capacity=0,stats=1,cpu_partial=200,freeze=eager");
        child_passes("exact_counts",
                     "sheaf_capacity=0,stats=1,cpu_partial_accounting=objects,cpu_partial=200");
        child_passes("exact_counts", "sheaf_capacity=0,stats=1,cpu_partial=200,slots=locked");
        /* A slab of more objects than the sheaf, also where a CPU asks for eight. */
        child_passes("counts_with_sheaves", "stats=1,sheaf_capacity=10,slub_min_objects=16");
        child_passes("not_counted", NULL);
}

/* ---- Counters as a ledger: after any steps they account for every slab ------------------------- */

static uint64_t event(enum slub_counter counter)
{
        uint64_t sum = 0;

        for (unsigned int slot = 0; slot < SLOTS; slot++)
                sum += counters[slot].event[counter];
        return sum;
}

static uint64_t times(enum slub_transition transition)
{
        uint64_t sum = 0;

        for (unsigned int slot = 0; slot < SLOTS; slot++)
                sum += counters[slot].cost[transition][COST_TIMES];
        return sum;
}

static void check_ledger(uint64_t taken, uint64_t given)
{
        struct walk_counts counts = walk();

        check_equal(event(ALLOC_SLAB) - event(FREE_SLAB), counts.slabs);
        check_equal(times(NEW_TO_CPU), event(ALLOC_SLAB));
        check_equal(event(CPU_PARTIAL_FREE) + event(CPU_PARTIAL_NODE) - event(CPU_PARTIAL_ALLOC) -
                            times(OVERFLOW_TO_NODE) - times(FLUSH_TO_NODE),
                    counts.cpu_partial);
        check_equal(event(FREE_ADD_PARTIAL) + event(DEACTIVATE_TO_HEAD) +
                            event(DEACTIVATE_TO_TAIL) - event(FREE_REMOVE_PARTIAL) -
                            event(ALLOC_FROM_PARTIAL) - event(CPU_PARTIAL_NODE),
                    counts.node_partial);
        check_equal(event(ALLOC_FASTPATH) + event(ALLOC_SLOWPATH), taken);
        check(event(FREE_FASTPATH) + event(FREE_SLOWPATH) <= given);
        check_equal(event(CPUSLAB_FLUSH), times(DEACTIVATE_TO_NODE) + times(DEACTIVATE_OTHER));
        check_equal(times(DEACTIVATE_TO_NODE),
                    event(DEACTIVATE_TO_HEAD) + event(DEACTIVATE_TO_TAIL));
        check_equal(event(CMPXCHG_DOUBLE_FAIL), 0); /* nobody else is there */
}

static void ledger(void **state)
{
        static void *out[4000];

        for (unsigned int policy = 0; policy < 8; policy++) {
                uint64_t random = policy + 1;
                uint64_t taken = 0;
                uint64_t given = 0;
                unsigned int count = 0;

                begin(512, policy & 1, 40);
                cache->freeze_eagerly = policy & 2;
                cache->has_cpu_partial = !(policy & 4);
                for (unsigned int step = 0; step < 6000; step++) {
                        struct engine_slot *slot = &slots[random_step(&random) % SLOTS];
                        bool grow = step / 500 % 2 == 0;

                        if (random_step(&random) % 100 == 0) {
                                cache->engine->flush_slot(cache, slot);
                        } else if (random_step(&random) % 20 < (grow ? 12u : 8u) &&
                                   count < array_size(out)) {
                                check_equal(cache->engine->take(cache, slot, &out[count], 1), 1);
                                count++;
                                taken++;
                        } else if (count) {
                                unsigned int from = (unsigned int)(random_step(&random) % count);
                                void *object = out[from];

                                out[from] = out[--count];
                                cache->engine->give(cache, slot, &object, 1);
                                given++;
                        }
                        if (step % 50 == 0)
                                check_ledger(taken, given);
                }
                /* An object for each call, so that each call is a chain. */
                check_equal(event(FREE_FASTPATH) + event(FREE_SLOWPATH), given);
                cache->engine->give(cache, &slots[0], out, count);
                end();
        }
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"seed_defaults", child_seed_defaults},
                {"options_by_cache", child_options_by_cache},
                {"texts", child_texts},
                {"exact_counts", child_exact_counts},
                {"counts_with_sheaves", child_counts_with_sheaves},
                {"not_counted", child_not_counted},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(length_of_a_list),
                cmocka_unit_test(own_slabs_come_first),
                cmocka_unit_test(refills_bring_own_slabs),
                cmocka_unit_test(own_slabs_are_near),
                cmocka_unit_test(empty_slabs_pile_up),
                cmocka_unit_test(free_objects_when_joining),
                cmocka_unit_test(refill_by_objects),
                cmocka_unit_test(options_reach_caches),
                cmocka_unit_test(texts),
                cmocka_unit_test(rounding_of_totals),
                cmocka_unit_test(statistics),
                cmocka_unit_test(ledger),
        };

        child_main(argc, argv, children, array_size(children));
        child_restart_with(argv, "engine=slub");
        return cmocka_run_group_tests_name("slub policies", tests, NULL, NULL);
}
