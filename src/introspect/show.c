/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The texts of a cache's attributes (S9.1, S2-30). All under cache_mutex. */
#include "introspect/attributes.h"

#include "machine/stack.h"
#include "lang/text.h"
#include "introspect/counters.h"
#include "introspect/totals.h"

void show_number(const struct attribute *attribute, struct kmem_cache *cache, struct text *text)
{
        const char *field = (const char *)cache + attribute->place;

        text_add(text, "%u", *(const uint32_t *)(const void *)field);
}

void show_flag(const struct attribute *attribute, struct kmem_cache *cache, struct text *text)
{
        text_add(text, "%d", (cache->flags & attribute->flag) != 0);
}

void show_nothing(const struct attribute *attribute, struct kmem_cache *cache, struct text *text)
{
}

void show_engine(const struct attribute *attribute, struct kmem_cache *cache, struct text *text)
{
        text_add(text, "%s", cache->engine->name);
}

void show_min_partial(const struct attribute *attribute, struct kmem_cache *cache,
                      struct text *text)
{
        text_add(text, "%zu", cache->min_partial);
}

/* Adds TOTAL N0=x N1=y: only nodes with a count other than 0. */
static void add_nodes(struct text *text, const uint64_t counts[NODES_MAX])
{
        uint64_t total = 0;

        for (unsigned int node = 0; node < system_nodes(); node++)
                total += counts[node];
        text_add(text, "%lu", (unsigned long)total);
        for (unsigned int node = 0; node < system_nodes(); node++)
                if (counts[node])
                        text_add(text, " N%u=%lu", system_node_number(node),
                                 (unsigned long)counts[node]);
}

void show_nodes(const struct attribute *attribute, struct kmem_cache *cache, struct text *text)
{
        struct engine_report report = {0};
        uint64_t counts[NODES_MAX];
        uint64_t resting;

        percpu_report(cache, &report, &resting);
        for (unsigned int node = 0; node < system_nodes(); node++) {
                const char *counted = (const char *)&report.node[node] + attribute->place;

                counts[node] = *(const uint64_t *)(const void *)counted;
        }
        add_nodes(text, counts);
}

void show_objects(const struct attribute *attribute, struct kmem_cache *cache, struct text *text)
{
        struct engine_report report = {0};
        uint64_t counts[NODES_MAX];
        uint64_t resting;

        percpu_report(cache, &report, &resting);
        for (unsigned int node = 0; node < system_nodes(); node++)
                counts[node] = report.node[node].objects -
                               min_of(report.node[node].listed_free, report.node[node].objects);
        add_nodes(text, counts);
}

void show_slabs_cpu_partial(const struct attribute *attribute, struct kmem_cache *cache,
                            struct text *text)
{
        cpu_partial_text(cache, text);
}

void show_counter(const struct attribute *attribute, struct kmem_cache *cache, struct text *text)
{
        counters_text(cache, (enum slub_counter)attribute->place, text);
}

void show_objects_inuse(const struct attribute *attribute, struct kmem_cache *cache,
                        struct text *text)
{
        struct cache_totals totals;

        cache_total(cache, &totals);
        text_add(text, "%lu", (unsigned long)totals.inuse);
}

void show_ctor(const struct attribute *attribute, struct kmem_cache *cache, struct text *text)
{
        if (cache->ctor)
                text_add(text, SYMBOL_MARK "%016lx", (unsigned long)(uintptr_t)cache->ctor);
}

void show_aliases(const struct attribute *attribute, struct kmem_cache *cache, struct text *text)
{
        text_add(text, "%u", cache->references - 1);
}

void show_failslab(const struct attribute *attribute, struct kmem_cache *cache, struct text *text)
{
        text_add(text, "%d", cache->failslab);
}

void show_defrag_ratio(const struct attribute *attribute, struct kmem_cache *cache,
                       struct text *text)
{
        text_add(text, "%u", cache->remote_node_defrag_ratio / 10);
}

void show_skip_kfence(const struct attribute *attribute, struct kmem_cache *cache,
                      struct text *text)
{
        text_add(text, "%d", cache->skip_kfence);
}

/* Traces of allocations and frees (S9-01). */
void show_traces(const struct attribute *attribute, struct kmem_cache *cache, struct text *text)
{
        text->used = cache->engine->traces(cache, attribute->place, text->start, text->room);
}

void show_errors(const struct attribute *attribute, struct kmem_cache *cache, struct text *text)
{
        text_add(text, "%lu", (unsigned long)cache->engine->errors(cache));
}
