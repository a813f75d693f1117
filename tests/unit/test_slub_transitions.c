/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Every transition of a slab in both freeze schemes: its compare-and-swaps and its holds of
 * list_lock against the kernel's cost table (S1.7), and the effect of a free in the middle of a
 * transition. Built with debug checks, so that the state machine of engines/slub/state.h is checked
 * on the way. A single thread; the swap hook puts in the actions of other threads between the read
 * of a state and the swap.
 */
#define _GNU_SOURCE
#include "child.h"
#include "walker.h"

#include "percpu/percpu.h"
#include "engines/slub/slab.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { SLOTS = 4, SLABS = 24, DELAYED = 0, EAGER = 1 };

static struct kmem_cache *cache;
static struct engine_slot slots[SLOTS];
static struct slub_counters counters[SLOTS];
static void *objects[SLABS][64];

/* ---- Others, at the worst moment ---------------------------------------------------------- */

/* The next swap of this slab is preceded by a free of this object through slot 3. */
static struct page *hooked_slab;
static void *hooked_object;

void slab_swap_hook(struct page *slab)
{
        void *object = hooked_object;

        if (slab != hooked_slab)
                return;
        hooked_slab = NULL;
        cache->engine->give(cache, &slots[3], &object, 1);
}

static void free_before_swap(void *object)
{
        hooked_slab = slub_slab_of(cache, object);
        hooked_object = object;
}

/* ---- The cost table (S1.7): delayed, eager -------------------------------------------------- */

static const struct {
        unsigned int swaps[2];
        unsigned int swaps_locked[2];
        unsigned int list_locks[2];
} table[SLUB_TRANSITIONS] = {
        [REFILL_OWN] = {{1, 1}, {0, 0}, {0, 0}},
        [EXHAUST] = {{1, 1}, {0, 0}, {0, 0}},
        [PARTIAL_TO_CPU] = {{1, 1}, {0, 0}, {0, 0}},
        [MISMATCH_TO_NODE] = {{0, 1}, {0, 1}, {1, 1}},
        [NODE_TO_CPU] = {{1, 1}, {0, 1}, {1, 1}},
        [NODE_TO_PARTIAL] = {{0, 1}, {0, 1}, {0, 0}},
        [NEW_TO_CPU] = {{0, 0}, {0, 0}, {0, 0}},
        [FREE_TO_CPU] = {{1, 1}, {0, 0}, {0, 0}},
        [FREE_TO_PARTIAL] = {{1, 1}, {0, 0}, {0, 0}},
        [EMPTY_PARTIAL] = {{1, 1}, {1, 0}, {1, 0}},
        [FREE_TO_NODE] = {{1, 1}, {0, 0}, {0, 0}},
        [EMPTY_NODE] = {{1, 1}, {1, 1}, {1, 1}},
        [FULL_TO_PARTIAL] = {{1, 1}, {0, 0}, {0, 0}},
        [FULL_TO_NODE] = {{1, 1}, {1, 1}, {1, 1}},
        [OVERFLOW_TO_NODE] = {{0, 1}, {0, 1}, {0, 0}}, /* a slab; the lock is a run's */
        [DEACTIVATE_TO_NODE] = {{1, 1}, {0, 1}, {1, 1}},
        [DEACTIVATE_OTHER] = {{1, 1}, {0, 0}, {0, 0}},
        [FLUSH_TO_NODE] = {{0, 1}, {0, 1}, {0, 0}},
        [SHRINK_NODE] = {{0, 0}, {0, 0}, {1, 1}},
        [DEBUG_CALL] = {{0, 0}, {0, 0}, {1, 1}},
};

static uint64_t measured(enum slub_transition transition, enum slub_cost cost)
{
        uint64_t sum = 0;

        for (unsigned int slot = 0; slot < SLOTS; slot++)
                sum += counters[slot].cost[transition][cost];
        if (transition == SHRINK_NODE && (cost == COST_TIMES || cost == COST_LIST_LOCKS))
                sum += cache->node[0].shrinks;
        return sum;
}

