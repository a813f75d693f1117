/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The simulated machine: the model on machines of several sizes and back ends, repeated runs, CPUs
 * that come and leave, counts, and refusals. A process has a single heap, so every case is a child,
 * which takes its options as a string of its own, since the machine ignores KMEM_OPTIONS.
 */
#include "../unit/skip.h"
#include "model.h"

#include "introspect/totals.h"
#include "kmem.h"
#include "page/zone.h"
#include "percpu/barn.h"
#include "engines/slab/slab.h"
#include "engines/slub/counters.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *given_options(void)
{
        return getenv("KMEM_OPTIONS");
}

static void start(unsigned int cpus, unsigned int nodes)
{
        const struct sim_machine machine = {
                .cpus_online = cpus, .nodes = nodes, .options = given_options()};

        check_equal(sim_start(&machine), 0);
}

/* ---- The model ---------------------------------------------------------------------------- */

static void run_model(unsigned int cpus, unsigned int nodes, uint64_t seed)
{
        const struct model model = {
                .cpus = cpus,
                .nodes = nodes,
                .steps = 30000,
                .seed = seed,
                .hotplug = true,
                .options = given_options(),
        };

        model_run(&model);
}

static void child_1_cpu(void)
{
        run_model(1, 1, 11);
}

static void child_2_cpus(void)
{
        run_model(2, 1, 22);
}

static void child_64_cpus(void)
{
        run_model(64, 3, 33);
}

static void child_256_cpus(void)
{
        run_model(256, 8, 44);
}

static const char *const rows[] = {
        "engine=slub",
        "engine=slab",
        "engine=slob",
        "sheaf_capacity=0",
        "sheaf_capacity=3,cpu_partial=0,min_partial=0,classes=kernel",
        "freeze=eager,cpu_partial_accounting=objects,sheaf_capacity=0,stats=1",
        "engine=slab,classes=kernel,limit=5,batchcount=3,shared=2",
        "classes=kernel,slub_max_order=0,purge_delay=0,m2048.engine=slab,m700.engine=slob",
        "debug=FZPU",
        "debug=Z,classes=kernel,min_partial=0,m700.debug=FPU",
};

static void models(const char *machine)
{
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                child_passes(machine, rows[i]);
}

static void model_1_cpu(void **state)
{
        models("1_cpu");
}

static void model_2_cpus(void **state)
{
        models("2_cpus");
}

static void model_64_cpus(void **state)
{
        models("64_cpus");
}

static void model_256_cpus(void **state)
{
        models("256_cpus");
}

/* ---- Repeated runs ------------------------------------------------------------------------- */

static void print_machine(void)
{
        struct sim_counts counts;
        struct sim_lock_place place;

        sim_counts(&counts);
        printf("swaps %lu adds %lu exchanges %lu words %lu %lu slow %lu fences %lu\n",
               (unsigned long)counts.compare_swaps, (unsigned long)counts.atomic_adds,
               (unsigned long)counts.exchanges, (unsigned long)counts.remote_words,
               (unsigned long)counts.remote_words_node, (unsigned long)counts.slow_paths,
               (unsigned long)counts.fences);
        for (size_t number = 0; sim_lock_place(number, &place); number++)
                printf("%s %u %lu %lu %lu\n", place.lock, place.line,
                       (unsigned long)place.counts.taken, (unsigned long)place.counts.handed_over,
                       (unsigned long)place.counts.handed_over_node);
        fflush(stdout);
        sim_slabinfo(STDOUT_FILENO);
}

/* Objects that live for a while, freed on other CPUs than they came from; needs 16 CPUs. */
static void run_mix(struct kmem_cache *cache, uint64_t seed)
{
        enum { OBJECTS = 3000 };
        static void *objects[OBJECTS];

        for (unsigned int i = 0; i < 100000; i++) {
                uint64_t bits = random_step(&seed);
                void **object = &objects[bits % OBJECTS];

                sim_set_cpu(bits >> 20 & 15);
                sim_time_advance(bits >> 24 & 0xffff);
                if (*object) {
                        kmem_cache_free(cache, *object);
                        *object = NULL;
                } else {
                        *object = kmem_cache_alloc(cache, 0);
                }
        }
}

static void run_and_print(uint64_t seed)
{
        start(16, 2);
        run_mix(kmem_cache_create("mix", 200, 0, 0, NULL), seed);
        print_machine();
}

static void child_run_1(void)
{
        run_and_print(1);
}

static void child_run_2(void)
{
        run_and_print(2);
}

static void same_twice(void **state)
{
        static const char *const engines[] = {"engine=slub", "engine=slab", "engine=slob",
                                              "sheaf_capacity=0", "debug=FZPU,stats=1"};

        for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
                static struct child_result first;
                static struct child_result second;
                static struct child_result other;

                child_run("run_1", engines[i], &first);
                child_run("run_1", engines[i], &second);
                child_run("run_2", engines[i], &other);
                assert_int_equal(first.status, 0);
                assert_true(strstr(first.output, "slabinfo - version"));
                assert_string_equal(first.output, second.output);
                assert_string_not_equal(first.output, other.output);
        }
}

