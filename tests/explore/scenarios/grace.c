/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Read sections and grace periods, blocks that are freed behind them, and waits for elements of a
 * pool.
 */
#include "scenario.h"

#include "base/rcu.h"
#include "lang/atomic.h"

enum { ALIVE = 1, OVERWRITTEN = 2 };

/* ---- Readers ------------------------------------------------------------------------------ */

static uint32_t *shared; /* what readers find */
static uint32_t *object; /* the object that is taken from them */

static void share(void)
{
        make_cache(64);
        object = take();
        *object = ALIVE;
        shared = object;
        /* The way to fence is chosen; no explored thread has a record yet. */
        CHECK(!rcu_poll(UINT64_MAX));
}

/* A kernel without membarrier: readers and starters fence themselves. */
static void share_and_fence(void)
{
        share();
        rcu.fences = 1;
}

static void read_shared(void)
{
        uint32_t *found;

        kmem_rcu_read_lock();
        found = load_acquire(&shared);
        if (found) {
                CHECK(load_relaxed(found) == ALIVE);
                cpu_relax();
                if (load_relaxed(found) != ALIVE)
                        explore_fail("a reader sees what was written behind its grace period");
        }
        kmem_rcu_read_unlock();
}

static void overwrite(uint32_t *freed)
{
        store_relaxed(freed, OVERWRITTEN);
}

static void take_away(void)
{
        store_release(&shared, NULL);
        kmem_synchronize_rcu();
        overwrite(object);
}

/* As a caller that does other work between its snapshot and its look. */
static void take_away_and_poll(void)
{
        uint64_t snapshot;

        store_release(&shared, NULL);
        snapshot = rcu_snapshot();
        cpu_relax();
        if (rcu_poll(snapshot))
                overwrite(object);
}

static void poll(void)
{
        rcu_poll(rcu_snapshot());
}

static void check_taken(void)
{
        give(object);
        check_empty();
}

/* ---- Deferred frees ----------------------------------------------------------------------- */

static void use_freed(void)
{
        uint32_t *other[4];

        for (unsigned int i = 0; i < 4; i++) {
                other[i] = take();
                overwrite(other[i]);
        }
        for (unsigned int i = 0; i < 4; i++)
                give(other[i]);
}

static void free_behind_readers(void)
{
        store_release(&shared, NULL);
        give_notes(object);
        kfree_rcu(object);
        kfree_rcu_barrier();
        use_freed();
}

static uint32_t *deferred[4];

static void hold_deferred(void)
{
        share();
        for (unsigned int i = 0; i < 4; i++)
                deferred[i] = take();
}

static void defer(unsigned int number)
{
        give_notes(deferred[number]);
        kfree_rcu(deferred[number]);
}

static void defer_two(void)
{
        defer(0);
        defer(1);
}

static void defer_others(void)
{
        defer(2);
        defer(3);
}

static void wait_for_deferred(void)
{
        kfree_rcu_barrier();
}

static void shrink(void)
{
        kmem_cache_shrink(cache);
}

static void check_deferred(void)
{
        kfree_rcu_barrier();
        give(object);
        check_empty();
}

/* A barrier returns when the blocks that its thread deferred are free, whoever frees them. */
static void defer_and_wait(void)
{
        struct kmem_cache_info info = {.size = sizeof(info)};

        defer_two();
        kfree_rcu_barrier();
        CHECK(kmem_cache_info(cache, &info) == 0);
        if (info.objects_inuse > 3)
                explore_fail("%lu objects are in use behind the barrier: expected 3",
                             (unsigned long)info.objects_inuse);
}

static void check_waited(void)
{
        give(deferred[2]);
        give(deferred[3]);
        check_deferred();
}

/* ---- Callbacks ----------------------------------------------------------------------------- */

static struct kmem_rcu_head callback[2];
static uint32_t called[2];

/* No thread runs callbacks here: those that wait for them do. */
static void share_and_clear(void)
{
        share();
        called[0] = called[1] = 0;
}

static void overwrite_when_called(struct kmem_rcu_head *head)
{
        CHECK(head == &callback[0] && !load_relaxed(&called[0]));
        overwrite(object);
        store_relaxed(&called[0], 1);
}

static void count_call(struct kmem_rcu_head *head)
{
        CHECK(head == &callback[1] && !load_relaxed(&called[1]));
        store_relaxed(&called[1], 1);
}

static void take_away_by_callback(void)
{
        store_release(&shared, NULL);
        kmem_call_rcu(&callback[0], overwrite_when_called);
        kmem_rcu_barrier();
        if (!load_relaxed(&called[0]))
                explore_fail("a barrier returns in front of a function that was called before it");
}

static void call_and_wait(void)
{
        kmem_call_rcu(&callback[1], count_call);
        kmem_rcu_barrier();
        if (!load_relaxed(&called[1]))
                explore_fail("a barrier returns in front of a function that was called before it");
}

/* ---- Pools -------------------------------------------------------------------------------- */

static mempool_t *pool;
static uint32_t spare; /* elements that the program's functions have */
static char element;

static void *element_take(gfp_t flags, void *unused)
{
        (void)flags;
        (void)unused;
        if (!load_relaxed(&spare))
                return NULL;
        store_relaxed(&spare, 0);
        return &element;
}

/* Without a lock: whoever takes an element has it alone here. */
static void element_free(void *freed, void *unused)
{
        (void)unused;
        CHECK(freed == &element);
        store_release(&spare, 1);
}