static uint64_t event(enum slub_counter counter)
{
        uint64_t sum = 0;

        for (unsigned int slot = 0; slot < SLOTS; slot++)
                sum += counters[slot].event[counter];
        return sum;
}

/* From here on is counted. */
static void measure(void)
{
        memset(counters, 0, sizeof(counters));
        cache->node[0].shrinks = 0;
}

static void forget(enum slub_transition transition)
{
        for (unsigned int slot = 0; slot < SLOTS; slot++)
                memset(counters[slot].cost[transition], 0, sizeof(counters[slot].cost[0]));
        if (transition == SHRINK_NODE)
                cache->node[0].shrinks = 0;
}

/* The transition happened so often, at the table's price; @runs: list_lock per run of a chain. */
static void expect_runs(enum slub_transition transition, uint64_t times, uint64_t runs)
{
        unsigned int scheme = cache->freeze_eagerly ? EAGER : DELAYED;
        uint64_t locks = times * table[transition].list_locks[scheme] + runs;

        check_equal(measured(transition, COST_TIMES), times);
        check_equal(measured(transition, COST_SWAPS), times * table[transition].swaps[scheme]);
        check_equal(measured(transition, COST_SWAPS_LOCKED),
                    times * table[transition].swaps_locked[scheme]);
        check_equal(measured(transition, COST_LIST_LOCKS), locks);
        forget(transition);
}

static void expect(enum slub_transition transition, uint64_t times)
{
        expect_runs(transition, times, 0);
}