/* ---- Slots, CPUs, nodes ------------------------------------------------------------------- */

enum { MANY = 256 };

/* Each CPU gets back the object that it freed last, and no other CPU gets it. */
static void child_slots(void)
{
        struct kmem_cache *cache;
        void *objects[MANY];
        struct cache_totals totals;

        start(MANY, 1);
        cache = kmem_cache_create("slots", 64, 0, 0, NULL);
        for (unsigned int cpu = 0; cpu < MANY; cpu++) {
                sim_set_cpu(cpu);
                objects[cpu] = kmem_cache_alloc(cache, 0);
                for (unsigned int other = 0; other < cpu; other++)
                        check(objects[other] != objects[cpu]);
        }
        cache_total(cache, &totals);
        check_equal(totals.inuse, MANY);
        check_equal(slots_made_count(), MANY);
        for (unsigned int cpu = 0; cpu < MANY; cpu++) {
                sim_set_cpu(cpu);
                kmem_cache_free(cache, objects[cpu]);
        }
        for (unsigned int cpu = MANY; cpu-- > 0;) {
                sim_set_cpu(cpu);
                check(kmem_cache_alloc(cache, 0) == objects[cpu]);
        }
        cache_total(cache, &totals);
        check_equal(totals.inuse, MANY);
}

static uint64_t slabs_of(struct kmem_cache *cache)
{
        struct cache_totals totals;

        cache_total(cache, &totals);
        return engine_report_total(&totals.report).slabs;
}

/*
 * CPU 0 frees the objects of its pair, its stock and the barn. Objects outside the pair serve CPU 1
 * without a new slab if both CPUs are of one node; a further object needs a new slab.
 */
static void leave_behind(unsigned int nodes)
{
        static void *objects[1000];
        struct kmem_cache *cache;
        unsigned int outside;
        unsigned int count;
        uint64_t slabs;

        start(2, nodes);
        cache = kmem_cache_create("first", 512, 0, 0, NULL);
        sim_set_cpu(1);
        kmem_cache_free(cache, kmem_cache_alloc(cache, 0)); /* two slots: barns are in use */
        sim_set_cpu(0);
        cache = kmem_cache_create("left", 512, 0, 0, NULL);
        outside = cache->sheaf_capacity * (cache->stock_max + barn_full_max(cache->barn));
        count = outside + 2 * cache->sheaf_capacity;
        check(cache->stock_max > 0 && count <= 1000);
        for (unsigned int i = 0; i < count; i++)
                objects[i] = kmem_cache_alloc(cache, 0);
        for (unsigned int i = 0; i < count; i++)
                kmem_cache_free(cache, objects[i]);
        slabs = slabs_of(cache);
        sim_set_cpu(1);
        for (unsigned int i = 0; i < outside; i++)
                check(kmem_cache_alloc(cache, 0));
        check_equal(slabs_of(cache) > slabs, nodes > 1);
        slabs = slabs_of(cache);
        if (nodes == 1) {
                check(kmem_cache_alloc(cache, 0));
                check(slabs_of(cache) > slabs);
        }
}

static void child_left_behind(void)
{
        leave_behind(1);
}

static void child_left_on_another_node(void)
{
        leave_behind(2);
}

static void stocks_of_others(void **state)
{
        child_passes("left_behind", "");
        child_passes("left_on_another_node", "");
}

static void slots_are_apart(void **state)
{
        child_passes("slots", "");
}

/* S12-01, S13-11: objects that a CPU kept come back and serve other CPUs. */
static void child_leaves(void)
{
        struct kmem_cache *cache;
        struct cache_totals totals;
        struct engine_node_report total;
        void *objects[100];

        start(2, 1);
        cache = kmem_cache_create("leaves", 256, 0, 0, NULL);
        sim_set_cpu(1);
        for (unsigned int i = 0; i < 100; i++)
                objects[i] = kmem_cache_alloc(cache, 0);
        for (unsigned int i = 0; i < 100; i++)
                kmem_cache_free(cache, objects[i]);
        cache_total(cache, &totals);
        check(!cache->sheaf_capacity || totals.resting > 0);
        check(cache->sheaf_capacity || engine_report_total(&totals.report).cpu_slabs > 0);

        check_equal(sim_cpu_online(1, false), EBUSY);
        sim_set_cpu(0);
        check_equal(sim_cpu_online(1, false), 0);
        check_equal(sim_cpu_online(1, false), 0);
        check_equal(sim_cpu_online(2, true), EINVAL);
        cache_total(cache, &totals);
        check_equal(totals.resting, 0);
        total = engine_report_total(&totals.report);
        check_equal(total.cpu_slabs, 0);
        check_equal(totals.inuse, 0);
        if (cache->engine == &slub_engine)
                check_equal(total.listed_free, total.objects);
        for (unsigned int i = 0; i < 100; i++)
                check(kmem_cache_alloc(cache, 0) != NULL);
        cache_total(cache, &totals);
        check_equal(totals.inuse, 100);
        check_equal(sim_cpu_online(1, true), 0);
        sim_set_cpu(1);
        check(kmem_cache_alloc(cache, 0) != NULL);
}

