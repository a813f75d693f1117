/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Measures, on this machine, the costs of the events that the simulated machine counts, for `kmem
 * lab calibrate`, which sets KMEM_OPTIONS (below). Prints lines "NAME NANOSECONDS", each the least
 * of ROUNDS rounds, because other programs can only add time. Rounds of all measurements are taken
 * in turn. A cost that cannot be measured (`line` and `queued`, on a single CPU) has no line.
 *
 *   calls          an allocation or a free that a sheaf serves
 *   bare_calls     a call that finds no sheaf and works on the CPU slab, with one lock
 *   moved_calls    a call whose object came from a slab or goes back to a slab, through a sheaf;
 *                  slabs in no order
 *   compare_swaps  atomic_adds exchanges   on a word in this CPU's cache
 *   locks          taking and dropping a lock that this CPU had last
 *   page_locks     a page from the buddy lists or back, with its lock
 *   line           a word that another CPU changed last: half of a round trip between two threads
 *   queued         a queued lock, from a thread to the next, which waits for it
 *   page_scans     engine slob: a page that cannot serve
 *   block_scans    engine slob: a free block looked at
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "cycles.h"
#include "kmem.h"
#include "engines/slob/slob.h"

enum {
        ROUNDS = 51,
        REPEATS = 4096, /* of an operation, in a round */
        ROUND_TRIPS = 512,
        MOVED_OBJECTS = 1 << 15,
        MOVED_STEP = 4099, /* a prime: all objects are met */
        SLOB_PAGES = 60,   /* as many as are looked at in turn, or fewer */
        SLOB_TURNS = 50,
        SLOB_FIRSTS = 8,
        PAGE_OBJECT_BYTES = 1984, /* two in a page, and too little for a third */
        HOLE_BYTES = 16,
        HOLE_OBJECTS = 2048,
        BEYOND_HOLE_BYTES = 24,
};

#define OPTIONS "bare.sheaf_capacity=0,slob-*.engine=slob"

static struct kmem_cache *sheaf_cache;
static struct kmem_cache *bare_cache;
static struct kmem_cache *page_cache; /* the next three are of engine slob */
static struct kmem_cache *hole_cache;
static struct kmem_cache *beyond_cache;

static double time_pairs(struct kmem_cache *cache)
{
        uint64_t from = now_ns();

        for (int i = 0; i < REPEATS; i++) {
                void *object = kmem_cache_alloc(cache, GFP_KERNEL);

                keep(object);
                kmem_cache_free(cache, object);
        }
        return (double)(now_ns() - from) / (2.0 * REPEATS);
}

static double time_calls(void)
{
        return time_pairs(sheaf_cache);
}

static double time_bare_calls(void)
{
        return time_pairs(bare_cache);
}

/*
 * Takes more objects than a CPU keeps, and frees them in an order in which neighbours are of
 * different slabs.
 */
static double time_moved_calls(void)
{
        static void *objects[MOVED_OBJECTS];
        uint64_t from = now_ns();

        for (int i = 0; i < MOVED_OBJECTS; i++)
                objects[i] = kmem_cache_alloc(sheaf_cache, GFP_KERNEL);
        for (size_t i = 0; i < MOVED_OBJECTS; i++)
                kmem_cache_free(sheaf_cache, objects[i * MOVED_STEP % MOVED_OBJECTS]);
        return (double)(now_ns() - from) / (2.0 * MOVED_OBJECTS);
}

static double time_compare_swaps(void)
{
        static uint64_t word;
        uint64_t from = now_ns();

        for (int i = 0; i < REPEATS; i++) {
                uint64_t expected = load_relaxed(&word);

                compare_swap(&word, &expected, expected + 1);
        }
        return (double)(now_ns() - from) / REPEATS;
}

static double time_atomic_adds(void)
{
        static uint64_t word;
        uint64_t from = now_ns();

        for (int i = 0; i < REPEATS; i++)
                add_relaxed(&word, 1);
        return (double)(now_ns() - from) / REPEATS;
}

static double time_exchanges(void)
{
        static uint64_t word;
        uint64_t from = now_ns();

        for (int i = 0; i < REPEATS; i++)
                exchange_acquire(&word, (uint64_t)i);
        return (double)(now_ns() - from) / REPEATS;
}

static double time_locks(void)
{
        static struct lock lock;
        uint64_t from = now_ns();

        for (int i = 0; i < REPEATS; i++) {
                lock_take(&lock);
                lock_drop(&lock);
        }
        return (double)(now_ns() - from) / REPEATS;
}

/* Two calls, each of which takes the lock once. */
static double time_page_locks(void)
{
        uint64_t from = now_ns();

        for (int i = 0; i < REPEATS; i++) {
                struct page *page = pages_alloc(0, NODE_ANY, NULL);

                if (!page)
                        exit(1);
                pages_free(page, 1);
        }
        return (double)(now_ns() - from) / (2.0 * REPEATS);
}

