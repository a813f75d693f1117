/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sums of a cache's counters, transition costs and CPU partial lists over the slots. */
#include "introspect/counters.h"

#include "lang/text.h"
#include "percpu/percpu.h"
#include "engines/slub/slab.h"

enum { TEXT_LEAST_BYTES = 64 };

bool counters_are_on(const struct kmem_cache *cache)
{
        return cache->counters_bytes != 0;
}

/*
 * The back end's part of a slot's record for the cache, or NULL. Number 0 is the slot for threads
 * without a slot.
 */
static struct engine_slot *engine_slot_at(struct kmem_cache *cache, unsigned int number)
{
        struct slot *slot = number ? slot_made(number - 1) : &shared_slot;
        struct slot_cache *record = slot_peek(slot, cache_index(cache));

        return record ? &record->engine : NULL;
}

static struct slub_counters *counters_at(struct kmem_cache *cache, unsigned int number)
{
        struct engine_slot *slot = engine_slot_at(cache, number);

        return slot ? slot->counters : NULL;
}

uint64_t counters_sum(struct kmem_cache *cache, enum slub_counter counter)
{
        uint64_t sum = 0;

        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                struct slub_counters *counters = counters_at(cache, number);

                if (counters)
                        sum += load_relaxed(&counters->event[counter]);
        }
        return sum;
}

void counters_reset(struct kmem_cache *cache, enum slub_counter counter)
{
        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                struct slub_counters *counters = counters_at(cache, number);

                if (counters)
                        store_relaxed(&counters->event[counter], 0);
        }
}

static void reset_costs(struct slub_counters *counters)
{
        for (unsigned int transition = 0; transition < SLUB_TRANSITIONS; transition++)
                for (unsigned int cost = 0; cost < SLUB_COSTS; cost++)
                        store_relaxed(&counters->cost[transition][cost], 0);
}

void counters_reset_all(struct kmem_cache *cache)
{
        for (unsigned int counter = 0; counter < SLUB_COUNTERS; counter++)
                counters_reset(cache, (enum slub_counter)counter);
        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                struct slub_counters *counters = counters_at(cache, number);

                if (counters)
                        reset_costs(counters);
        }
        for (unsigned int node = 0; node < system_nodes(); node++)
                store_relaxed(&cache->node[node].shrinks, 0);
}

void counters_cost(struct kmem_cache *cache, enum slub_transition transition,
                   uint64_t costs[SLUB_COSTS])
{
        for (unsigned int cost = 0; cost < SLUB_COSTS; cost++)
                costs[cost] = 0;
        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                struct slub_counters *counters = counters_at(cache, number);

                for (unsigned int cost = 0; counters && cost < SLUB_COSTS; cost++)
                        costs[cost] += load_relaxed(&counters->cost[transition][cost]);
        }
        if (transition != SHRINK_NODE || !counters_are_on(cache))
                return;
        for (unsigned int node = 0; node < system_nodes(); node++) {
                costs[COST_TIMES] += load_relaxed(&cache->node[node].shrinks);
                costs[COST_LIST_LOCKS] += load_relaxed(&cache->node[node].shrinks);
        }
}

void counters_text(struct kmem_cache *cache, enum slub_counter counter, struct text *text)
{
        text_add(text, "%lu", (unsigned long)counters_sum(cache, counter));
        for (unsigned int number = 1; number <= slots_made_count(); number++) {
                struct slub_counters *counters = counters_at(cache, number);
                uint64_t count = counters ? load_relaxed(&counters->event[counter]) : 0;

                if (count)
                        text_add(text, " C%u=%lu", slot_made(number - 1)->id, (unsigned long)count);
        }
}

/*
 * The CPU partial lists of slots @first to @last together, in the units that the accounting rule
 * counts.
 */
static struct slub_partial_list partial_lists(struct kmem_cache *cache, unsigned int first,
                                              unsigned int last)
{
        struct slub_partial_list sum = {0};

        for (unsigned int number = first; number <= last; number++) {
                struct engine_slot *slot = engine_slot_at(cache, number);
                struct slub_partial_list list = {0};

                if (slot && cache->engine == &slub_engine)
                        list = slub_slot_partial(slot);
                sum.slabs += list.slabs;
                sum.objects += list.objects;
        }
        return sum;
}

void cpu_partial_sum(struct kmem_cache *cache, struct cpu_partial_figures *figures)
{
        struct slub_partial_list sum = partial_lists(cache, 0, slots_made_count());

        figures->objects = slub_partial_objects(cache, &sum);
        figures->slabs = sum.slabs;
}

void cpu_partial_text(struct kmem_cache *cache, struct text *text)
{
        struct cpu_partial_figures total;

        cpu_partial_sum(cache, &total);
        text_add(text, "%lu(%lu)", (unsigned long)total.objects, (unsigned long)total.slabs);
        for (unsigned int number = 1; number <= slots_made_count(); number++) {
                struct slub_partial_list list = partial_lists(cache, number, number);

                if (list.slabs)
                        text_add(text, " C%u=%lu(%lu)", slot_made(number - 1)->id,
                                 (unsigned long)slub_partial_objects(cache, &list),
                                 (unsigned long)list.slabs);
        }
}