/* S3-11: orders follow the CPUs that are online when the cache is made. */
static void child_orders(void)
{
        struct kmem_cache *many;
        struct kmem_cache *few;

        start(MANY, 1);
        many = kmem_cache_create("many", 512, 0, 0, NULL);
        for (unsigned int cpu = 1; cpu < MANY; cpu++)
                check_equal(sim_cpu_online(cpu, false), 0);
        few = kmem_cache_create("few", 512, 0, 0, NULL);
        check_equal(system_cpus(CPUS_ONLINE), 1);
        /* S3-13: 4 * (fls(256) + 1) = 40 and 4 * (fls(1) + 1) = 8 objects at least. */
        check(many->objects >= 40 || many->order == 3);
        check(few->objects >= 8);
        check(few->order < many->order || PAGE_SIZE / 512 >= 40);
}

/*
 * A CPU that leaves is still present, offline; a CPU that was not there before adds to the present
 * CPUs.
 */
static void child_present(void)
{
        const struct sim_machine machine = {.cpus_online = 2,
                                            .cpus_present = 3,
                                            .cpus_possible = 6,
                                            .options = given_options()};

        check_equal(sim_start(&machine), 0);
        sim_set_cpu(1);
        check_equal(sim_cpu_online(0, false), 0);
        check_equal(sim_cpu_online(2, true), 0);
        check_equal(system_cpus(CPUS_PRESENT), 3);
        check_equal(sim_cpu_online(4, true), 0);
        check_equal(system_cpus(CPUS_PRESENT), 4);
        check_equal(sim_cpu_online(4, false), 0);
        check_equal(sim_cpu_online(4, true), 0);
        check_equal(sim_cpu_online(0, true), 0);
        check_equal(system_cpus(CPUS_PRESENT), 4);
}

/*
 * S6-63: the free limit follows the CPUs of the node, and the last CPU to leave empties its arrays.
 */
static void child_slab_node(void)
{
        struct kmem_cache *cache;
        struct slab_cache *data;
        void *objects[200];

        start(4, 2);
        cache = kmem_cache_create("slabs", 256, 0, 0, NULL);
        data = slab_data(cache);
        check_equal(data->node[1].free_limit, 3 * (uint64_t)cache->batchcount + cache->objects);
        sim_set_cpu(3);
        check_equal(sim_node_of(3), 1);
        for (unsigned int i = 0; i < 200; i++)
                objects[i] = kmem_cache_alloc(cache, 0);
        for (unsigned int i = 0; i < 200; i++)
                kmem_cache_free(cache, objects[i]);
        check(data->node[1].shared->available > 0);
        sim_set_cpu(0);
        check_equal(sim_cpu_online(3, false), 0);
        check_equal(data->node[1].free_limit, 2 * (uint64_t)cache->batchcount + cache->objects);
        check(data->node[1].shared->available > 0);
        check_equal(sim_cpu_online(2, false), 0);
        check_equal(data->node[1].free_limit, (uint64_t)cache->batchcount + cache->objects);
        check_equal(data->node[1].shared->available, 0);
        check_equal(cache->node[1].slabs, 0);
        check_equal(sim_cpu_online(2, true), 0);
        check_equal(data->node[1].free_limit, 2 * (uint64_t)cache->batchcount + cache->objects);
}

static void cpus_come_and_leave(void **state)
{
        child_passes("leaves", "engine=slub");
        child_passes("leaves", "engine=slub,sheaf_capacity=0");
        child_passes("leaves", "engine=slab");
        child_passes("orders", "order_cpus=online");
        child_passes("slab_node", "engine=slab");
        child_passes("present", "");
}

/* S12-04: pages and partial slabs of the own node first, others before a new slab. */
static void child_nodes(void)
{
        struct kmem_cache *cache;
        void *object[2];
        void *again;

        start(2, 2);
        cache = kmem_cache_create("nodes", 1024, 0, 0, NULL);
        cache->min_partial = 0; /* S12-07: other nodes leave alone the slabs that a node keeps */
        for (unsigned int cpu = 0; cpu < 2; cpu++) {
                sim_set_cpu(cpu);
                object[cpu] = kmem_cache_alloc(cache, 0);
                check_equal(page_at(address_page(object[cpu]))->node, cpu);
        }
        kmem_cache_shrink(cache); /* both slabs are on their nodes' lists now */
        check_equal(cache->node[0].partial.length, 1);
        check_equal(cache->node[1].partial.length, 1);
        sim_set_cpu(1);
        again = kmem_cache_alloc(cache, 0);
        check_equal(page_at(address_page(again))->node, 1);
        check_equal(cache->node[0].partial.length, 1);
        /* When its own is used up, node 1 takes the slab of node 0. */
        while (cache->node[0].partial.length) {
                again = kmem_cache_alloc(cache, 0);
                check_equal(cache->node[0].slabs + cache->node[1].slabs, 2);
        }
        check_equal(page_at(address_page(again))->node, 0);
}