/* ---- A line between two CPUs ------------------------------------------------------------- */

static uint32_t ball __attribute__((aligned(64)));
static size_t line_cpus[2];

static void pin(size_t cpu)
{
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        sched_setaffinity(0, sizeof(set), &set);
}

/* Sends the ball back each time it comes. */
static void *answer(void *unused)
{
        (void)unused;
        pin(line_cpus[1]);
        for (uint32_t turn = 0; turn < ROUND_TRIPS; turn++) {
                while (load_acquire(&ball) != 2 * turn + 1)
                        cpu_relax();
                store_release(&ball, 2 * turn + 2);
        }
        return NULL;
}

/* The first ball starts when the other thread runs, so starting it is not timed. */
static double time_line(void)
{
        pthread_t thread;
        uint64_t from = 0;

        store_release(&ball, 0);
        if (pthread_create(&thread, NULL, answer, NULL))
                exit(1);
        for (uint32_t turn = 0; turn < ROUND_TRIPS; turn++) {
                store_release(&ball, 2 * turn + 1);
                while (load_acquire(&ball) != 2 * turn + 2)
                        cpu_relax();
                if (!turn)
                        from = now_ns();
        }
        from = now_ns() - from;
        pthread_join(thread, NULL);
        return (double)from / (2.0 * (ROUND_TRIPS - 1));
}

/* ---- A queued lock between two CPUs ------------------------------------------------------ */

/* A waiter spins in its own line until the holder before it writes there. */
struct waiter {
        struct waiter *next;
        uint32_t waits;
} __attribute__((aligned(64)));

static struct queued_lock {
        struct waiter *tail; /* the thread that asked last, or NULL */
        uint32_t list;       /* what the lock protects is in the lock's line, as a list's head */
} __attribute__((aligned(64))) queued_lock;

static uint32_t ready_threads __attribute__((aligned(64)));

static void queued_take(struct waiter *self)
{
        struct waiter *before;

        self->next = NULL;
        self->waits = 1;
        /* Acquires from the drop of a holder that has gone; releases the two stores above. */
        before = __atomic_exchange_n(&queued_lock.tail, self, __ATOMIC_ACQ_REL);
        if (!before)
                return;
        store_release(&before->next, self);
        while (load_acquire(&self->waits))
                cpu_relax();
}

/* @last: no other thread asks any more. Else the holder drops the lock when the other waits. */
static void queued_drop(struct waiter *self, bool last)
{
        struct waiter *expected = self;

        if (last && compare_swap_release(&queued_lock.tail, &expected, NULL))
                return;
        while (!load_acquire(&self->next))
                cpu_relax();
        store_release(&load_relaxed(&self->next)->waits, 0u);
}

/* The threads take turns, so every acquisition but the first is waited for. */
static void queued_turns(struct waiter *self)
{
        for (int turn = 0; turn < ROUND_TRIPS; turn++) {
                queued_take(self);
                queued_lock.list++;
                queued_drop(self, turn == ROUND_TRIPS - 1);
        }
}

static void wait_for_both(void)
{
        add_relaxed(&ready_threads, 1);
        while (load_acquire(&ready_threads) != 2)
                cpu_relax();
}

static void *queued_thread(void *unused)
{
        static struct waiter waiter;

        (void)unused;
        pin(line_cpus[1]);
        wait_for_both();
        queued_turns(&waiter);
        return NULL;
}

static double time_queued(void)
{
        static struct waiter waiter;
        pthread_t thread;
        uint64_t from;

        store_release(&ready_threads, 0);
        if (pthread_create(&thread, NULL, queued_thread, NULL))
                exit(1);
        wait_for_both();
        from = now_ns();
        queued_turns(&waiter);
        pthread_join(thread, NULL);
        return (double)(now_ns() - from) / (2.0 * ROUND_TRIPS);
}

