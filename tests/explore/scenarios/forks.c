/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Forks (process/fork.c) while other threads are in the middle of calls. A child has the forking thread
 * alone, and memory as it is at the fork. It must hold no lock, allocate and free, and have every object
 * that no vanished thread had in its hands.
 */
#include "scenario.h"

#include "heap/pool_locks.h"
#include "heap/reclaim.h"
#include "machine/lock.h"
#include "percpu/percpu.h"
#include "process/fork.h"

enum {
        LARGE_BYTES = 40 << 10,
        /* A call may vanish with its object and a sheaf of two that it fills or empties. */
        LOST_OF_A_CALL = 3,
};

static void *held[2];
static void *large;
static struct kmem_cache *other;

static void (*before_fork)(void);
static void (*in_parent)(void);
static void (*in_child)(void);

int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
        before_fork = prepare;
        in_parent = parent;
        in_child = child;
        return 0;
}

static void fill(void)
{
        void *more;

        make_cache(64);
        held[0] = take();
        held[1] = take();
        more = take();
        give(more);
        fork_init();
        CHECK(before_fork);
}

static void fill_large(void)
{
        fill();
        large = kmalloc(LARGE_BYTES, GFP_KERNEL);
        CHECK(large);
}

static void fill_other(void)
{
        void *object;

        fill();
        other = kmem_cache_create("other", 64, 0, SLAB_NO_MERGE, NULL);
        CHECK(other);
        object = kmem_cache_alloc(other, GFP_KERNEL);
        CHECK(object);
        kmem_cache_free(other, object);
}

/* The first slow path has emptied the slots that threads of the parent have used. */
static void check_orphans(void)
{
        for (unsigned int number = 0; slots_are_rseq() && number < slots_made_count(); number++) {
                struct slot *slot = slot_made(number);

                if (slot != slot_current())
                        CHECK(sheaf_is_cold(slot_pair(slot, sheaf_offset(cache))->main));
        }
}

/* Every kind of call works, and what is there is whole. */
static void use_all(void)
{
        struct kmem_cache *own;
        void *objects[5];
        void *block;

        for (unsigned int i = 0; i < 5; i++)
                objects[i] = take();
        check_orphans();
        for (unsigned int i = 0; i < 5; i++)
                give(objects[i]);
        block = kmalloc(LARGE_BYTES, GFP_KERNEL);
        CHECK(block);
        kfree(block);
        own = kmem_cache_create("own", 64, 0, SLAB_NO_MERGE, NULL);
        CHECK(own);
        block = kmem_cache_alloc(own, GFP_KERNEL);
        CHECK(block);
        kmem_cache_free(own, block);
        kmem_cache_destroy(own);
        heap_trim(0);
}

static __attribute__((noreturn)) void live_in_child(unsigned int vanished_calls)
{
        unsigned int lost;

        in_child();
        CHECK(heap_locks_free());
        use_all();
        lost = give_all();
        if (lost > vanished_calls * LOST_OF_A_CALL)
                explore_fail("the child has lost %u objects, and %u calls were under way", lost,
                             vanished_calls);
        if (!lost)
                check_empty();
        explore_fork_end();
}

static void fork_once(void)
{
        before_fork();
        if (explore_fork(PLACE("fork()")))
                live_in_child(calls_under_way);
        in_parent();
}

static void use_and_fork(void)
{
        give(held[0]);
        fork_once();
}

static void pop_and_push(void)
{
        give(take());
}

static void push(void)
{
        give(held[1]);
}

static void pop_two(void)
{
        void *first = take();

        give(take());
        give(first);
}

static void drain(void)
{
        kmem_cache_shrink(cache);
}

static void destroy(void)
{
        kmem_cache_destroy(other);
}

static void use_large(void)
{
        void *block = kmalloc(LARGE_BYTES, GFP_KERNEL);

        CHECK(block);
        kfree(block);
        kfree(large);
}

static void trim(void)
{
        heap_trim(0);
}

static void check_both(void)
{
        give(held[0]);
        give(held[1]);
        check_empty();
}

static void check_second(void)
{
        give(held[1]);
        check_empty();
}

const struct scenario fork_scenarios[] = {
        {.name = "fork_pop",
         .about = "a fork while another thread allocates and frees",
         .options = "sheaf_capacity=2",
         .forks = 1,
         .setup = fill,
         .thread = {pop_and_push, fork_once},
         .cpu = {0, 1},
         .check = check_both},
        {.name = "fork_same_cpu",
         .about = "a fork by a thread on the CPU of another that allocates and frees",
         .options = "sheaf_capacity=2",
         .forks = 1,
         .setup = fill,
         .thread = {pop_and_push, fork_once},
         .cpu = {0, 0},
         .check = check_both},
        {.name = "fork_refill",
         .large = true,
         .about = "a fork while another thread fills and empties sheaves of one object",
         .options = "sheaf_capacity=1",
         .forks = 1,
         .setup = fill,
         .thread = {pop_two, fork_once},
         .cpu = {1, 0},
         .check = check_both},
        {.name = "fork_slabs",
         .large = true,
         .about = "a fork while another thread takes from slabs and frees, without sheaves",
         .options = "sheaf_capacity=0,slub_max_order=0,slub_min_objects=1,min_partial=0",
         .forks = 1,
         .setup = fill,
         .thread = {pop_two, fork_once},
         .cpu = {1, 0},
         .check = check_both},
        {.name = "fork_free",
         .about = "a fork behind a free, while another thread frees",
         .options = "sheaf_capacity=2",
         .forks = 1,
         .setup = fill,
         .thread = {push, use_and_fork},
         .cpu = {0, 1},
         .check = check_empty},
        {.name = "fork_drain",
         .large = true,
         .about = "a fork while another thread drains all sheaves",
         .options = "sheaf_capacity=2",
         .forks = 1,
         .setup = fill,
         .thread = {drain, use_and_fork},
         .cpu = {0, 1},
         .check = check_second},
        {.name = "fork_destroy",
         .large = true,
         .about = "a fork while another thread ends a cache",
         .options = "sheaf_capacity=2",
         .forks = 1,
         .setup = fill_other,
         .thread = {destroy, fork_once},
         .cpu = {0, 1},
         .check = check_both},
        {.name = "fork_large",
         .large = true,
         .about = "a fork while another thread takes and frees blocks of whole pages",
         .options = "sheaf_capacity=2",
         .forks = 1,
         .setup = fill_large,
         .thread = {use_large, fork_once},
         .cpu = {0, 1},
         .check = check_both},
        {.name = "fork_trim",
         .large = true,
         .about = "a fork while another thread is in malloc_trim",
         .options = "sheaf_capacity=2",
         .forks = 1,
         .setup = fill,
         .thread = {trim, fork_once},
         .cpu = {0, 1},
         .check = check_both},
        {.name = "fork_locked",
         .large = true,
         .about = "a fork while another thread uses the same locked slot",
         .options = "slots=locked,sheaf_capacity=2",
         .usable = 1,
         .forks = 1,
         .setup = fill,
         .thread = {pop_and_push, fork_once},
         .cpu = {0, 1},
         .check = check_both},
        {.name = "fork_fork",
         .large = true,
         .about = "two threads fork, one behind a free",
         .options = "sheaf_capacity=2",
         .forks = 2,
         .setup = fill,
         .thread = {fork_once, use_and_fork},
         .cpu = {0, 1},
         .check = check_second},
        {0},
};
