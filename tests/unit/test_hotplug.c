/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * CPUs come and go: orders of caches made before and after (S3-11, S3-14), and the objects that
 * come back from slots of CPUs that left (S12-01). The CPUs are simulated at cpus_read, where the
 * library asks the machine; a single test changes the real affinity.
 */
#define _GNU_SOURCE
#include "child.h"
#include "skip.h"
#include "walker.h"

#include "heap/heap.h"
#include "machine/cpus.h"
#include "base/options.h"
#include "heap/reclaim.h"
#include "introspect/totals.h"
#include "percpu/area.h"
#include "percpu/barn.h"
#include "engines/slub/order.h"
#include "process/start.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POSSIBLE = 64, MANY = 2000 };

/* ---- The machine ------------------------------------------------------------------------- */

static struct cpus machine = {
        .counts = {POSSIBLE, POSSIBLE, POSSIBLE, POSSIBLE},
        .mask = {UINT64_MAX},
};
static bool real_machine;

void __real_cpus_read(struct cpus *cpus);
void __wrap_cpus_read(struct cpus *cpus);

void __wrap_cpus_read(struct cpus *cpus)
{
        if (real_machine)
                __real_cpus_read(cpus);
        else
                *cpus = machine;
}

/* A clock that moves when it is told to. */
static uint64_t now_ms = 1000;

uint64_t __wrap_system_time_ms(void);

uint64_t __wrap_system_time_ms(void)
{
        return load_relaxed(&now_ms);
}

/* The process may run on the CPUs of a mask, with a quota of as many. */
static void use_cpus(uint64_t mask)
{
        machine.mask[0] = mask;
        machine.counts[CPUS_USABLE] = (unsigned int)__builtin_popcountll(mask);
}

static uint64_t first_cpus(unsigned int count)
{
        return UINT64_MAX >> (64 - count);
}

/* ---- Helpers ----------------------------------------------------------------------------- */

static struct kmem_cache *cache;
static void *objects[MANY];

static struct kmem_cache *create(unsigned int size)
{
        struct kmem_cache *made = kmem_cache_create("hotplug", size, 0, 0, NULL);

        check(made != NULL);
        return made;
}

/* The library looks at the machine when a cache is made, at most every 100 ms. */
static void look_at_machine(void)
{
        add_relaxed(&now_ms, 100);
        kmem_cache_destroy(create(64));
}

static struct cache_totals totals(void)
{
        struct cache_totals now;

        cache_total(cache, &now);
        return now;
}

static void *take_and_free(void *argument)
{
        unsigned int keep = (unsigned int)(uintptr_t)argument;

        for (unsigned int i = 0; i < MANY; i++)
                check((objects[i] = kmem_cache_alloc(cache, 0)) != NULL);
        for (unsigned int i = keep; i < MANY; i++)
                kmem_cache_free(cache, objects[i]);
        return NULL;
}

static void in_thread(void *(*work)(void *), void *argument)
{
        pthread_t thread;

        check(pthread_create(&thread, NULL, work, argument) == 0);
        check(pthread_join(thread, NULL) == 0);
}

/* Free objects that rest in a slot, without the objects of its CPU slab. */
static unsigned int resting_in(struct slot *slot)
{
        struct slot_cache *record = slot_peek(slot, cache_index(cache));
        struct pair pair = slot_read_pair(slot, cache->sheaf_offset);
        unsigned int count = pair.main->size + pair.spare->size;

        for (struct sheaf *sheaf = record ? record->stock : NULL; sheaf; sheaf = sheaf->next)
                count += sheaf->size;
        return count;
}

static bool holds_nothing(struct slot *slot)
{
        struct slot_cache *record = slot_peek(slot, cache_index(cache));
        struct pair pair = slot_read_pair(slot, cache->sheaf_offset);

        return sheaf_is_cold(pair.main) && sheaf_is_cold(pair.spare) &&
               (!record || (!record->stock && !record->engine.slab && !record->engine.partial));
}

static void end(void)
{
        struct walk_counts counts;

        /* A walk sees a slab between two states of it where the thread drains beside. */
        check(reclaim_thread_stop());
        walk_heap(cache, &counts);
        reclaim_thread_allow();
        check_equal(totals().inuse, 0);
        check_equal(kmem_cache_shrink(cache), 0);
        kmem_cache_destroy(cache);
}