/* Two CPUs of this process, or no line. */
static bool find_line_cpus(void)
{
        cpu_set_t set;
        int found = 0;

        line_cpus[0] = (size_t)sched_getcpu();
        if (sched_getaffinity(0, sizeof(set), &set))
                return false;
        for (size_t cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
                if (CPU_ISSET(cpu, &set))
                        line_cpus[found++] = cpu;
        return found == 2;
}

/* ---- Engine slob ------------------------------------------------------------------------- */

/*
 * Frees an object of a page and takes it again, for all pages and many times. With @last it is
 * always the list's last page, and all other pages are looked at first; else it is the first page.
 */
static double time_turns(void **objects, bool last)
{
        uint64_t from = now_ns();

        for (int i = 0; i < SLOB_TURNS * SLOB_PAGES; i++) {
                void **object = &objects[last ? i % SLOB_PAGES * 2 : 2 * SLOB_PAGES - 2];

                kmem_cache_free(page_cache, *object);
                *object = kmem_cache_alloc(page_cache, GFP_KERNEL);
        }
        return (double)(now_ns() - from);
}

/*
 * Two objects fill a page but for a rest. The page that served is the first then, so the pages take
 * turns.
 */
static double time_page_scans(void)
{
        static void *objects[2 * SLOB_PAGES];
        uint64_t scans;
        double first;
        double last;

        for (int i = 0; i < 2 * SLOB_PAGES; i++)
                objects[i] = kmem_cache_alloc(page_cache, GFP_KERNEL);
        /* The time to subtract must not be too much, so it is the least of several. */
        first = time_turns(objects, false);
        for (int i = 0; i < SLOB_FIRSTS; i++) {
                double again = time_turns(objects, false);

                first = min_of(first, again);
        }
        scans = slob_counts.page_scans;
        last = time_turns(objects, true);
        scans = slob_counts.page_scans - scans;
        for (int i = 0; i < 2 * SLOB_PAGES; i++)
                kmem_cache_free(page_cache, objects[i]);
        return (last > first ? last - first : last) / (double)max_of(scans, (uint64_t)1);
}

/* Fills pages with holes that are too small: each is looked at until a new page is made. */
static double time_block_scans(void)
{
        static void *holes[HOLE_OBJECTS];
        void *object;
        uint64_t scans;
        uint64_t from;

        for (int i = 0; i < HOLE_OBJECTS; i++)
                holes[i] = kmem_cache_alloc(hole_cache, GFP_KERNEL);
        for (int i = 0; i < HOLE_OBJECTS; i += 2)
                kmem_cache_free(hole_cache, holes[i]);
        scans = slob_counts.block_scans;
        from = now_ns();
        object = kmem_cache_alloc(beyond_cache, GFP_KERNEL);
        from = now_ns() - from;
        scans = slob_counts.block_scans - scans;
        kmem_cache_free(beyond_cache, object);
        for (int i = 1; i < HOLE_OBJECTS; i += 2)
                kmem_cache_free(hole_cache, holes[i]);
        return (double)from / (double)max_of(scans, (uint64_t)1);
}

/* ------------------------------------------------------------------------------------------ */

static struct measurement {
        const char *name;
        double (*time)(void); /* nanoseconds of a single event */
        double least;
} measurements[] = {
        {.name = "calls", .time = time_calls},
        {.name = "bare_calls", .time = time_bare_calls},
        {.name = "moved_calls", .time = time_moved_calls},
        {.name = "compare_swaps", .time = time_compare_swaps},
        {.name = "atomic_adds", .time = time_atomic_adds},
        {.name = "exchanges", .time = time_exchanges},
        {.name = "locks", .time = time_locks},
        {.name = "page_locks", .time = time_page_locks},
        {.name = "page_scans", .time = time_page_scans},
        {.name = "block_scans", .time = time_block_scans},
        {.name = "line", .time = time_line}, /* the last two need two CPUs */
        {.name = "queued", .time = time_queued},
};

enum { MEASUREMENTS = sizeof(measurements) / sizeof(measurements[0]) };

static bool make_caches(void)
{
        sheaf_cache = kmem_cache_create("costs", 64, 0, 0, NULL);
        bare_cache = kmem_cache_create("bare", 64, 0, 0, NULL);
        page_cache = kmem_cache_create("slob-pages", PAGE_OBJECT_BYTES, 0, 0, NULL);
        hole_cache = kmem_cache_create("slob-holes", HOLE_BYTES, 0, 0, NULL);
        beyond_cache = kmem_cache_create("slob-beyond", BEYOND_HOLE_BYTES, 0, 0, NULL);
        return sheaf_cache && bare_cache && page_cache && hole_cache && beyond_cache;
}

int main(void)
{
        unsigned int count = find_line_cpus() ? MEASUREMENTS : MEASUREMENTS - 2;

        if (!make_caches() || bare_cache->sheaf_capacity || hole_cache->engine != &slob_engine) {
                fputs("costs: expected KMEM_OPTIONS=" OPTIONS ", and memory\n", stderr);
                return 1;
        }
        pin(line_cpus[0]);
        for (int round = 0; round < ROUNDS; round++)
                for (unsigned int i = 0; i < count; i++) {
                        double took = measurements[i].time();

                        if (!round || took < measurements[i].least)
                                measurements[i].least = took;
                }
        for (unsigned int i = 0; i < count; i++)
                printf("%s %.3f\n", measurements[i].name, measurements[i].least);
        return 0;
}
