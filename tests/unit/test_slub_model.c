/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * SLUB against a model: batches are taken and given back through several CPU records at random,
 * slots are flushed and caches shrunk in between. The model is the set of objects that are out:
 * none may come twice, none may be lost, and a walk over all descriptors follows each step.
 */
#include "child.h"
#include "walker.h"

#include "percpu/percpu.h"
#include "engines/slub/slab.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 5, OUT_MAX = 3000, BATCH_MAX = 150, STEPS = 1500 };

static struct kmem_cache *cache;
static struct engine_slot slots[SLOTS];
static void *out[OUT_MAX];
static unsigned int out_count;
static uint64_t random_state;

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

/* Objects do not overlap with each other, so none came twice. */
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
        unsigned int room = OUT_MAX - out_count;
        unsigned int count = 1 + random_below(random_below(4) ? 30 : BATCH_MAX);
        unsigned int taken;

        if (count > room)
                return;
        taken = cache->engine->take(cache, &slots[random_below(SLOTS)], out + out_count, count);
        /* Less only where the rest would have needed a fresh slab for less than half a batch. */
        check(taken * 2 >= count && taken <= count);
        for (unsigned int i = out_count; i < out_count + taken; i++)
                memset(out[i], 0xe5, cache->object_size);
        out_count += taken;
        check_distinct();
}

static void step_give(void)
{
        void *batch[BATCH_MAX];
        unsigned int count = random_below(random_below(4) ? 30 : BATCH_MAX);

        if (count > out_count)
                count = out_count;
        for (unsigned int i = 0; i < count; i++) {
                unsigned int from = random_below(out_count);

                batch[i] = out[from];
                out[from] = out[--out_count];
        }
        cache->engine->give(cache, &slots[random_below(SLOTS)], batch, count);
}

/* The count of cpu_slabs: a list counts only where there is a CPU slab too. */
static uint64_t expected_cpu_slabs(void)
{
        uint64_t expected = 0;

        for (unsigned int i = 0; i < SLOTS; i++) {
                if (!slots[i].slab)
                        continue;
                expected++;
                for (uint32_t slab = slots[i].partial; slab; slab = page_at(slab)->next)
                        expected++;
        }
        return expected;
}

static void check_against_model(void)
{
        struct engine_report report = {0};
        struct engine_node_report nodes;
        struct walk_counts counts;
        uint64_t listed = 0;

        walk_heap(cache, &counts);
        check_equal(counts.inuse, out_count);
        cache->engine->report(cache, &report);
        for (unsigned int i = 0; i < SLOTS; i++) {
                cache->engine->report_slot(cache, &slots[i], &report);
                listed += slub_slot_partial(&slots[i]).slabs;
        }
        check_equal(report.taken - report.given, out_count);
        nodes = engine_report_total(&report);
        check_equal(nodes.slabs, counts.slabs);
        check_equal(nodes.partial_slabs, counts.node_partial);
        check_equal(nodes.cpu_slabs, expected_cpu_slabs());
        check_equal(listed, counts.cpu_partial);
}

static void run_model(uint32_t size, int cpu_partial_slabs, int least_partial, uint64_t seed)
{
        random_state = seed * 0x9e3779b97f4a7c15ull | 1;
        cache = kmem_cache_create("model", size, 0, 0, NULL);
        check(cache != NULL);
        if (cpu_partial_slabs >= 0) {
                cache->cpu_partial_slabs = (uint32_t)cpu_partial_slabs;
                /* By the other rule about as much. */
                cache->cpu_partial = (uint32_t)cpu_partial_slabs * cache->objects / 2;
                cache->has_cpu_partial = cpu_partial_slabs > 0;
        }
        if (least_partial >= 0)
                cache->min_partial = (size_t)least_partial;
        for (unsigned int i = 0; i < SLOTS; i++)
                slots[i] = (struct engine_slot){.freelist = ENGINE_NO_OBJECT, .home = 1 + i};
        walk_own_slots(cache, slots, SLOTS);
        for (unsigned int step = 0; step < STEPS; step++) {
                unsigned int choice = random_below(20);
                /* Long waves of growing and shrinking. */
                bool grow = step / 100 % 2 == 0;

                if (choice == 0)
                        cache->engine->flush_slot(cache, &slots[random_below(SLOTS)]);
                else if (choice == 1)
                        cache->engine->shrink(cache);
                else if (choice < (grow ? 13u : 8u))
                        step_take();
                else
                        step_give();
                check_against_model();
        }
        while (out_count)
                step_give();
        for (unsigned int i = 0; i < SLOTS; i++)
                cache->engine->flush_slot(cache, &slots[i]);
        check_against_model();
        check(!cache->engine->shrink(cache));
        check_against_model();
        walk_own_slots(NULL, NULL, 0);
        kmem_cache_destroy(cache);
}

static void defaults(void **state)
{
        static const uint32_t sizes[] = {8, 16, 24, 64, 104, 512, 1000, 3000, 9000};

        for (size_t i = 0; i < array_size(sizes); i++)
                run_model(sizes[i], -1, -1, i + 1);
}

static void limits(void **state)
{
        for (int cpu_partial = 0; cpu_partial < 4; cpu_partial++)
                for (int least = 0; least < 3; least++)
                        run_model(512, cpu_partial, least, (uint64_t)(cpu_partial * 3 + least));
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(defaults),
                cmocka_unit_test(limits),
        };

        child_restart_with(argv, "engine=slub");
        return cmocka_run_group_tests_name("slub model", tests, NULL, NULL);
}