/* ---- Orders ------------------------------------------------------------------------------ */

static unsigned int order_by(uint32_t size, unsigned int cpus)
{
        struct order_rules rules = {.page_shift = PAGE_SHIFT, .cpus = cpus, .max_order = 3};

        return slub_order(size, &rules);
}

/* Later caches have orders by the count of their time; earlier caches keep their orders. */
static unsigned int order_of_new(void)
{
        struct kmem_cache *made = create(256);
        unsigned int order = made->order;

        kmem_cache_destroy(made);
        return order;
}

static void orders_follow(void **state)
{
        struct kmem_cache *first = create(256);

        check_equal(first->order, 1); /* 64 CPUs, S3.5 */
        use_cpus(1);
        add_relaxed(&now_ms, 99);
        check_equal(order_of_new(), 1);
        add_relaxed(&now_ms, 1);
        check_equal(order_of_new(), 0);
        check_equal(first->order, 1);
        use_cpus(first_cpus(8));
        look_at_machine();
        check_equal(order_of_new(), 1);
        machine.counts[CPUS_USABLE] = 1; /* a quota */
        look_at_machine();
        check_equal(order_of_new(), 0);
        kmem_cache_destroy(first);
        use_cpus(first_cpus(POSSIBLE));
        look_at_machine();
}

/* Each value of order_cpus by its own count; the possible CPUs never change. */
static void child_order_cpus(void)
{
        static const unsigned int expected[] = {1, 8, 256, POSSIBLE};
        unsigned int cpus = expected[options.order_cpus];

        use_cpus(1);
        machine.counts[CPUS_ONLINE] = 8;
        machine.counts[CPUS_PRESENT] = 256;
        machine.counts[CPUS_POSSIBLE] = 1000;
        look_at_machine();
        for (uint32_t size = 8; size <= 16384; size += size / 8 * 8) {
                cache = create(size);
                check_equal(cache->order, order_by(cache->size, cpus));
                kmem_cache_destroy(cache);
        }
}

static void order_cpus(void **state)
{
        child_passes("order_cpus", "order_cpus=usable");
        child_passes("order_cpus", "order_cpus=online");
        child_passes("order_cpus", "order_cpus=present");
        child_passes("order_cpus", "order_cpus=possible");
}

/* The kernel's own affinity; a thread that is kept on a CPU does not count for the process. */
static void *create_on_one_cpu(void *argument)
{
        cpu_set_t one;

        CPU_ZERO(&one);
        CPU_SET((size_t)sched_getcpu(), &one);
        check(sched_setaffinity(0, sizeof(one), &one) == 0);
        *(unsigned int *)argument = 0;
        look_at_machine();
        *(unsigned int *)argument = system_cpus(CPUS_USABLE);
        return NULL;
}

static void child_real_affinity(void)
{
        unsigned int seen;
        cpu_set_t all;

        check(sched_getaffinity(0, sizeof(all), &all) == 0);
        real_machine = true;
        look_at_machine();
        if (system_cpus(CPUS_USABLE) < 2) {
                puts("one usable CPU: none can leave");
                exit(CHILD_SKIP);
        }
        in_thread(create_on_one_cpu, &seen);
        check(seen >= 2);
        create_on_one_cpu(&seen);
        check_equal(seen, 1);
        cache = create(1024);
        check_equal(cache->order, order_by(1024, 1));
        check(sched_setaffinity(0, sizeof(all), &all) == 0);
        look_at_machine();
        kmem_cache_destroy(cache);
        cache = create(1024);
        check_equal(cache->order, order_by(1024, system_cpus(CPUS_USABLE)));
        check(system_cpus(CPUS_USABLE) >= 2);
}

static void real_affinity(void **state)
{
        if (emulated())
                skip_because(EMULATORS_THREAD);
        if (THREAD_SANITIZER)
                skip_because("ThreadSanitizer has a thread of its own, on all CPUs");
        child_passes("real_affinity", "");
}

/* ---- Slots ------------------------------------------------------------------------------- */

