/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "introspect/counters.h"

#include "lang/text.h"
#include "percpu/percpu.h"
#include "engines/slub/slab.h"

enum { TEXT_LEAST_BYTES = 64 };

bool counters_are_on(const struct kmem_cache *cache)
{
        return cache->counters_bytes != 0;
}

/* What the n-th slot keeps for the cache, the one for threads without a slot first; or NULL. */
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

/* Appends a part if it fits in front of the newline. */
static size_t append(char *text, size_t bytes, size_t used, size_t length, const char *part)
{
        if (used + length + 2 > bytes)
                return used;
        __builtin_memcpy(text + used, part, length);
        return used + length;
}

static size_t end_line(char *text, size_t used)
{
        text[used++] = '\n';
        text[used] = '\0';
        return used;
}

size_t counters_text(struct kmem_cache *cache, enum slub_counter counter, char *text, size_t bytes)
{
        char part[TEXT_LEAST_BYTES];
        size_t used;
        size_t length;

        length = text_print(part, sizeof(part), "%lu", (unsigned long)counters_sum(cache, counter));
        used = append(text, bytes, 0, length, part);
        for (unsigned int number = 1; number <= slots_made_count(); number++) {
                struct slub_counters *counters = counters_at(cache, number);
                uint64_t count = counters ? load_relaxed(&counters->event[counter]) : 0;

                if (!count)
                        continue;
                length = text_print(part, sizeof(part), " C%u=%lu", slot_made(number - 1)->id,
                                    (unsigned long)count);
                used = append(text, bytes, used, length, part);
        }
        return end_line(text, used);
}

/* What all slots keep together, or one, in the units that the accounting rule counts. */
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

size_t cpu_partial_text(struct kmem_cache *cache, char *text, size_t bytes)
{
        struct cpu_partial_figures total;
        char part[TEXT_LEAST_BYTES];
        size_t used;
        size_t length;

        cpu_partial_sum(cache, &total);
        length = text_print(part, sizeof(part), "%lu(%lu)", (unsigned long)total.objects,
                            (unsigned long)total.slabs);
        used = append(text, bytes, 0, length, part);
        for (unsigned int number = 1; number <= slots_made_count(); number++) {
                struct slub_partial_list list = partial_lists(cache, number, number);

                if (!list.slabs)
                        continue;
                length = text_print(part, sizeof(part), " C%u=%lu(%lu)", slot_made(number - 1)->id,
                                    (unsigned long)slub_partial_objects(cache, &list),
                                    (unsigned long)list.slabs);
                used = append(text, bytes, used, length, part);
        }
        return end_line(text, used);
}
