/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The state of the heap after the steps of a trace, as parts of a JSON document. Nobody allocates
 * meanwhile; if the reclaim thread may run, the caller holds cache_mutex.
 */
#include "tools/replay/heap.h"

#include "base/metadata.h"
#include "introspect/counters.h"
#include "introspect/totals.h"
#include "engines/slob/statistics.h"
#include "engines/slub/state.h"

#include <stdio.h>

/* Slabs by their place; engine slob's slabs are its pages. */
struct states {
        uint64_t cpu;
        uint64_t cpu_partial;
        uint64_t partial; /* on a list of a node, with objects in use */
        uint64_t empty;   /* on a list of a node, without objects in use */
        uint64_t full;
};

struct cache_figures {
        struct cache_totals totals;
        struct states states;
};

struct heap_figures {
        struct states states;
        uint64_t slab_bytes;   /* of slabs that belong to a single cache, slob's pages left out */
        uint64_t tail_bytes;   /* behind the last object of a slab */
        uint64_t stride_bytes; /* of objects in use */
        uint64_t listed_bytes; /* of free objects in slabs on lists of nodes */
        uint64_t percpu_bytes; /* of free objects in slots, CPU slabs and CPU partial slabs */
};

void print_text(const char *text)
{
        putchar('"');
        for (; *text; text++) {
                unsigned char byte = (unsigned char)*text;

                if (byte == '"' || byte == '\\')
                        printf("\\%c", byte);
                else if (byte < ' ')
                        printf("\\u%04x", byte);
                else
                        putchar(byte);
        }
        putchar('"');
}

void print_number(const char *name, uint64_t number, const char *end)
{
        printf("\"%s\": %lu%s", name, (unsigned long)number, end);
}

static void count_cpu_slabs(const struct kmem_cache *cache, struct states *states)
{
        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                const struct slot *slot = number ? slot_made(number - 1) : &shared_slot;
                const struct slot_cache *record = slot_peek(slot, cache_index(cache));

                if (!record)
                        continue;
                states->cpu += record->engine.slab != NULL;
                if (record->engine.partial)
                        states->cpu_partial += page_at(record->engine.partial)->prev;
        }
}

static void count_slub(const struct kmem_cache *cache, struct states *states)
{
        for (unsigned int node = 0; node < system_nodes(); node++) {
                const struct page_list *list = &cache->node[node].partial;

                for (struct page *slab = page_list_first(list); slab; slab = page_list_next(slab))
                        if (state_unpack(slab->state).inuse)
                                states->partial++;
                        else
                                states->empty++;
        }
        count_cpu_slabs(cache, states);
}

static void read_cache(struct kmem_cache *cache, struct cache_figures *figures)
{
        struct states *states = &figures->states;
        uint64_t elsewhere;

        *figures = (struct cache_figures){0};
        cache_total(cache, &figures->totals);
        if (cache->engine->number == ENGINE_SLUB) {
                count_slub(cache, states);
        } else if (cache->engine->number == ENGINE_SLAB) {
                states->partial = figures->totals.nodes.partial_slabs;
                states->empty = figures->totals.report.free_slabs;
        }
        elsewhere = states->cpu + states->cpu_partial + states->partial + states->empty;
        states->full = figures->totals.nodes.slabs - min_of(elsewhere, figures->totals.nodes.slabs);
}

static void add_cache(const struct kmem_cache *cache, const struct cache_figures *figures,
                      struct heap_figures *sum)
{
        const struct cache_totals *totals = &figures->totals;
        uint64_t slab_bytes = totals->nodes.slabs * pages_of_slab(cache, cache->order)
                              << PAGE_SHIFT;
        uint64_t free_objects = totals->nodes.objects - totals->inuse;