/* The objects in slots of CPUs that left come back to the back end, every object and none twice. */
static void child_objects_come_back(void)
{
        unsigned int resting = 0;
        unsigned int left = 0;
        uint64_t given;

        cache = create(64);
        in_thread(take_and_free, (void *)100);
        check_equal(totals().inuse, 100);
        given = totals().report.given;
        for (unsigned int number = 0; number < slots_made_count(); number++)
                resting += resting_in(slot_made(number));
        check(resting > 0 || !cache->sheaf_capacity);
        use_cpus(1);
        look_at_machine();
        for (unsigned int number = 0; number < slots_made_count(); number++)
                if (slot_may_have_left(slot_made(number))) {
                        check(holds_nothing(slot_made(number)));
                        left++;
                } else {
                        resting -= resting_in(slot_made(number));
                }
        check(left > 0);
        check_equal(totals().report.given, given + resting);
        check_equal(totals().inuse, 100);
        for (unsigned int i = 0; i < 100; i++)
                kmem_cache_free(cache, objects[i]);
        in_thread(take_and_free, NULL);
        end();
}

static void objects_come_back(void **state)
{
        child_passes("objects_come_back", "");
        child_passes("objects_come_back", "slots=locked");
        child_passes("objects_come_back", "sheaf_capacity=0");
        child_passes("objects_come_back", "engine=slab");
        child_passes("objects_come_back", "engine=slab,slots=locked");
}

/* A CPU that stays keeps its objects, where slots are told apart by CPU. */
static unsigned int two_cpus[2];

static void *on_cpu(void *argument)
{
        cpu_set_t one;

        CPU_ZERO(&one);
        CPU_SET(*(unsigned int *)argument, &one);
        check(sched_setaffinity(0, sizeof(one), &one) == 0);
        return take_and_free(NULL);
}

static void find_two_cpus(void)
{
        unsigned int found = 0;
        cpu_set_t all;

        check(sched_getaffinity(0, sizeof(all), &all) == 0);
        for (unsigned int cpu = 0; cpu < POSSIBLE && found < 2; cpu++)
                if (CPU_ISSET(cpu, &all))
                        two_cpus[found++] = cpu;
        if (!slots_are_rseq() || found < 2) {
                puts("no restartable sequences, or one usable CPU");
                exit(CHILD_SKIP);
        }
}

static void child_slots_of_cpus(void)
{
        struct slot *slots[2];
        unsigned int resting;

        find_two_cpus();
        /* As on kernels without concurrency ids. */
        fast.slot_field = area_offset() + (intptr_t)offsetof(struct rseq_area, cpu_id);
        cache = create(64);
        for (unsigned int i = 0; i < 2; i++) {
                in_thread(on_cpu, &two_cpus[i]);
                slots[i] = slot_at(two_cpus[i]);
                check(resting_in(slots[i]) > 0);
        }
        resting = resting_in(slots[0]);
        use_cpus(UINT64_MAX & ~((uint64_t)1 << two_cpus[1]));
        look_at_machine();
        check(holds_nothing(slots[1]));
        check_equal(resting_in(slots[0]), resting);
        /* A CPU comes for another: the number of CPUs stays. */
        use_cpus(UINT64_MAX & ~((uint64_t)1 << two_cpus[0]));
        look_at_machine();
        check(holds_nothing(slots[0]));
        /* Both are back, and are used again. */
        use_cpus(UINT64_MAX);
        look_at_machine();
        for (unsigned int i = 0; i < 2; i++) {
                in_thread(on_cpu, &two_cpus[i]);
                check(resting_in(slots[i]) > 0);
        }
        /* A quota takes no CPU away. */
        machine.counts[CPUS_USABLE] = 1;
        look_at_machine();
        check(resting_in(slots[1]) > 0);
        end();
}

static void slots_of_cpus(void **state)
{
        child_passes("slots_of_cpus", "slots=rseq,sheaf_capacity=30,reclaim_thread=off");
}

/* Locked slots: threads keep to as many records as there are CPUs, and get more when there are. */
static void *which_slot(void *argument)
{
        *(struct slot **)argument = slot_current();
        take_and_free(NULL);
        return NULL;
}

static void child_locked_records(void)
{
        struct slot *slot;

        check_equal(slots_made_count(), POSSIBLE);
        cache = create(64);
        for (unsigned int cpus = 4; cpus >= 1; cpus--) {
                use_cpus(first_cpus(cpus));
                look_at_machine();
                for (unsigned int round = 0; round < 10; round++) {
                        in_thread(which_slot, &slot);
                        check(slot->id < cpus);
                }
                for (unsigned int number = cpus; number < slots_made_count(); number++)
                        check(holds_nothing(slot_made(number)));
        }
        machine.counts[CPUS_USABLE] = POSSIBLE + 20;
        look_at_machine();
        check_equal(slots_made_count(), POSSIBLE + 20);
        for (unsigned int round = 0; round < 10; round++)
                in_thread(which_slot, &slot);
        end();
}