static void make_pool(int reserve)
{
        spare = (uint32_t)reserve;
        pool = mempool_create(reserve, element_take, element_free, NULL);
        CHECK(pool && !spare);
}

static void make_reserve(void)
{
        make_pool(1);
}

/* The program's functions have no element: the first thread holds it. */
static void make_no_reserve(void)
{
        make_pool(0);
}

static void use_element(void)
{
        void *own = mempool_alloc(pool, GFP_KERNEL);

        take_notes(own);
        give_notes(own);
        mempool_free(own, pool);
}

static void free_element(void)
{
        mempool_free(&element, pool);
}

/*
 * The reserve's element is out, and alloc_fn gets memory that no free of the pool tells of. Two threads are
 * to be served by a single free.
 */
static char outside;
static uint32_t has_outside;

static void *outside_take(gfp_t flags, void *unused)
{
        (void)flags;
        (void)unused;
        return exchange_acquire(&has_outside, 0) ? &outside : NULL;
}

static void outside_free(void *freed, void *unused)
{
        (void)freed;
        (void)unused;
}

static void empty_reserve(void)
{
        has_outside = 1;
        pool = mempool_create(1, outside_take, outside_free, NULL);
        CHECK(pool && pool->curr_nr == 1 && !has_outside);
        /* Compilers take the pointer for a new one, which is none of the program's. */
        take_notes(mempool_alloc(pool, GFP_KERNEL));
        give_notes(&outside);
}

static void want_element(void)
{
        take_notes(mempool_alloc(pool, GFP_KERNEL));
}

static void free_beside_other(void)
{
        store_release(&has_outside, 1);
        mempool_free(&element, pool);
}

static void check_served(void)
{
        give_notes(&element);
        give_notes(&outside);
        CHECK(pool->curr_nr == 0 && !has_outside);
        mempool_destroy(pool);
}

static void check_pool(void)
{
        CHECK(pool->curr_nr + (int)spare == 1);
        mempool_destroy(pool);
}

const struct scenario grace_scenarios[] = {
        {.name = "reader_grace",
         .about = "a reader against a thread that waits for a grace period",
         .setup = share,
         .thread = {read_shared, take_away},
         .cpu = {0, 1},
         .check = check_taken},
        {.name = "reader_grace_fences",
         .about = "a reader that fences against a thread that waits for a grace period",
         .setup = share_and_fence,
         .thread = {read_shared, take_away},
         .cpu = {0, 1},
         .check = check_taken},
        {.name = "reader_graces",
         .about = "a reader, a grace period, and a snapshot of another",
         .large = true,
         .setup = share,
         .thread = {take_away_and_poll, poll, read_shared},
         .cpu = {0, 1, 2},
         .check = check_taken},
        {.name = "reader_kfree_rcu",
         .about = "a reader against kfree_rcu and the next use of the memory",
         .setup = share,
         .thread = {read_shared, free_behind_readers},
         .cpu = {0, 1}},
        {.name = "reader_call_rcu",
         .about = "a reader against a function that is called behind its grace period",
         .setup = share_and_clear,
         .thread = {read_shared, take_away_by_callback},
         .cpu = {0, 1},
         .check = check_taken},
        {.name = "call_rcu_barriers",
         .about = "two threads each wait for the function that they have given to kmem_call_rcu",
         .setup = share_and_clear,
         .thread = {take_away_by_callback, call_and_wait},
         .cpu = {0, 1},
         .check = check_taken},
        {.name = "kfree_rcu_barriers",
         .about = "a barrier of kfree_rcu against one of another thread",
         .options = "sheaf_capacity=2",
         .setup = hold_deferred,
         .thread = {defer_and_wait, wait_for_deferred},
         .cpu = {0, 1},
         .check = check_waited},
        {.name = "kfree_rcu_7_0_same_cpu",
         .large = true,
         .about = "sheaf_rule=7.0: two threads of a CPU collect objects for kfree_rcu in sheaves",
         .options = "sheaf_capacity=2,sheaf_rule=7.0",
         .setup = hold_deferred,
         .thread = {defer_two, defer_others},
         .cpu = {0, 0},
         .check = check_deferred},
        {.name = "kfree_rcu_7_0_shrink",
         .about = "sheaf_rule=7.0: a sheaf for kfree_rcu is filled while another CPU shrinks",
         .options = "sheaf_capacity=2,sheaf_rule=7.0",
         .setup = hold_deferred,
         .thread = {defer_two, shrink, defer_others},
         .cpu = {0, 1, 2},
         .large = true,
         .check = check_deferred},
        {.name = "pool_reserve",
         .about = "two threads want the only element of a pool's reserve",
         .setup = make_reserve,
         .thread = {use_element, use_element},
         .cpu = {0, 1},
         .woken = true,
         .check = check_pool},
        {.name = "pool_three",
         .about = "three threads want the only element of a pool's reserve",
         .large = true,
         .setup = make_reserve,
         .thread = {use_element, use_element, use_element},
         .cpu = {0, 1, 2},
         .woken = true,
         .check = check_pool},
        {.name = "pool_passed_on",
         .about = "a free wakes one of two waiters, which the allocator serves: it wakes the other",
         .setup = empty_reserve,
         .thread = {want_element, want_element, free_beside_other},
         .cpu = {0, 1, 2},
         .woken = true,
         .check = check_served},
        {.name = "pool_no_reserve",
         .about = "a thread waits for an element that another gives to the program's function",
         .setup = make_no_reserve,
         .thread = {use_element, free_element},
         .cpu = {0, 1},
         .woken = true,
         .check = check_pool},
        {0},
};