        if (cache->engine->shared)
                return;
        sum->states.cpu += figures->states.cpu;
        sum->states.cpu_partial += figures->states.cpu_partial;
        sum->states.partial += figures->states.partial;
        sum->states.empty += figures->states.empty;
        sum->states.full += figures->states.full;
        sum->slab_bytes += slab_bytes;
        sum->tail_bytes += slab_bytes - totals->nodes.objects * cache->size;
        sum->stride_bytes += totals->inuse * cache->size;
        sum->listed_bytes += totals->nodes.listed_free * cache->size;
        sum->percpu_bytes += (free_objects - totals->nodes.listed_free) * cache->size;
}

static void print_states(const struct states *states)
{
        print_number("cpu", states->cpu, ", ");
        print_number("cpu_partial", states->cpu_partial, ", ");
        print_number("partial", states->partial, ", ");
        print_number("empty", states->empty, ", ");
        print_number("full", states->full, "");
}

static void print_cache(const struct kmem_cache *cache, const struct cache_figures *figures,
                        const char *before)
{
        const struct engine_node_report *nodes = &figures->totals.nodes;

        printf("%s  {\"name\": ", before);
        print_text(cache->name);
        printf(", \"engine\": \"%s\", ", cache->engine->name);
        print_number("object_bytes", cache->object_size, ", ");
        print_number("stride_bytes", cache->size, ", ");
        print_number("order", cache->order, ", ");
        print_number("objects_per_slab", cache->objects, ", ");
        print_number("cpu_partial", cache->cpu_partial, ", ");
        print_number("min_partial", load_relaxed(&cache->min_partial), ", ");
        print_number("sheaf_capacity", cache->sheaf_capacity, ", ");
        print_number("inuse", figures->totals.inuse, ", ");
        print_number("objects", nodes->objects, ", ");
        /* Active as in a slab table: objects that are on no list of a node (S9-11). */
        print_number("active", nodes->objects - nodes->listed_free, ", ");
        print_number("slabs", nodes->slabs, ", ");
        print_number("pages", nodes->slabs * pages_of_slab(cache, cache->order), ", \"states\": {");
        print_states(&figures->states);
        printf("}}");
}

/* The kernel's own fast path: objects popped from, and pushed to, the CPU slab's list. */
static void print_statistics(const uint64_t counters[SLUB_COUNTERS])
{
        printf(" \"statistics\": {");
        print_number("alloc_fastpath", counters[ALLOC_FASTPATH], ", ");
        print_number("alloc_slowpath", counters[ALLOC_SLOWPATH], ", ");
        print_number("free_fastpath", counters[FREE_FASTPATH], ", ");
        print_number("free_slowpath", counters[FREE_SLOWPATH], "},\n");
}

void print_heap_statistics(void)
{
        uint64_t counters[SLUB_COUNTERS] = {0};
        bool any = false;

        for (struct list *node = cache_list.prev; node != &cache_list; node = node->prev) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);

                any |= counters_are_on(cache);
                for (int i = 0; i < SLUB_COUNTERS && counters_are_on(cache); i++)
                        counters[i] += counters_sum(cache, (enum slub_counter)i);
        }
        if (any)
                print_statistics(counters);
}

/* Prints the caches from the oldest on, without unused caches. */
static void print_caches(struct heap_figures *sum)
{
        const char *before = "\n";

        printf(" \"caches\": [");
        for (struct list *node = cache_list.prev; node != &cache_list; node = node->prev) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);
                struct cache_figures figures;

                read_cache(cache, &figures);
                add_cache(cache, &figures, sum);
                if (!figures.totals.report.taken)
                        continue;
                print_cache(cache, &figures, before);
                before = ",\n";
        }
        printf("\n ],\n");
}