/* Nothing else happened since measure. */
static void expect_no_more(void)
{
        for (unsigned int transition = 0; transition < SLUB_TRANSITIONS; transition++)
                check_equal(measured((enum slub_transition)transition, COST_TIMES), 0);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void walk(void)
{
        struct walk_counts counts;

        walk_heap(cache, &counts);
}

static void begin_flags(bool eager, uint32_t limit, size_t least_partial, slab_flags_t flags)
{
        cache = kmem_cache_create("transitions", 512, 0, flags, NULL);
        check(cache != NULL && cache->objects <= 64);
        cache->freeze_eagerly = eager;
        cache->has_cpu_partial = limit != 0;
        cache->count_objects = false;
        cache->cpu_partial_slabs = limit;
        cache->min_partial = least_partial;
        for (unsigned int i = 0; i < SLOTS; i++)
                slots[i] = (struct engine_slot){
                        .freelist = ENGINE_NO_OBJECT, .home = 1 + i, .counters = &counters[i]};
        walk_own_slots(cache, slots, SLOTS);
        memset(objects, 0, sizeof(objects));
        measure();
}

static void begin(bool eager, uint32_t limit, size_t least_partial)
{
        begin_flags(eager, limit, least_partial, 0);
}

static void take(unsigned int slot, void **taken, unsigned int count)
{
        check_equal(cache->engine->take(cache, &slots[slot], taken, count), count);
        walk();
}

/* Frees objects [from, to) of a slab; they are no longer in the table then. */
static void give(unsigned int slot, unsigned int slab, unsigned int from, unsigned int to)
{
        void *batch[64];
        unsigned int count = 0;

        for (unsigned int i = from; i < to; i++)
                if (objects[slab][i]) {
                        batch[count++] = objects[slab][i];
                        objects[slab][i] = NULL;
                }
        if (count)
                cache->engine->give(cache, &slots[slot], batch, count);
        walk();
}

static void flush(unsigned int slot)
{
        cache->engine->flush_slot(cache, &slots[slot]);
        walk();
}

/* Frees everything that is left in the table, and *more. */
static void end(void **more, unsigned int count)
{
        hooked_slab = NULL;
        if (count)
                cache->engine->give(cache, &slots[0], more, count);
        for (unsigned int slab = 0; slab < SLABS; slab++)
                give(0, slab, 0, cache->objects);
        for (unsigned int slot = 0; slot < SLOTS; slot++)
                flush(slot);
        check_equal(cache->engine->shrink(cache), false);
        walk();
        walk_own_slots(NULL, NULL, 0);
        kmem_cache_destroy(cache);
}

/* FULL slabs, with objects in the table in ascending order; the slot has no CPU slab then. */
static void make_full(unsigned int count)
{
        for (unsigned int slab = 0; slab < count; slab++) {
                void *batch[64];

                take(0, batch, cache->objects);
                for (unsigned int i = 0; i < cache->objects; i++)
                        objects[slab][i] = batch[cache->objects - 1 - i];
                flush(0);
        }
}

/* NODE partial slabs with a single free object each, in order. */
static void make_node_partial(unsigned int count)
{
        bool lists = cache->has_cpu_partial;

        make_full(count);
        cache->has_cpu_partial = false;
        for (unsigned int slab = 0; slab < count; slab++)
                give(0, slab, 0, 1);
        cache->has_cpu_partial = lists;
        check_equal(cache->node[0].partial.length, count);
}

#define each_scheme(eager) for (int eager = 0; eager < 2; eager++)

/* ---- T2 to T8: objects leave ------------------------------------------------------------------ */

static void own_list_and_exhaustion(void **state)
{
        each_scheme(eager)
        {
                void *more[2];

                begin(eager, 4, 5);
                take(0, objects[0], cache->objects);
                expect(NEW_TO_CPU, 1);
                expect_no_more();
                give(1, 0, 0, 1);
                expect(FREE_TO_CPU, 1);
                expect_no_more();
                take(0, &more[0], 1);
                expect(REFILL_OWN, 1);
                expect_no_more();
                take(0, &more[1], 1);
                expect(EXHAUST, 1);
                expect(NEW_TO_CPU, 1);
                expect_no_more();
                end(more, 2);
        }
}

static void cpu_partial_to_cpu(void **state)
{
        each_scheme(eager)
        {
                void *one;

                begin(eager, 4, 5);
                make_full(1);
                give(1, 0, 0, 3);
                measure();
                take(1, &one, 1);
                expect(PARTIAL_TO_CPU, 1);
                expect_no_more();
                end(&one, 1);
        }
}

static void node_partial_to_cpu(void **state)
{
        each_scheme(eager) for (uint32_t limit = 0; limit <= 6; limit++)
        {
                void *one;

                begin(eager, limit, 100);
                cache->sheaf_capacity = 0; /* as the kernel takes slabs */
                make_node_partial(8);
                measure();
                take(1, &one, 1);
                expect(NODE_TO_CPU, 1);
                expect(NODE_TO_PARTIAL, limit ? limit / 2 + 1 : 0);
                expect_no_more();
                end(&one, 1);
        }
}

/* ---- T9 to T15: objects come back -------------------------------------------------------------- */

static void free_into_cpu_partial(void **state)
{
        each_scheme(eager)
        {
                begin(eager, 4, 5);
                make_full(1);
                measure();
                give(1, 0, 0, 1);
                expect(FULL_TO_PARTIAL, 1);
                expect_no_more();
                /* Eager: frozen like a CPU slab, from which a free cannot tell it. */
                give(2, 0, 1, 2);
                expect(eager ? FREE_TO_CPU : FREE_TO_PARTIAL, 1);
                expect_no_more();
                give(2, 0, 2, cache->objects);
                expect(eager ? FREE_TO_CPU : EMPTY_PARTIAL, 1);
                expect_no_more();
                check_equal(event(FREE_FROZEN), eager ? 2 : 0);
                end(NULL, 0);
        }
}

static void free_into_node_partial(void **state)
{
        each_scheme(eager) for (size_t least = 0; least < 3; least++)
        {
                begin(eager, 4, least);
                make_node_partial(2);
                measure();
                give(1, 0, 1, 2);
                expect(FREE_TO_NODE, 1);
                expect_no_more();
                /* Kept or discarded, the cost is equal. */
                give(1, 0, 2, cache->objects);
                expect(EMPTY_NODE, 1);
                expect_no_more();
                check_equal(event(FREE_REMOVE_PARTIAL), 1);
                check_equal(event(FREE_SLAB), 1);
                check_equal(cache->node[0].partial.length, 1);
                cache->min_partial = 5;
                give(1, 1, 1, cache->objects);
                expect(EMPTY_NODE, 1);
                expect_no_more();
                check_equal(event(FREE_SLAB), 1);
                end(NULL, 0);
        }
}

static void full_to_node(void **state)
{
        each_scheme(eager)
        {
                begin(eager, 0, 5);
                make_full(1);
                measure();
                give(1, 0, 0, 1);
                expect(FULL_TO_NODE, 1);
                expect_no_more();
                check_equal(event(FREE_ADD_PARTIAL), 1);
                end(NULL, 0);
        }
}

/* ---- T16 to T20: slabs go home --------------------------------------------------------------- */

static void overflow(void **state)
{
        each_scheme(eager) for (uint32_t limit = 1; limit <= 6; limit++)
        {
                begin(eager, limit, 100);
                make_full(limit + 1);
                measure();
                for (unsigned int slab = 0; slab < limit; slab++)
                        give(1, slab, 0, 1);
                expect(FULL_TO_PARTIAL, limit);
                expect_no_more();
                give(1, limit, 0, 1);
                expect(FULL_TO_PARTIAL, 1);
                expect_runs(OVERFLOW_TO_NODE, limit, 1); /* a single node: a single run */
                expect_no_more();
                check_equal(event(CPU_PARTIAL_DRAIN), 1);
                check_equal(event(FREE_ADD_PARTIAL), limit);
                end(NULL, 0);
        }
}

static void deactivation(void **state)
{
        each_scheme(eager)
        {
                begin(eager, 4, 5);
                take(0, objects[0], 5);
                measure();
                flush(0);
                expect(DEACTIVATE_TO_NODE, 1);
                expect_no_more();
                check_equal(event(DEACTIVATE_TO_HEAD), 1);

                /* T18: to FULL. */
                take(1, objects[1], cache->objects - 5); /* the rest of the slab */
                measure();
                flush(1);
                expect(DEACTIVATE_OTHER, 1);
                expect_no_more();
                check_equal(event(DEACTIVATE_FULL), 1);

                /* T18: freed. */
                take(2, objects[2], 1);
                cache->min_partial = 0;
                measure();
                give(2, 2, 0, 1);
                expect_no_more(); /* S1-30: no swap */
                check_equal(event(FREE_FASTPATH), 1);
                flush(2);
                expect(DEACTIVATE_OTHER, 1);
                expect_no_more();
                check_equal(event(DEACTIVATE_EMPTY), 1);
                check_equal(event(FREE_SLAB), 1);
                check_equal(event(CPUSLAB_FLUSH), 1);
                end(NULL, 0);
        }
}

static void flush_and_shrink(void **state)
{
        each_scheme(eager)
        {
                begin(eager, 8, 100);
                make_full(5);
                for (unsigned int slab = 0; slab < 5; slab++)
                        give(1, slab, 0, 1);
                measure();
                flush(1);
                expect_runs(FLUSH_TO_NODE, 5, 1);
                expect_no_more();
                for (unsigned int slab = 0; slab < 3; slab++)
                        give(1, slab, 1, cache->objects);
                measure();
                cache->engine->shrink(cache);
                walk();
                expect(SHRINK_NODE, 1);
                expect_no_more();
                check_equal(cache->node[0].partial.length, 2);
                end(NULL, 0);
        }
}

/* ---- T21: debug caches ------------------------------------------------------------------------- */

/*
 * Each call is a hold of list_lock and no swap, wherever the slab is before and after: new, from
 * the partial list and back, full, emptied and kept or freed. Several objects are several calls.
 */
static void debug_calls(void **state)
{
        static const slab_flags_t sets[] = {
                SLAB_CONSISTENCY_CHECKS,
                SLAB_RED_ZONE,
                SLAB_POISON,
                SLAB_STORE_USER,
                SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER,
        };

        each_scheme(eager) for (size_t set = 0; set < array_size(sets); set++)
        {
                unsigned int many;

                begin_flags(eager, 0, 2, sets[set]);
                many = cache->objects;
                take(0, objects[0], many); /* a new slab, until it is full */
                check_equal(event(ALLOC_SLAB), 1);
                check_equal(event(ALLOC_SLOWPATH), many);
                check_equal(cache->node[0].full.length, 1);
                expect(DEBUG_CALL, many);
                take(1, objects[1], many);
                expect(DEBUG_CALL, many);
                give(2, 0, 0, 1); /* full to partial */
                check_equal(event(FREE_ADD_PARTIAL), 1);
                take(3, objects[0], 1); /* and back */
                check_equal(cache->node[0].full.length, 2);
                expect(DEBUG_CALL, 2);
                give(0, 0, 0, many); /* emptied, and kept as the only partial slab */
                check_equal(cache->node[0].partial.length, 1);
                check_equal(event(FREE_SLAB), 0);
                expect(DEBUG_CALL, many);
                give(1, 1, 0, many); /* emptied, and freed */
                check_equal(event(FREE_SLAB), 1);
                check_equal(event(FREE_REMOVE_PARTIAL), 1);
                check_equal(event(FREE_SLOWPATH), 1 + 2 * many);
                check_equal(event(CMPXCHG_DOUBLE_FAIL), 0);
                expect(DEBUG_CALL, many);
                expect_no_more();
                end(NULL, 0);
        }
}

/* ---- Sums (S1-60) ------------------------------------------------------------------------------- */

static void take_and_use(void **state)
{
        each_scheme(eager) for (unsigned int count = 2; count <= 8; count++)
        {
                uint64_t swaps = 0;
                uint64_t locked = 0;
                void *more[8];

                begin(eager, 2 * (count - 2) + (count == 2), 100);
                make_node_partial(count);
                measure();
                take(1, more, count); /* each has a single free object */
                for (unsigned int t = NODE_TO_CPU; t <= NODE_TO_PARTIAL; t++) {
                        swaps += measured((enum slub_transition)t, COST_SWAPS);
                        locked += measured((enum slub_transition)t, COST_SWAPS_LOCKED);
                }
                swaps += measured(PARTIAL_TO_CPU, COST_SWAPS);
                locked += measured(PARTIAL_TO_CPU, COST_SWAPS_LOCKED);
                check_equal(swaps, eager ? 2 * count - 1 : count);
                check_equal(locked, eager ? count : 0);
                check_equal(measured(NODE_TO_CPU, COST_LIST_LOCKS), 1);
                end(more, count);
        }
}

static void round_trip(void **state)
{
        each_scheme(eager)
        {
                uint64_t swaps = 0;
                void *one;

                begin(eager, 1, 100);
                make_full(2);
                measure();
                give(1, 0, 0, 1);
                give(1, 1, 0, 1); /* drains the first */
                take(2, &one, 1);
                swaps += measured(FULL_TO_PARTIAL, COST_SWAPS) / 2;
                swaps += measured(OVERFLOW_TO_NODE, COST_SWAPS);
                swaps += measured(NODE_TO_CPU, COST_SWAPS);
                check_equal(swaps, eager ? 3 : 2);
                end(&one, 1);
        }
}

/* ---- Against frees ---------------------------------------------------------------------------- */

/* S1-41: eager refill stops where its swap fails; S1-42: delayed refill has none to fail. */
static void refill_under_contention(void **state)
{
        each_scheme(eager)
        {
                void *one;

                begin(eager, 6, 100);
                make_node_partial(6);
                measure();
                free_before_swap(objects[1][1]); /* in the second slab */
                take(1, &one, 1);
                check_equal(event(CMPXCHG_DOUBLE_FAIL), eager);
                check_equal(measured(NODE_TO_PARTIAL, COST_SWAPS), eager);
                check_equal(event(CPU_PARTIAL_NODE), eager ? 0 : 4);
                check_equal(cache->node[0].partial.length, eager ? 5 : 1);
                check_equal(event(ALLOC_FROM_PARTIAL), 1);
                if (!hooked_slab)
                        objects[1][1] = NULL;
                check_equal(hooked_slab == NULL, eager);
                end(&one, 1);

                /* In the first slab: eager gets nothing from the node, delayed tries again. */
                begin(eager, 6, 100);
                make_node_partial(6);
                measure();
                free_before_swap(objects[0][1]);
                take(1, &one, 1);
                objects[0][1] = NULL;
                check(!hooked_slab);
                check_equal(event(CMPXCHG_DOUBLE_FAIL), 1);
                check_equal(event(ALLOC_FROM_PARTIAL), !eager);
                check_equal(event(ALLOC_SLAB), eager);
                check_equal(event(CPU_PARTIAL_NODE), eager ? 0 : 4);
                check_equal(cache->node[0].partial.length, eager ? 6 : 1);
                check_equal(measured(NODE_TO_CPU, COST_SWAPS), eager ? 1 : 2);
                check_equal(measured(NODE_TO_CPU, COST_SWAPS_LOCKED), eager);
                /* Delayed: the freed object came along. */
                if (!eager)
                        check(slots[1].freelist != ENGINE_NO_OBJECT);
                end(&one, 1);
        }
}

/* S1-52, S1-62: a retry takes list_lock again where it is held over the swap. */
static void retries_and_list_lock(void **state)
{
        each_scheme(eager)
        {
                begin(eager, 4, 5);
                take(0, objects[0], 5);
                measure();
                free_before_swap(objects[0][0]);
                flush(0);
                objects[0][0] = NULL;
                check_equal(event(CMPXCHG_DOUBLE_FAIL), 1);
                check_equal(measured(DEACTIVATE_TO_NODE, COST_SWAPS), 2);
                check_equal(measured(DEACTIVATE_TO_NODE, COST_LIST_LOCKS), eager ? 2 : 1);
                /* Freed in time: the slab has frees of others, so it goes to the tail. */
                check_equal(event(DEACTIVATE_REMOTE_FREES), 1);
                check_equal(event(DEACTIVATE_TO_TAIL), 1);
                end(NULL, 0);

                /* T13: the last two objects by two frees at once. */
                begin(eager, 4, 5);
                make_node_partial(1);
                give(1, 0, 1, cache->objects - 2);
                measure();
                free_before_swap(objects[0][cache->objects - 1]);
                give(1, 0, cache->objects - 2, cache->objects - 1);
                objects[0][cache->objects - 1] = NULL;
                check_equal(event(CMPXCHG_DOUBLE_FAIL), 1);
                check_equal(measured(EMPTY_NODE, COST_SWAPS), 2);
                /* It held no lock at first: only the second try empties the slab. */
                check_equal(measured(EMPTY_NODE, COST_LIST_LOCKS), 1);
                end(NULL, 0);
        }
}

/* T2, T3: a CPU slab that looks exhausted gets an object back before the swap. */
static void exhaustion_overtaken(void **state)
{
        each_scheme(eager)
        {
                void *one;

                begin(eager, 4, 5);
                take(0, objects[0], cache->objects);
                measure();
                free_before_swap(objects[0][7]);
                take(0, &one, 1);
                check(one == objects[0][7]);
                objects[0][7] = NULL;
                check_equal(event(DEACTIVATE_BYPASS), 0);
                check_equal(event(ALLOC_REFILL), 1);
                check_equal(measured(REFILL_OWN, COST_SWAPS), 2);
                end(&one, 1);
        }
}

/* T14: two frees into a FULL slab; the second finds it on the way to the first one's list. */
static void two_first_frees(void **state)
{
        each_scheme(eager)
        {
                begin(eager, 4, 5);
                make_full(1);
                measure();
                free_before_swap(objects[0][5]);
                give(1, 0, 0, 1);
                objects[0][5] = NULL;
                check_equal(event(CMPXCHG_DOUBLE_FAIL), 1);
                check_equal(event(CPU_PARTIAL_FREE), 1);
                check(slots[3].partial && !slots[1].partial);
                end(NULL, 0);
        }
}

/* T16 eager: a free into a slab that is being unfrozen. */
static void drain_under_contention(void **state)
{
        each_scheme(eager)
        {
                begin(eager, 2, 100);
                make_full(3);
                give(1, 0, 0, 1);
                give(1, 1, 0, 1);
                measure();
                free_before_swap(objects[0][1]);
                give(1, 2, 0, 1);
                if (eager)
                        objects[0][1] = NULL;
                check_equal(hooked_slab == NULL, eager);
                check_equal(measured(OVERFLOW_TO_NODE, COST_SWAPS), eager ? 3 : 0);
                check_equal(measured(OVERFLOW_TO_NODE, COST_LIST_LOCKS), 1);
                check_equal(cache->node[0].partial.length, 2);
                end(NULL, 0);
        }
}

/* ---- Without CPU partial lists ------------------------------------------------------------------ */

/*
 * A refill then takes a slab and leaves the others on the node's list. The series that introduced
 * delayed freezing lost them here in its first version.
 */
static void no_slab_is_lost(void **state)
{
        each_scheme(eager)
        {
                void *more[6];

                begin(eager, 0, 100);
                make_node_partial(6);
                for (unsigned int i = 0; i < 6; i++) {
                        take(1, &more[i], 1);
                        check_equal(cache->node[0].partial.length, 5 - i);
                        check_equal(slots[1].partial, 0);
                }
                check_equal(event(CPU_PARTIAL_NODE), 0);
                check_equal(cache->node[0].slabs, 6);
                end(more, 6);
        }
}

/* S2-20 to S2-22 with a limit that was lowered to 0: lists are there, but may not grow. */
static void limit_zero(void **state)
{
        each_scheme(eager)
        {
                void *one;

                begin(eager, 1, 100);
                make_node_partial(4);
                slub_set_cpu_partial(cache, 0);
                check(cache->has_cpu_partial && cache->cpu_partial_slabs == 0);
                take(1, &one, 1);
                check_equal(event(CPU_PARTIAL_NODE), eager ? 1 : 0);
                end(&one, 1);

                begin(eager, 1, 100);
                make_full(4);
                slub_set_cpu_partial(cache, 0);
                for (unsigned int slab = 0; slab < 4; slab++) {
                        give(1, slab, 0, 1);
                        check_equal(page_at(slots[1].partial)->prev, 1);
                        check_equal(cache->node[0].partial.length, slab);
                }
                end(NULL, 0);
        }
}

#ifdef KMEM_DEBUG_CHECKS
/* ---- Illegal ways -------------------------------------------------------------------------------- */

static void child_skips_transit(void)
{
        begin(false, 4, 5);
        take(0, objects[0], 1);
        slab_enter(cache, slots[0].slab, STAGE_CPU, STAGE_NODE_PARTIAL);
}

static void child_frozen_on_list(void)
{
        struct page *slab;
        struct slab_state word;

        begin(false, 4, 5);
        make_full(1);
        give(1, 0, 0, 1);
        lock_take(&slots[1].lock);
        slab = slot_take_partial(cache, &slots[1], NODE_ANY);
        slab_enter(cache, slab, STAGE_CPU_PARTIAL, STAGE_TRANSIT);
        word = state_unpack(slab->state);
        word.frozen = true;
        slab->state = state_pack(word);
        partial_list_add(cache, &slots[1], slab);
}

static void child_wrong_stage(void)
{
        uint64_t old;
        struct slab_cost cost = {0};

        begin(false, 4, 5);
        take(0, objects[0], 1);
        old = slots[0].slab->state;
        slab_swap(cache, slots[0].slab, &old, state_unpack(old), STAGE_CPU_PARTIAL, STAGE_CPU,
                  &cost);
}

static void illegal_ways(void **state)
{
        child_aborts("skips_transit", NULL, "illegal transition from CPU slab to node partial");
        child_aborts("frozen_on_list", NULL, "from in transit to CPU partial with frozen 1");
        child_aborts("wrong_stage", NULL, "slab->stage == from");
}
#endif

/* ---- Wishes for a node (S1-21, S12-05) --------------------------------------------------------- */

static void *take_on(int node)
{
        void *object = cache->engine->take_on_node(cache, &slots[1], node);

        check(object && cache->engine->node_of(cache, object) == node);
        walk();
        return object;
}

/* On a single CPU, so that take and make_full go for its node. */
static void child_wrong_node(void)
{
        int here, there;
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET((unsigned int)sched_getcpu(), &set);
        check(sched_setaffinity(0, sizeof(set), &set) == 0);
        here = (int)system_current_node();
        there = (here + 1) % (int)system_nodes();
        each_scheme(eager)
        {
                void *more[3];

                begin(eager, 4, 5);
                make_full(3);
                for (unsigned int slab = 0; slab < 3; slab++)
                        give(1, slab, 0, 1);
                measure();
                /* The CPU partial list is of the wrong node, all of it. */
                more[0] = take_on(there);
                expect(MISMATCH_TO_NODE, 3);
                expect(NEW_TO_CPU, 1);
                expect_no_more();
                check_equal(event(ALLOC_NODE_MISMATCH), 0);
                check_equal(cache->node[here].partial.length, 3);
                /*
                 * So is the CPU slab, for the next refill; the node's own slabs come before a new
                 * slab.
                 */
                more[1] = take_on(here);
                expect(DEACTIVATE_TO_NODE, 1);
                expect(NODE_TO_CPU, 1);
                check(measured(NODE_TO_PARTIAL, COST_TIMES) > 0);
                forget(NODE_TO_PARTIAL);
                expect_no_more();
                check_equal(event(ALLOC_NODE_MISMATCH), 1);
                check_equal(cache->node[there].partial.length, 1);
                /* A slab of the CPU partial list that is of the right node stays there until it is its turn. */
                more[2] = take_on(here);
                expect(EXHAUST, 1);
                expect(PARTIAL_TO_CPU, 1);
                expect_no_more();
                check_equal(event(ALLOC_NODE_MISMATCH), 1);
                end(more, 3);
        }
}

static void wrong_node(void **state)
{
        child_passes("wrong_node", "numa_fake=2");
        child_passes("wrong_node", "numa_fake=8");
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"wrong_node", child_wrong_node},
#ifdef KMEM_DEBUG_CHECKS
                {"skips_transit", child_skips_transit},
                {"frozen_on_list", child_frozen_on_list},
                {"wrong_stage", child_wrong_stage},
#endif
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(own_list_and_exhaustion),
                cmocka_unit_test(cpu_partial_to_cpu),
                cmocka_unit_test(node_partial_to_cpu),
                cmocka_unit_test(free_into_cpu_partial),
                cmocka_unit_test(free_into_node_partial),
                cmocka_unit_test(full_to_node),
                cmocka_unit_test(overflow),
                cmocka_unit_test(deactivation),
                cmocka_unit_test(flush_and_shrink),
                cmocka_unit_test(debug_calls),
                cmocka_unit_test(take_and_use),
                cmocka_unit_test(round_trip),
                cmocka_unit_test(refill_under_contention),
                cmocka_unit_test(retries_and_list_lock),
                cmocka_unit_test(exhaustion_overtaken),
                cmocka_unit_test(two_first_frees),
                cmocka_unit_test(drain_under_contention),
                cmocka_unit_test(no_slab_is_lost),
                cmocka_unit_test(limit_zero),
                cmocka_unit_test(wrong_node),
#ifdef KMEM_DEBUG_CHECKS
                cmocka_unit_test(illegal_ways),
#endif
        };

        child_main(argc, argv, children, array_size(children));
        child_restart_with(argv, "engine=slub");
        return cmocka_run_group_tests_name("slub transitions", tests, NULL, NULL);
}