/*
 * Each node has its own pages. A node hands out its share (option node_limit) to its CPUs and to
 * wishes; then the next node's pages come. A full node refuses __GFP_THISNODE. All pages go home.
 */
static void child_zones(void)
{
        enum { CHUNKS = 2, NODES = 8 };
        unsigned int object_bytes = (unsigned int)sim_page_bytes();
        size_t most = CHUNKS * CHUNK_PAGES;
        static void *object[NODES][CHUNKS * CHUNK_PAGES + 1];
        struct kmem_cache *cache;
        struct page_counts counts;
        size_t count[NODES] = {0};

        start(16, NODES);
        cache = kmem_cache_create("zones", object_bytes, object_bytes, 0, NULL);
        for (unsigned int node = 0; node < NODES; node++) {
                sim_set_cpu((2 * node + 5) % 16); /* another node's */
                while ((object[node][count[node]] = kmem_cache_alloc_node(
                                cache, __GFP_THISNODE | __GFP_NOWARN, (int)node))) {
                        uint32_t page = address_page(object[node][count[node]]);

                        check_equal(zone_of(page)->node, node);
                        count[node]++;
                        check(count[node] <= most);
                }
                check_equal(errno, ENOMEM);
                pages_count_node(node, &counts);
                check(counts.accessible_pages == most && counts.free_pages < 16);
                for (unsigned int other = node + 1; other < NODES; other++) {
                        pages_count_node(other, &counts);
                        check(counts.used_pages < most / 2);
                }
        }
        sim_set_cpu(6); /* of node 3 */
        check(!kmem_cache_alloc(cache, __GFP_NOWARN));
        while (count[5] > most / 2)
                kmem_cache_free(cache, object[5][--count[5]]);
        kmem_cache_shrink(cache);
        object[5][count[5]] = kmem_cache_alloc(cache, 0);
        check_equal(zone_of(address_page(object[5][count[5]++]))->node, 5);
        for (unsigned int node = 0; node < NODES; node++)
                while (count[node])
                        kmem_cache_free(cache, object[node][--count[node]]);
        check_equal(kmem_cache_shrink(cache), 0);
        kmem_cache_destroy(cache);
        for (unsigned int node = 0; node < NODES; node++) {
                pages_count_node(node, &counts);
                check(counts.used_pages <= 64); /* the library's own caches */
        }
}

static void nodes_have_zones(void **state)
{
        char options[64];

        /* Two chunks, whatever their bytes are here. */
        snprintf(options, sizeof(options), "node_limit=%zu", 2 * order_bytes(ORDER_MAX));
        child_passes("zones", options);
        snprintf(options, sizeof(options), "engine=slab,node_limit=%zu",
                 2 * order_bytes(ORDER_MAX));
        child_passes("zones", options);
}

static void nodes_are_apart(void **state)
{
        child_passes("nodes", "sheaf_capacity=0");
}

/* ---- Clocks ------------------------------------------------------------------------------- */

enum { CLOCK_OBJECTS = 600 };

/* The other CPUs free the objects of a slab after the other, so that all lists are used. */
static void use_lists(struct kmem_cache *cache)
{
        static void *objects[CLOCK_OBJECTS];

        for (unsigned int i = 0; i < CLOCK_OBJECTS; i++) {
                sim_set_cpu(0);
                objects[i] = kmem_cache_alloc(cache, 0);
        }
        for (unsigned int i = 0; i < CLOCK_OBJECTS; i++) {
                sim_set_cpu(1 + i % 3);
                kmem_cache_free(cache, objects[i]);
        }
}

