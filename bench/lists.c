/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Measures how many slabs CPU partial lists hold under each accounting rule, and the cost, for
 * `kmem lab lists`. Writes a JSON document to standard output.
 *
 *   lists [slabs=N]
 *
 * There is a cache for each rule, freeze scheme and object size, with sheaf_capacity=0. A single
 * CPU runs the same pattern on each: slabs are filled, then the first object of each is freed, then
 * its other objects. A slab joins the list with its first free object, and the objects rule counts
 * just this object, however many follow.
 *
 * Figures of a row, all as the back end has them, none timed:
 *  - `charged_object`: bytes that a group is charged for an object, its stride and a pointer;
 *  - `limit_objects`, `limit_slabs`: the cache's limits (cpu_partial, and the slabs that result
 *    from it);
 *  - with N slabs (200), that are filled once more at the end: `longest`, slabs on the CPU partial
 *    list at most; `list_locks`, `swaps`, `swaps_locked`: holds of list_lock, compare-and-swaps on
 *    slabs, and the part of these under list_lock;
 *  - with as many slabs as the longest list, after each step (`one_free`, `all_free`): `listed`
 *    slabs on the CPU partial list, of these `listed_empty` without an object in use; `slabs` that
 *    the cache has, the CPU slab included; `wasted_bytes`, free objects by stride in all slabs;
 *    `slab_bytes`, the pages of all slabs, which a group paid when it was charged by the page;
 *    `charged_bytes`, the present charge of the objects' memory group, which is by the object.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kmem.h>

#include "introspect/counters.h"
#include "introspect/totals.h"
#include "engines/slub/slab.h"

enum { SLABS_MOST = 4000, OBJECTS_MOST = 512 };

static const unsigned int sizes[] = {64, 128, 256, 512, 1024, 2048, 4096};

static const struct {
        const char *prefix;
        const char *accounting;
        const char *defaults;
        const char *freeze;
} policies[] = {
        {"a", "objects", "seed", "eager"},  /* to 5.15 */
        {"b", "slabs", "seed", "eager"},    /* the patch alone */
        {"c", "slabs", "later", "eager"},   /* 5.16 to 6.7 */
        {"d", "slabs", "later", "delayed"}, /* since then */
        {"e", "objects", "later", "delayed"},
};

enum { POLICIES = sizeof(policies) / sizeof(policies[0]) };

static void *objects[SLABS_MOST][OBJECTS_MOST];
static unsigned int slab_count = 200;

static void die(const char *what)
{
        fprintf(stderr, "lists: %s\n", what);
        exit(1);
}

/* Options are read once, when the library starts: the program starts itself again with them. */
static void start_with_options(char **argv)
{
        char text[2000] = "sheaf_capacity=0,stats=1";

        if (getenv("KMEM_LISTS_STARTED"))
                return;
        for (unsigned int i = 0; i < POLICIES; i++)
                snprintf(text + strlen(text), sizeof(text) - strlen(text),
                         ",%s-*.cpu_partial_accounting=%s,%s-*.cpu_partial_defaults=%s,"
                         "%s-*.freeze=%s",
                         policies[i].prefix, policies[i].accounting, policies[i].prefix,
                         policies[i].defaults, policies[i].prefix, policies[i].freeze);
        setenv("KMEM_LISTS_STARTED", "1", 1);
        setenv("KMEM_OPTIONS", text, 1);
        execv("/proc/self/exe", argv);
        die("cannot start again");
}

/*
 * Keeps the program on a CPU, so that a single slot, with a single CPU partial list, sees all
 * calls.
 */
static void stay_on_one_cpu(void)
{
        int cpu = sched_getcpu();
        cpu_set_t one;

        CPU_ZERO(&one);
        CPU_SET((size_t)(cpu < 0 ? 0 : cpu), &one);
        if (sched_setaffinity(0, sizeof(one), &one))
                die("sched_setaffinity failed");
}

static uint64_t listed_slabs(struct kmem_cache *cache)
{
        struct cpu_partial_figures figures;

        cpu_partial_sum(cache, &figures);
        return figures.slabs;
}

/* Slabs of the CPU partial lists with no object in use. */
static unsigned int listed_empty(struct kmem_cache *cache)
{
        unsigned int empty = 0;

        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                struct slot *slot = number ? slot_made(number - 1) : &shared_slot;
                struct slot_cache *record = slot_peek(slot, cache_index(cache));

                for (uint32_t slab = record ? record->engine.partial : 0; slab;
                     slab = page_at(slab)->next)
                        empty += state_unpack(page_at(slab)->state).inuse == 0;
        }
        return empty;
}

static void print_state(struct kmem_cache *cache, struct kmem_group *group, const char *name,
                        const char *separator)
{
        struct cache_totals totals;
        struct engine_node_report nodes;
        struct kmem_group_stats stats;

        cache_total(cache, &totals);
        nodes = engine_report_total(&totals.report);
        if (kmem_group_stats(group, &stats))
                die("kmem_group_stats failed");
        printf("   \"%s\": {\"listed\": %lu, \"listed_empty\": %u, \"slabs\": %lu, "
               "\"wasted_bytes\": %lu, \"slab_bytes\": %lu, \"charged_bytes\": %zu}%s\n",
               name, (unsigned long)listed_slabs(cache), listed_empty(cache),
               (unsigned long)nodes.slabs,
               (unsigned long)((nodes.objects - totals.inuse) * cache->size),
               (unsigned long)(nodes.slabs * order_bytes(cache->order)), stats.bytes, separator);
}