static void locked_records(void **state)
{
        child_passes("locked_records", "slots=locked");
}

/* Trimming looks at the machine as well, and so does shrinking any cache; every 100 ms at most. */
static void trim_and_shrink(void **state)
{
        cache = create(64);
        use_cpus(first_cpus(3));
        add_relaxed(&now_ms, 100);
        heap_trim(0);
        check_equal(system_cpus(CPUS_USABLE), 3);
        use_cpus(first_cpus(2));
        add_relaxed(&now_ms, 99);
        heap_trim(0);
        check_equal(system_cpus(CPUS_USABLE), 3);
        add_relaxed(&now_ms, 1);
        heap_trim(0);
        check_equal(system_cpus(CPUS_USABLE), 2);
        use_cpus(first_cpus(POSSIBLE));
        add_relaxed(&now_ms, 100);
        kmem_cache_shrink(cache);
        check_equal(system_cpus(CPUS_USABLE), POSSIBLE);
        end();
}

/* ---- CPUs come and go while threads work --------------------------------------------------- */

enum { THREADS = 4, KEPT_MAX = 300, STEPS = THREAD_SANITIZER ? 100000 : 2000000 };

static struct worker {
        pthread_t thread;
        uint64_t random;
        unsigned int count;
        void *kept[KEPT_MAX];
} workers[THREADS];
static unsigned int working;

/* An object that two hold at a time has its mark already, or not any more. */
static void *work(void *argument)
{
        struct worker *worker = argument;

        for (unsigned int step = 0; step < STEPS; step++)
                if (worker->count < KEPT_MAX && random_step(&worker->random) & 1) {
                        void **object = kmem_cache_alloc(cache, 0);

                        check(__atomic_exchange_n(object, object, __ATOMIC_ACQ_REL) != object);
                        worker->kept[worker->count++] = object;
                } else if (worker->count) {
                        void **object = worker->kept[--worker->count];

                        check(__atomic_exchange_n(object, NULL, __ATOMIC_ACQ_REL) == object);
                        kmem_cache_free(cache, object);
                }
        sub_relaxed(&working, 1);
        return NULL;
}

static void child_storm(void)
{
        uint64_t random = 31;
        unsigned int looks = 0;
        uint64_t kept = 0;

        cache = create(64);
        working = THREADS;
        for (unsigned int i = 0; i < THREADS; i++) {
                workers[i].random = i + 1;
                check(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
        }
        while (load_relaxed(&working) || looks < 50) {
                use_cpus(random_step(&random) | 1);
                look_at_machine();
                looks++;
        }
        for (unsigned int i = 0; i < THREADS; i++) {
                pthread_join(workers[i].thread, NULL);
                kept += workers[i].count;
        }
        check_equal(totals().inuse, kept);
        for (unsigned int i = 0; i < THREADS; i++)
                while (workers[i].count) {
                        void **object = workers[i].kept[--workers[i].count];

                        *object = NULL;
                        kmem_cache_free(cache, object);
                }
        end();
}

static void storm(void **state)
{
        child_passes("storm", "");
        child_passes("storm", "sheaf_capacity=2");
        child_passes("storm", "slots=locked");
        child_passes("storm", "engine=slab");
        child_passes("storm", "engine=slab,slots=locked,limit=3");
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"order_cpus", child_order_cpus},
                {"real_affinity", child_real_affinity},
                {"objects_come_back", child_objects_come_back},
                {"slots_of_cpus", child_slots_of_cpus},
                {"locked_records", child_locked_records},
                {"storm", child_storm},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(orders_follow),   cmocka_unit_test(order_cpus),
                cmocka_unit_test(real_affinity),   cmocka_unit_test(objects_come_back),
                cmocka_unit_test(slots_of_cpus),   cmocka_unit_test(locked_records),
                cmocka_unit_test(trim_and_shrink), cmocka_unit_test(storm),
        };

        if (!heap_ready())
                return 1;
        child_main(argc, argv, children, array_size(children));
        child_restart_with(argv, "engine=slub");
        return cmocka_run_group_tests_name("hotplug", tests, NULL, NULL);
}