/* Without waiting, the clock is the sum of the counts, each by its cost, on any CPU. */
static void child_clocks(void)
{
        struct sim_costs costs = {.compare_swap = 2,
                                  .atomic_add = 3,
                                  .exchange = 5,
                                  .remote_word = 7,
                                  .remote_word_node = 11,
                                  .list_move = 13};
        struct sim_counts counts;
        struct kmem_cache *cache;
        uint64_t expected;

        start(4, 2);
        cache = kmem_cache_create("clocks", 512, 0, 0, NULL);
        for (int kind = 0; kind < SIM_LOCK_KINDS; kind++) {
                costs.lock[kind] = 17 + (uint32_t)kind;
                costs.handed_over[kind] = 29;
                costs.handed_over_node[kind] = 31;
        }
        sim_reset();
        sim_set_costs(&costs);
        sim_set_clock(1000);
        use_lists(cache);
        sim_counts(&counts);
        expected = 1000 + counts.compare_swaps * 2 + counts.atomic_adds * 3 + counts.exchanges * 5 +
                   counts.remote_words * 7 + counts.remote_words_node * 11 + counts.list_moves * 13;
        for (int kind = 0; kind < SIM_LOCK_KINDS; kind++)
                expected += counts.locks[kind].taken * costs.lock[kind] +
                            counts.locks[kind].handed_over * 29 +
                            counts.locks[kind].handed_over_node * 31;
        check_equal(sim_clock(), expected);
        check_equal(counts.locks[SIM_LOCK_LIST].waits, 0);
        check_or_die(counts.list_moves > 0 && counts.remote_words_node > 0);
        check_or_die(counts.locks[SIM_LOCK_LIST].hold_ps > 0 &&
                     counts.locks[SIM_LOCK_LIST].hold_ps < expected);
}

/*
 * A CPU with a clock that is behind waits until the list lock was dropped. The hand-over costs more
 * then, and still more from a CPU of another node. @asks: the CPU that frees after CPU 1.
 */
static void list_waits(unsigned int asks, bool other_node)
{
        struct sim_costs costs = {.lock[SIM_LOCK_LIST] = 10,
                                  .waited[SIM_LOCK_LIST] = 100,
                                  .waited_node[SIM_LOCK_LIST] = 1000};
        static void *objects[1000];
        struct sim_counts counts;
        const struct sim_lock_counts *list = &counts.locks[SIM_LOCK_LIST];
        struct kmem_cache *cache;

        start(4, 2);
        cache = kmem_cache_create("waits", 512, 0, 0, NULL);
        for (unsigned int i = 0; i < 3 * cache->objects; i++)
                objects[i] = kmem_cache_alloc(cache, 0);
        sim_set_costs(&costs);
        sim_reset();
        /* The first free into each full slab takes the lock of node 0. */
        sim_set_cpu(1);
        sim_set_clock(1000000);
        kmem_cache_free(cache, objects[0]);
        sim_set_cpu(asks);
        sim_set_clock(0);
        kmem_cache_free(cache, objects[cache->objects]);
        sim_counts(&counts);
        check_equal(list->taken, 2);
        check_equal(list->waits, 1);
        check_equal(list->waits_node, other_node);
        check_equal(list->wait_ps, 1000010);
        check_equal(sim_clock(), 1000010 + 100 + other_node * 1000 + 10);
}

static void child_list_waits(void)
{
        list_waits(0, false);
}

static void child_list_waits_node(void)
{
        list_waits(2, true);
}

/* More list locks come and go than can be known at once. */
static void child_many_lists(void)
{
        const struct sim_costs costs = {.lock[SIM_LOCK_LIST] = 10};

        start(4, 1);
        sim_set_costs(&costs);
        for (unsigned int i = 0; i < 40000; i++) {
                struct kmem_cache *cache = kmem_cache_create("list", 512, 0, 0, NULL);

                kmem_cache_free(cache, kmem_cache_alloc(cache, 0));
                kmem_cache_destroy(cache);
        }
}

static void clocks_add_up(void **state)
{
        (void)state;
        child_passes("clocks", "sheaf_capacity=0");
        child_passes("clocks", "sheaf_capacity=0,freeze=eager");
        child_passes("list_waits", "sheaf_capacity=0,cpu_partial=0");
        child_passes("list_waits_node", "sheaf_capacity=0,cpu_partial=0");
        child_passes("many_lists", "sheaf_capacity=0");
}

/* ---- Counts ------------------------------------------------------------------------------- */

static struct sim_counts counted(void)
{
        struct sim_counts counts;

        sim_counts(&counts);
        sim_reset();
        return counts;
}

/*
 * Without sheaves every call is a slow path: a hold of the slot cache lock for an allocation from
 * the CPU freelist and for a free into the own CPU slab (S1-30), a swap for a free into another's.
 */