static uint64_t cost(struct kmem_cache *cache, enum slub_cost which)
{
        uint64_t sum = 0;

        for (unsigned int transition = 0; transition < SLUB_TRANSITIONS; transition++) {
                uint64_t costs[SLUB_COSTS];

                counters_cost(cache, (enum slub_transition)transition, costs);
                sum += costs[which];
        }
        return sum;
}

static void *take(struct kmem_cache *cache)
{
        void *object = kmem_cache_alloc(cache, GFP_KERNEL);

        if (!object)
                die("out of memory");
        return object;
}

static void fill(struct kmem_cache *cache, unsigned int slabs)
{
        for (unsigned int slab = 0; slab < slabs; slab++)
                for (unsigned int i = 0; i < cache->objects; i++)
                        objects[slab][i] = take(cache);
}

static void empty(struct kmem_cache *cache, unsigned int slabs, unsigned int from)
{
        for (unsigned int slab = 0; slab < slabs; slab++)
                for (unsigned int i = from; i < cache->objects; i++)
                        kmem_cache_free(cache, objects[slab][i]);
}

/* Frees an object of each slab; returns the length of the list at its longest. */
static unsigned int free_first(struct kmem_cache *cache, unsigned int slabs)
{
        uint64_t longest = 0;

        for (unsigned int slab = 0; slab < slabs; slab++) {
                uint64_t listed;

                kmem_cache_free(cache, objects[slab][0]);
                listed = listed_slabs(cache);
                longest = listed > longest ? listed : longest;
        }
        return (unsigned int)longest;
}

/* Prints the row's first part; returns the length of the longest list. */
static unsigned int run_all(struct kmem_cache *cache)
{
        unsigned int longest;

        fill(cache, slab_count);
        counters_reset_all(cache);
        longest = free_first(cache, slab_count);
        empty(cache, slab_count, 1);
        fill(cache, slab_count);
        printf("   \"longest\": %u, \"list_locks\": %lu, \"swaps\": %lu, \"swaps_locked\": "
               "%lu,\n",
               longest, (unsigned long)cost(cache, COST_LIST_LOCKS),
               (unsigned long)cost(cache, COST_SWAPS),
               (unsigned long)cost(cache, COST_SWAPS_LOCKED));
        empty(cache, slab_count, 0);
        kmem_cache_shrink(cache);
        return longest;
}

static void run_longest(struct kmem_cache *cache, struct kmem_group *group, unsigned int longest)
{
        void *last;

        fill(cache, longest);
        last = take(cache); /* so that the CPU slab is a slab beside them */
        free_first(cache, longest);
        print_state(cache, group, "one_free", ",");
        empty(cache, longest, 1);
        print_state(cache, group, "all_free", "");
        kmem_cache_free(cache, last);
}

static void run(unsigned int policy, unsigned int size, bool last)
{
        char name[64];
        struct kmem_group *group;
        struct kmem_cache *cache;

        snprintf(name, sizeof(name), "%s-%u", policies[policy].prefix, size);
        cache = kmem_cache_create(name, size, 0, SLAB_ACCOUNT, NULL);
        group = kmem_group_create(name, NULL, 0);
        if (!cache || !group)
                die("out of memory");
        if (cache->objects > OBJECTS_MOST)
                die("a slab has too many objects");
        kmem_group_set(group);
        printf("  {\"accounting\": \"%s\", \"defaults\": \"%s\", \"freeze\": \"%s\", "
               "\"size\": %u, \"charged_object\": %zu, \"objects_per_slab\": %u,\n"
               "   \"limit_objects\": %u, \"limit_slabs\": %u,\n",
               policies[policy].accounting, policies[policy].defaults, policies[policy].freeze,
               size, (size_t)cache->size + sizeof(void *), cache->objects, cache->cpu_partial,
               cache->cpu_partial_slabs);
        run_longest(cache, group, run_all(cache));
        printf("  }%s\n", last ? "" : ",");
        kmem_group_set(NULL);
        kmem_group_destroy(group);
        kmem_cache_destroy(cache);
}

int main(int argc, char **argv)
{
        if (argc == 2 && sscanf(argv[1], "slabs=%u", &slab_count) == 1 && slab_count > 0 &&
            slab_count <= SLABS_MOST)
                argc = 1;
        if (argc != 1) {
                fprintf(stderr, "usage: lists [slabs=N], N from 1 to %d\n", SLABS_MOST);
                return 2;
        }
        start_with_options(argv);
        stay_on_one_cpu();
        printf("{\"slabs\": %u, \"rows\": [\n", slab_count);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
                for (unsigned int policy = 0; policy < POLICIES; policy++)
                        run(policy, sizes[i],
                            policy + 1 == POLICIES && i + 1 == sizeof(sizes) / sizeof(sizes[0]));
        printf("]}\n");
        return 0;
}
