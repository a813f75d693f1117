/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * SLAB against a model: batches are taken, given back and flushed through several CPU records, on
 * every node there is, while the reaper runs and caches are shrunk. The model is the set of objects
 * that are out: none may come twice, none may be lost, and a walk over all slabs follows each step.
 * Built with a single node and with two.
 */
#include "child.h"
#include "walk_slab.h"

#include "percpu/percpu.h"
#include "engines/slab/slab.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 5, OUT_MAX = 3000, BATCH_MAX = 150, STEPS = 1000 };

static struct kmem_cache *cache;
static struct engine_slot slots[SLOTS];
static void *out[OUT_MAX];
static unsigned int out_count;
static uint64_t random_state;
static uint64_t now_ms;
static uint32_t this_node;

uint32_t slab_local_node(void)
{
        return this_node;
}

static unsigned int random_below(unsigned int limit)
{
        return (unsigned int)(random_step(&random_state) % limit);
}

static int compare(const void *a, const void *b)
{
        uintptr_t left = *(const uintptr_t *)a;
        uintptr_t right = *(const uintptr_t *)b;

        return left < right ? -1 : left > right;
}

static void check_distinct(void)
{
        static void *sorted[OUT_MAX];

        memcpy(sorted, out, out_count * sizeof(*out));
        qsort(sorted, out_count, sizeof(*sorted), compare);
        for (unsigned int i = 1; i < out_count; i++)
                check((char *)sorted[i] - (char *)sorted[i - 1] >= (ptrdiff_t)cache->size);
}

static void step_take(void)
{
        unsigned int count = 1 + random_below(random_below(4) ? 30 : BATCH_MAX);
        unsigned int taken;

        if (count > OUT_MAX - out_count)
                return;
        taken = cache->engine->take(cache, &slots[random_below(SLOTS)], out + out_count, count);
        check(taken >= 1 && taken <= count);
        for (unsigned int i = out_count; i < out_count + taken; i++) {
                check_equal((uintptr_t)out[i] % cache->align, 0);
                if (cache->ctor)
                        check_equal(*(uint32_t *)out[i], 0xc0ffee);
                else
                        memset(out[i], 0xe5, cache->object_size);
        }
        out_count += taken;
        check_distinct();
}

static void step_back(void)
{
        struct engine_slot *slot = &slots[random_below(SLOTS)];
        unsigned int count = random_below(random_below(4) ? 30 : BATCH_MAX);
        void *batch[BATCH_MAX];

        count = min_of(count, out_count);
        for (unsigned int i = 0; i < count; i++) {
                unsigned int chosen = random_below(out_count);

                batch[i] = out[chosen];
                out[chosen] = out[--out_count];
        }
        if (!count)
                return;
        if (random_below(2))
                cache->engine->flush(cache, slot, batch, count);
        else
                cache->engine->give(cache, slot, batch, count);
}

static void step_reap(void)
{
        now_ms += random_below(3000);
        cache->engine->reap(cache, now_ms);
}

static void check_all(void)
{
        struct walk_slab_counts counts;
        struct engine_report report = {0};
        struct engine_node_report nodes;

        walk_slab_cache(cache, &counts);
        check_equal(counts.active - counts.arrays, out_count);
        check(!counts.above_limit);
        cache->engine->report(cache, &report);
        for (unsigned int slot = 0; slot < SLOTS; slot++)
                cache->engine->report_slot(cache, &slots[slot], &report);
        check_equal(report.taken - report.given, out_count);
        nodes = engine_report_total(&report);
        check_equal(nodes.objects - counts.active, nodes.listed_free);
        check_equal(nodes.partial_inuse, counts.active - counts.full * cache->objects);
        check_equal(nodes.partial_slabs, counts.partial);
        check_equal(report.free_slabs, counts.free);
        check_equal(nodes.slabs, counts.full + counts.partial + counts.free);
}

/* Objects are all back: shrink leaves no slab. */
static void check_end(void)
{
        struct walk_slab_counts counts;
        bool remain;

        while (out_count)
                step_back();
        remain = kmem_cache_shrink(cache);
        walk_slab_cache(cache, &counts);
        check_equal(counts.active, 0);
        check(!remain && !counts.free);
}

static void play(unsigned int size, slab_flags_t flags, void (*ctor)(void *))
{
        memset(slots, 0, sizeof(slots));
        cache = kmem_cache_create("model", size, 0, flags, ctor);
        check(cache && cache->engine == &slab_engine);
        for (unsigned int step = 0; step < STEPS; step++) {
                unsigned int choice = random_below(100);

                this_node = random_below(system_nodes());
                if (choice < 48)
                        step_take();
                else if (choice < 90)
                        step_back();
                else if (choice < 98)
                        step_reap();
                else
                        kmem_cache_shrink(cache);
                check_all();
        }
        check_end();
        kmem_cache_destroy(cache);
}

static void constructor(void *object)
{
        *(uint32_t *)object = 0xc0ffee;
}

static void sizes(void **state)
{
        static const unsigned int all[] = {16, 48, 64, 100, 256, 700, 2048, 5000, 20000};

        for (size_t i = 0; i < array_size(all); i++)
                play(all[i], 0, NULL);
}

static void constructors(void **state)
{
        static const unsigned int all[] = {16, 96, 512, 5000};

        for (size_t i = 0; i < array_size(all); i++)
                play(all[i], 0, constructor);
}

static void type_safe(void **state)
{
        play(64, SLAB_TYPESAFE_BY_RCU, NULL);
        play(1024, SLAB_TYPESAFE_BY_RCU, constructor);
}

static void small_arrays(void)
{
        play(64, 0, NULL);
        play(700, 0, constructor);
}

/* Small shared arrays that overflow often, none at all, and objects given home directly. */
static void other_options(void **state)
{
        child_passes("small_arrays", "engine=slab,limit=4,batchcount=2,shared=1");
        child_passes("small_arrays", "engine=slab,shared=0");
        child_passes("small_arrays", "engine=slab,limit=4,batchcount=2,shared=1,numa_fake=2");
        child_passes("small_arrays", "engine=slab,noaliencache=1,numa_fake=2");
        child_passes("small_arrays", "engine=slab,limit=1");
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {{"small_arrays", small_arrays}};
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(sizes),
                cmocka_unit_test(constructors),
                cmocka_unit_test(type_safe),
                cmocka_unit_test(other_options),
        };

        random_state = 0x51ab;
        child_main(argc, argv, children, array_size(children));
        child_restart_with(argv, "engine=slab");
        return cmocka_run_group_tests(tests, NULL, NULL);
}