static void child_counts(void)
{
        struct kmem_cache *cache;
        struct sim_counts counts;
        void *objects[4];

        start(4, 2);
        cache = kmem_cache_create("counts", 512, 0, 0, NULL);
        objects[0] = kmem_cache_alloc(cache, 0);
        sim_reset();
        for (unsigned int i = 1; i < 4; i++)
                objects[i] = kmem_cache_alloc(cache, 0);
        counts = counted();
        check_equal(counts.slow_paths, 3);
        check_equal(counts.locks[SIM_LOCK_SLOT].taken, 3);
        check_equal(counts.compare_swaps, 0);
        check_equal(counts.remote_words, 0);

        kmem_cache_free(cache, objects[0]);
        counts = counted();
        check_equal(counts.locks[SIM_LOCK_SLOT].taken, 1);
        check_equal(counts.compare_swaps, 0);

        sim_set_cpu(1); /* on this node */
        kmem_cache_free(cache, objects[1]);
        counts = counted();
        check_equal(counts.compare_swaps, 1);
        check_equal(counts.remote_words, 1);
        check_equal(counts.remote_words_node, 0);

        sim_set_cpu(3); /* the other node */
        kmem_cache_free(cache, objects[2]);
        kmem_cache_free(cache, objects[3]);
        counts = counted();
        check_equal(counts.compare_swaps, 2);
        check_equal(counts.remote_words, 1);
        check_equal(counts.remote_words_node, 1);
        check_equal(counts.fences, 0);

        kmem_cache_shrink(cache);
        counts = counted();
        check_equal(counts.fences, 2); /* INV-4 */
}

/* A lock's line moves when another CPU takes it, but not when its last CPU takes it again. */
static void child_hand_overs(void)
{
        struct kmem_cache *cache;
        struct sim_counts counts;
        struct sim_lock_place place;
        uint64_t taken = 0;
        bool named = false;

        start(4, 2);
        cache = kmem_cache_create("locks", 512, 0, 0, NULL);
        check(kmem_cache_alloc(cache, 0) != NULL);
        sim_reset();
        kmem_cache_free(cache, kmem_cache_alloc(cache, 0));
        kmem_cache_free(cache, kmem_cache_alloc(cache, 0));
        counts = counted();
        check_equal(counts.locks[SIM_LOCK_SLOB].taken, 6); /* two looks for idle objects */
        check_equal(counts.locks[SIM_LOCK_SLOB].handed_over, 0);
        for (unsigned int cpu = 1; cpu < 4; cpu++) {
                sim_set_cpu(cpu);
                kmem_cache_free(cache, kmem_cache_alloc(cache, 0));
        }
        counts = counted();
        check_equal(counts.locks[SIM_LOCK_SLOB].taken, 9);
        check_equal(counts.locks[SIM_LOCK_SLOB].handed_over, 3);
        check_equal(counts.locks[SIM_LOCK_SLOB].handed_over_node, 1);

        kmem_cache_free(cache, kmem_cache_alloc(cache, 0));
        for (size_t number = 0; sim_lock_place(number, &place); number++) {
                named |= strcmp(place.lock, "&slob_lock") == 0 && place.counts.taken &&
                         place.kind == SIM_LOCK_SLOB && strstr(place.file, "slob/") && place.line;
                taken += place.counts.taken;
        }
        check(named);
        check_equal(taken, 3);
}

/* The machine's counts are the costs that the back end states for its transitions (S1.7). */
static void child_costs(void)
{
        struct kmem_cache *cache;
        struct sim_counts counts;
        uint64_t sums[SLUB_COSTS] = {0};

        start(16, 2);
        cache = kmem_cache_create("costs", PAGE_SIZE / 20, 0, 0, NULL);
        kmem_cache_free(cache, kmem_cache_alloc(cache, 0));
        sim_reset();
        run_mix(cache, 5);
        sim_counts(&counts);
        for (unsigned int number = 0; number < slots_made_count(); number++) {
                const struct slub_counters *counters =
                        slot_peek(slot_made(number), cache_index(cache))->engine.counters;

                for (unsigned int way = 0; way < SLUB_TRANSITIONS; way++)
                        for (unsigned int cost = 0; cost < SLUB_COSTS; cost++)
                                sums[cost] += counters->cost[way][cost];
        }
        check(sums[COST_SWAPS] > 1000 && sums[COST_LIST_LOCKS] > 10);
        check_equal(counts.compare_swaps, sums[COST_SWAPS]);
        check_equal(counts.locks[SIM_LOCK_LIST].taken, sums[COST_LIST_LOCKS]);
        check(counts.remote_words > 1000);
}

/* T21: a call is a hold of list_lock and no swap; nothing but T21 happens. */
static void child_debug_costs(void)
{
        struct kmem_cache *cache;
        struct sim_counts counts;
        uint64_t sums[SLUB_COSTS] = {0};
        uint64_t calls = 0;

        start(16, 2);
        cache = kmem_cache_create("costs", PAGE_SIZE / 20, 0, 0, NULL);
        check(cache->engine == &debug_engine);
        kmem_cache_free(cache, kmem_cache_alloc(cache, 0));
        for (unsigned int number = 0; number < slots_made_count(); number++)
                if (slot_peek(slot_made(number), cache_index(cache)))
                        memset(slot_peek(slot_made(number), cache_index(cache))->engine.counters, 0,
                               sizeof(struct slub_counters));
        sim_reset();
        run_mix(cache, 5);
        sim_counts(&counts);
        for (unsigned int number = 0; number < slots_made_count(); number++) {
                const struct slub_counters *counters =
                        slot_peek(slot_made(number), cache_index(cache))->engine.counters;

                for (unsigned int cost = 0; cost < SLUB_COSTS; cost++)
                        sums[cost] += counters->cost[DEBUG_CALL][cost];
                calls += counters->event[ALLOC_SLOWPATH] + counters->event[FREE_SLOWPATH];
        }
        check_equal(calls, 100000);
        check_equal(sums[COST_TIMES], calls);
        check_equal(sums[COST_LIST_LOCKS], calls);
        check_equal(sums[COST_SWAPS], 0);
        check_equal(counts.compare_swaps, 0);
        check_equal(counts.locks[SIM_LOCK_LIST].taken, calls);
        check_equal(counts.locks[SIM_LOCK_SLOT].taken, 0);
        check_equal(counts.locks[SIM_LOCK_BARN].taken, 0);
        check_equal(cache->debug_errors, 0);
}

