/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Forks (process/fork.c) while other threads are in the middle of calls. A child has the forking thread
 * alone, and memory as it is at the fork. It must hold no lock, allocate and free, and have every object
 * that no vanished thread had in its hands.
 */
#include "scenario.h"

#include "engines/hardened/hardened.h"
#include "heap/pool_locks.h"
#include "heap/reclaim.h"
#include "machine/lock.h"
#include "percpu/figures.h"
#include "percpu/percpu.h"
#include "process/fork.h"
#include "process/requests.h"

#include <string.h>

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

static void (*use_more)(void); /* what a scenario's child does besides */

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
        if (use_more)
                use_more();
}

static __attribute__((noreturn)) void live_in_child(unsigned int vanished_calls)
{
        unsigned int lost;

        registry_begin_child();
        in_child();
        CHECK(heap_locks_free());
        use_all();
        if (registry_is_made() && !registry_last_seen())
                explore_fail("a child has passed slow paths in its parent's registry");
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
        if (explore_fork(THIS_PLACE("fork()")))
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

/* ---- Pools, groups, grace periods and hardened blocks -------------------------------------- */

static mempool_t *pool;
static char element;

static void *element_take(gfp_t flags, void *has)
{
        (void)flags;
        return exchange_acquire((uint32_t *)has, 0) ? &element : NULL;
}

/* The reserve has the only element from its begin on. */
static void element_free(void *freed, void *unused)
{
        (void)freed;
        (void)unused;
        explore_fail("the reserve has room, and its element is freed");
}

static void use_element(void)
{
        mempool_free(mempool_alloc(pool, GFP_KERNEL), pool);
}

/* The vanished thread may have the element. */
static void use_pool_in_child(void)
{
        void *own = mempool_alloc(pool, GFP_NOWAIT);

        if (own)
                mempool_free(own, pool);
        CHECK(pool->curr_nr == (own != NULL));
}

static void fill_pool(void)
{
        static uint32_t has = 1;

        fill();
        pool = mempool_create(1, element_take, element_free, &has);
        CHECK(pool && pool->curr_nr == 1);
        use_more = use_pool_in_child;
}

static void check_pool(void)
{
        give(held[0]);
        give(held[1]);
        CHECK(pool->curr_nr == 1);
        check_empty();
}

static struct kmem_group *group;

static void use_accounted(void)
{
        void *object;

        calls_under_way++;
        object = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_ACCOUNT);
        take_notes(object);
        calls_under_way--;
        give(object);
}

/* Charges and uncharges: what is left is of a call that was under way. */
static void use_group_in_child(void)
{
        struct kmem_group_stats before, behind;

        CHECK(kmem_group_stats(group, &before) == 0 && before.objects <= 1);
        kmem_group_set(group);
        use_accounted();
        CHECK(kmem_group_stats(group, &behind) == 0);
        CHECK(behind.objects == before.objects && behind.bytes == before.bytes);
}

/* The threads are in the group, as the setup's is, and the cache is closed. */
static void fill_group(void)
{
        fill();
        group = kmem_group_create("explored", NULL, 0);
        CHECK(group);
        kmem_group_set(group);
        use_accounted();
        use_more = use_group_in_child;
}

static void check_group(void)
{
        kmem_group_set(NULL);
        give(held[0]);
        give(held[1]);
        CHECK(kmem_group_destroy(group) == 0);
        check_empty();
}

static struct kmem_rcu_head callback;
static uint32_t called;

static void count_call(struct kmem_rcu_head *head)
{
        (void)head;
        store_relaxed(&called, 1);
}

static void read_section(void)
{
        kmem_rcu_read_lock();
        cpu_relax();
        kmem_rcu_read_unlock();
}

static void call_rcu(void)
{
        kmem_call_rcu(&callback, count_call);
        kmem_rcu_barrier();
        CHECK(load_relaxed(&called));
}

/* No reader is left, and functions that others have given are called, but for one that was under way. */
static void wait_in_child(void)
{
        static struct kmem_rcu_head own;

        kmem_synchronize_rcu();
        store_relaxed(&called, 0);
        kmem_call_rcu(&own, count_call);
        kmem_rcu_barrier();
        CHECK(load_relaxed(&called));
}

/* The way to fence is chosen; no explored thread has a record yet. */
static void fill_rcu(void)
{
        fill();
        kmem_synchronize_rcu();
        use_more = wait_in_child;
}

enum { HARDENED_BYTES = 100 };

static void use_block(void)
{
        kfree(kmalloc(HARDENED_BYTES, GFP_KERNEL));
}

/* No pool is open before the threads begin. */
static void fill_hardened(void)
{
        hardened_share();
        fill();
        use_more = use_block;
}

/* A trim that another process has asked for waits. */
static void fill_and_ask(void)
{
        struct registry_request *request;

        fill();
        requests_init();
        registry_due = true;
        figures_act();
        request = &registry_head()->requests[0];
        strcpy(request->attribute, "trim");
        request->number = 1;
        request->state = REQUEST_PENDING;
        registry_head()->asked++;
}

static void honour(void)
{
        figures_act();
}

static void check_honoured(void)
{
        if (registry_is_asked())
                figures_act();
        CHECK(registry_head()->requests[0].state == REQUEST_DONE);
        give(held[0]);
        give(held[1]);
        check_empty();
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
        {.name = "fork_pool",
         .about = "a fork while another thread takes and frees the element of a pool's reserve",
         .options = "sheaf_capacity=2",
         .forks = 1,
         .setup = fill_pool,
         .thread = {use_element, fork_once},
         .cpu = {0, 1},
         .check = check_pool},
        {.name = "fork_group",
         .large = true,
         .about = "a fork while another thread charges and uncharges a group",
         .options = "sheaf_capacity=2",
         .forks = 1,
         .setup = fill_group,
         .thread = {use_accounted, fork_once},
         .cpu = {0, 1},
         .check = check_group},
        {.name = "fork_reader",
         .about = "a fork while another thread reads",
         .options = "sheaf_capacity=2",
         .forks = 1,
         .setup = fill_rcu,
         .thread = {read_section, fork_once},
         .cpu = {0, 1},
         .check = check_both},
        {.name = "fork_call_rcu",
         .large = true,
         .about = "a fork while another thread waits for a function behind a grace period",
         .options = "sheaf_capacity=2",
         .forks = 1,
         .setup = fill_rcu,
         .thread = {call_rcu, fork_once},
         .cpu = {0, 1},
         .check = check_both},
        {.name = "fork_hardened",
         .large = true,
         .about = "a fork while another thread opens a hardened pool, takes and frees",
         .options = "protect=hardened,sheaf_capacity=2",
         .forks = 1,
         .setup = fill_hardened,
         .thread = {use_block, fork_once},
         .cpu = {0, 1},
         .check = check_both},
        {.name = "fork_request",
         .about = "a fork while another thread honours a trim that was asked for from outside",
         .options = "sheaf_capacity=2",
         .forks = 1,
         .setup = fill_and_ask,
         .thread = {honour, fork_once},
         .cpu = {0, 1},
         .check = check_honoured},
        {.name = "fork_figures",
         .large = true,
         .about = "a fork of a process with a registry while another thread allocates and frees",
         .options = "sheaf_capacity=2",
         .forks = 1,
         .setup = fill_and_ask,
         .thread = {pop_and_push, fork_once},
         .cpu = {1, 0}, /* the slot of the child has figures */
         .check = check_honoured},
        {0},
};