static void print_slob(const struct slob_statistics *slob)
{
        printf(" \"slob\": {\"lists\": [");
        for (unsigned int i = 0; i < slob->lists; i++) {
                printf("%s{", i ? ", " : "");
                print_number("pages", slob->list[i].pages, ", ");
                print_number("unused_bytes", slob->list[i].unused, ", ");
                print_number("biggest_bytes", slob->list[i].biggest, ", ");
                print_number("fragments", slob->list[i].fragments, "}");
        }
        printf("], ");
        print_number("pages", slob->counts.pages, ", ");
        print_number("full_pages", slob->full_pages, ", ");
        print_number("allocs", slob->counts.allocs, ", ");
        print_number("frees", slob->counts.frees, ", ");
        print_number("allocated_bytes", slob->counts.allocated, ", ");
        print_number("page_scans", slob->counts.page_scans, ", ");
        print_number("block_scans", slob->counts.block_scans, ", ");
        print_number("kmallocs", slob->counts.kmallocs, ", ");
        print_number("kmalloc_overhead_bytes", slob->counts.kmalloc_overhead, ", ");
        print_number("big_pages", slob->big_pages, ", ");
        print_number("total_pages", slob->total, ", ");
        print_number("used_pages", slob->used, "},\n");
}

static void print_waste(const struct heap_figures *sum, const struct slob_statistics *slob,
                        const struct asked *asked)
{
        uint64_t slob_bytes = slob->counts.pages << PAGE_SHIFT;
        /* Every page has a descriptor and an entry of the page map. */
        uint64_t page_records = used_pages() * (sizeof(struct page) + sizeof(uint16_t));

        printf(" \"waste_bytes\": {");
        print_number("rounding", sum->stride_bytes + slob->counts.allocated - asked->bytes, ", ");
        print_number("large_rounding", (large_pages() << PAGE_SHIFT) - asked->large_bytes, ", ");
        print_number("slab_tails", sum->tail_bytes, ", ");
        print_number("partial_slabs", sum->listed_bytes + slob_bytes - slob->counts.allocated,
                     ", ");
        print_number("per_cpu", sum->percpu_bytes, ", ");
        print_number("metadata", metadata_used_bytes() + page_records, "},\n");
}

size_t used_pages(void)
{
        struct large_counts large;

        large_count(&large);
        return heap_pages() + (large.huge_bytes >> PAGE_SHIFT);
}

size_t large_pages(void)
{
        struct large_counts large;

        large_count(&large);
        return ((large.bytes + large.huge_bytes) >> PAGE_SHIFT) + slob_counts.big_pages;
}

uint64_t moved_objects(void)
{
        uint64_t moved = 0;

        for (struct list *node = cache_list.next; node != &cache_list; node = node->next) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);
                struct cache_totals totals;

                cache_total(cache, &totals);
                if (!cache->engine->shared)
                        moved += totals.report.taken + totals.report.given;
        }
        return moved;
}

void print_trace(const struct replay *replay, const struct trace *trace)
{
        printf("{\"trace\": {");
        print_number("records", trace->records, ", ");
        print_number("cpus", trace->cpus, ", ");
        print_number("allocations", replay->allocations, ", ");
        print_number("frees", replay->frees, ", ");
        print_number("implied_frees", replay->implied_frees, ", ");
        print_number("orphans_left_out", replay->orphans, "},\n");
}

void print_heap_end(const struct asked *asked)
{
        size_t large = large_pages();
        struct slob_statistics slob;

        slob_statistics(&slob);
        printf(" \"end\": {");
        print_number("pages", used_pages(), ", ");
        print_number("slab_pages", used_pages() - large, ", ");
        print_number("large_pages", large, ", ");
        print_number("asked_bytes", asked->bytes, ", ");
        print_number("asked_large_bytes", asked->large_bytes, ", ");
        /*
         * The bytes that even an optimum has to hold: with engine slob its headers and units, as
         * S7.6 counts.
         */
        print_number("allocated_bytes", slob.lists ? slob.counts.allocated : asked->bytes, "},\n");
}

void print_heap(const struct asked *asked)
{
        struct heap_figures sum = {0};
        struct slob_statistics slob;

        slob_statistics(&slob);
        print_caches(&sum);
        sum.states.partial += slob.counts.pages - slob.full_pages;
        sum.states.full += slob.full_pages;
        printf(" \"slabs\": {");
        print_states(&sum.states);
        printf("},\n");
        if (slob.lists)
                print_slob(&slob);
        print_waste(&sum, &slob, asked);
}