static void counts_are_exact(void **state)
{
        child_passes("debug_costs", "debug=FZP,stats=1,slub_max_order=0");
        child_passes("debug_costs", "debug=U,stats=1,min_partial=0,freeze=eager");
        child_passes("costs", "sheaf_capacity=0,stats=1,slub_max_order=0");
        child_passes("costs", "sheaf_capacity=0,stats=1,slub_max_order=0,freeze=eager");
        child_passes("costs", "sheaf_capacity=0,stats=1,slub_max_order=0,cpu_partial=0");
        child_passes("counts", "sheaf_capacity=0");
        child_passes("hand_overs", "engine=slob");
}

/* Gigabytes of objects cost descriptors, the page map and index tables, and none of their memory. */
static void child_untouched(void)
{
        struct sim_machine machine = {.cpus_online = 8, .memory_bytes = (uint64_t)64 << 30};
        const uint64_t bytes = (uint64_t)16 << 30;
        struct kmem_cache *cache;
        long resident = 0;
        FILE *file;

        check_equal(sim_start(&machine), 0);
        cache = kmem_cache_create("untouched", 4096, 0, 0, NULL);
        for (uint64_t i = 0; i < bytes / 4096; i++) {
                sim_set_cpu(i & 7);
                check(kmem_cache_alloc(cache, 0) != NULL);
        }
        file = fopen("/proc/self/statm", "r");
        check(file && fscanf(file, "%*d %ld", &resident) == 1);
        check((uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE) < bytes / 40);
}

static void memory_is_left_alone(void **state)
{
        if (under_qemu())
                skip_because("gigabytes do not fit in the address space of the emulated machine");
        child_passes("untouched", "");
}

static unsigned int called;

static void callback(struct kmem_rcu_head *head)
{
        called++;
}

/* Grace periods end at once where nobody reads; without a thread, callbacks wait for a barrier. */
static void child_rcu(void)
{
        struct kmem_rcu_head head;
        struct kmem_cache *cache;
        void *objects[64];

        start(4, 1);
        kmem_call_rcu(&head, callback);
        check_equal(called, 0);
        kmem_rcu_barrier();
        check_equal(called, 1);
        cache = kmem_cache_create("safe", 1000, 0, SLAB_TYPESAFE_BY_RCU, NULL);
        for (unsigned int i = 0; i < 64; i++) {
                sim_set_cpu(i % 4);
                objects[i] = kmem_cache_alloc(cache, 0);
        }
        for (unsigned int i = 0; i < 64; i++)
                kmem_cache_free(cache, objects[i]);
        kmem_cache_destroy(cache);
}

static void grace_periods(void **state)
{
        child_passes("rcu", "engine=slub");
        child_passes("rcu", "engine=slab");
        child_passes("rcu", "engine=slob");
}

/* Each size class, and each of requests that are charged, whatever a page has room for. */
static void child_slob_classes(void)
{
        const struct sim_machine machine = {.options = "engine=slob,classes=fine"};

        check_equal(sim_start(&machine), 0);
        kmem_group_set(kmem_group_create("group", NULL, 0));
        check(kmem_group_current() != NULL);
        for (size_t size = 8; size <= PAGE_SIZE; size += 8) {
                check(kmalloc(size, GFP_KERNEL) != NULL);
                check(kmalloc(size, GFP_KERNEL_ACCOUNT) != NULL);
        }
}

static void slob_has_all_classes(void **state)
{
        child_passes("slob_classes", "");
}

/* ---- Refusals ------------------------------------------------------------------------------ */

static void child_bad_machines(void)
{
        struct sim_machine machine = {.cpus_online = 4, .cpus_present = 3};

        check_equal(sim_start(&machine), EINVAL);
        machine = (struct sim_machine){.cpus_online = 4, .cpus_possible = 2};
        check_equal(sim_start(&machine), EINVAL);
        machine = (struct sim_machine){.cpus_online = SIM_CPUS_MAX + 1};
        check_equal(sim_start(&machine), EINVAL);
        machine = (struct sim_machine){.cpus_online = 2, .nodes = 3};
        check_equal(sim_start(&machine), EINVAL);
        check_equal(sim_start(NULL), 0);
        check_equal(sim_start(NULL), EBUSY);
        check_equal(sim_page_bytes(), PAGE_SIZE);
        check_equal(system_cpus(CPUS_POSSIBLE), 1);
}

static void child_too_early(void)
{
        kmalloc(10, 0);
}

static void child_offline(void)
{
        sim_start(NULL);
        sim_set_cpu(1);
}

static void child_backwards(void)
{
        sim_start(NULL);
        sim_time_set(sim_time() - 1);
}

static void child_held(void)
{
        sim_start(NULL);
        lock_take(&cache_mutex);
        kmem_cache_create("held", 10, 0, 0, NULL);
}

static void child_aligned(void)
{
        sim_start(NULL);
        check(kmem_cache_create("aligned", 64, (unsigned int)PAGE_SIZE, 0, NULL) != NULL);
        check(kmem_cache_create("above", 64, 2 * (unsigned int)PAGE_SIZE, 0, NULL) == NULL);
}

/* An object may be aligned to a page of the machine, and the message says how large that is. */
static void alignment_bound(void **state)
{
        char text[60];

        snprintf(text, sizeof(text), "a power of two up to %zu\n", PAGE_SIZE);
        child_prints("aligned", "", text);
}

static char element[64];
static unsigned int elements = 1;

static void *element_alloc(gfp_t flags, void *pool_data)
{
        return elements ? elements--, element : NULL;
}

static void element_free(void *block, void *pool_data)
{
        elements++;
}

/* A second element can only come from another thread. */
static void child_waits(void)
{
        mempool_t *pool;

        sim_start(NULL);
        pool = mempool_create(1, element_alloc, element_free, NULL);
        check(pool != NULL);
        check(mempool_alloc(pool, GFP_KERNEL) != NULL);
        mempool_alloc(pool, GFP_KERNEL);
}

static void wrong_use_ends(void **state)
{
        child_prints("bad_machines", "", "cpus_present is less than cpus_online");
        child_prints("bad_machines", "", "cpus_possible is less than cpus_present");
        child_prints("bad_machines", "", "expected at most 8192 possible CPUs");
        child_prints("bad_machines", "", "no more than possible CPUs");
        child_prints("bad_machines", "", "has been started already");
        child_aborts("too_early", "", "call sim_start first");
        child_aborts("offline", "", "sim_set_cpu(1): expected an online CPU");
        child_aborts("backwards", "", "expected no time before the present one");
        child_aborts("held", "", "&cache_mutex is held already");
        child_aborts("waits", "", "this call waits for another thread");
}

int main(int argc, char **argv)
{
        static const struct child_case cases[] = {
                {"1_cpu", child_1_cpu},
                {"2_cpus", child_2_cpus},
                {"64_cpus", child_64_cpus},
                {"256_cpus", child_256_cpus},
                {"run_1", child_run_1},
                {"run_2", child_run_2},
                {"slots", child_slots},
                {"left_behind", child_left_behind},
                {"left_on_another_node", child_left_on_another_node},
                {"leaves", child_leaves},
                {"orders", child_orders},
                {"slab_node", child_slab_node},
                {"present", child_present},
                {"nodes", child_nodes},
                {"zones", child_zones},
                {"clocks", child_clocks},
                {"list_waits", child_list_waits},
                {"list_waits_node", child_list_waits_node},
                {"many_lists", child_many_lists},
                {"counts", child_counts},
                {"hand_overs", child_hand_overs},
                {"costs", child_costs},
                {"debug_costs", child_debug_costs},
                {"untouched", child_untouched},
                {"rcu", child_rcu},
                {"slob_classes", child_slob_classes},
                {"bad_machines", child_bad_machines},
                {"too_early", child_too_early},
                {"offline", child_offline},
                {"backwards", child_backwards},
                {"held", child_held},
                {"aligned", child_aligned},
                {"waits", child_waits},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(model_1_cpu),      cmocka_unit_test(model_2_cpus),
                cmocka_unit_test(model_64_cpus),    cmocka_unit_test(model_256_cpus),
                cmocka_unit_test(same_twice),       cmocka_unit_test(slots_are_apart),
                cmocka_unit_test(stocks_of_others), cmocka_unit_test(cpus_come_and_leave),
                cmocka_unit_test(nodes_are_apart),  cmocka_unit_test(nodes_have_zones),
                cmocka_unit_test(counts_are_exact), cmocka_unit_test(memory_is_left_alone),
                cmocka_unit_test(grace_periods),    cmocka_unit_test(alignment_bound),
                cmocka_unit_test(clocks_add_up),    cmocka_unit_test(slob_has_all_classes),
                cmocka_unit_test(wrong_use_ends),
        };

        child_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
