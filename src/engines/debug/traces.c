/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The callers that took the objects in use, or that gave them back the time before: the kernel's
 * files alloc_traces and free_traces (S9-01). Objects share an entry if their call stacks are
 * equal, and in kmalloc caches also the number of bytes that were not asked for.
 */
#include "engines/debug/traces.h"

#include "base/metadata.h"
#include "lang/text.h"
#include "engines/debug/object.h"

enum { ENTRIES = 4096, CPU_WORDS = 1024 / 64 };

struct entry {
        uint64_t count; /* 0: not in use */
        uintptr_t address;
        const struct stack *stack;
        uint64_t waste; /* bytes of each object */
        uint64_t age_sum;
        uint64_t age_least;
        uint64_t age_most;
        int32_t pid_least;
        int32_t pid_most;
        uint64_t cpus[CPU_WORDS]; /* from 1024 on they are left out */
        uint8_t nodes[NODES_MAX];
};

/* Open addressing; a stack that comes when all entries are taken is left out. */
static struct entry *find(struct entry *entries, const struct track *track, uint64_t waste)
{
        uint64_t hash = ((uintptr_t)track->stack ^ track->address ^ waste) * 0x9e3779b97f4a7c15u;

        for (uint32_t step = 0; step < ENTRIES; step++) {
                struct entry *entry = &entries[((hash >> 32) + step) % ENTRIES];

                if (!entry->count || (entry->stack == track->stack &&
                                      entry->address == track->address && entry->waste == waste))
                        return entry;
        }
        return NULL;
}

static void add_object(struct entry *entries, const struct kmem_cache *cache,
                       const struct page *slab, const void *object, enum track_item item,
                       uint64_t now)
{
        const struct track *track = object_track(cache, object, item);
        uint64_t waste = cache->object_size - debug_request(cache, object);
        struct entry *entry = find(entries, track, waste);
        uint64_t age = now - track->when_ms;

        if (!entry)
                return;
        if (!entry->count++) {
                entry->address = track->address;
                entry->stack = track->stack;
                entry->waste = waste;
                entry->age_least = entry->age_most = age;
                entry->pid_least = entry->pid_most = track->pid;
        }
        entry->age_sum += age;
        entry->age_least = min_of(entry->age_least, age);
        entry->age_most = max_of(entry->age_most, age);
        entry->pid_least = min_of(entry->pid_least, track->pid);
        entry->pid_most = max_of(entry->pid_most, track->pid);
        if ((uint32_t)track->cpu < CPU_WORDS * 64)
                bit_set(entry->cpus, (uint32_t)track->cpu);
        entry->nodes[slab->node] = 1;
}

static void add_list_locked(struct entry *entries, const struct kmem_cache *cache,
                            const struct page_list *list, enum track_item item, uint64_t now)
{
        for (const struct page *slab = page_list_first(list); slab; slab = page_list_next(slab))
                for (uint32_t index = 0; index < slab_objects(slab); index++)
                        if (!is_marked_free(slab, slab_objects(slab), index))
                                add_object(entries, cache, slab, slub_object(cache, slab, index),
                                           item, now);
}

/* A mark counts for as much of the room as the name that replaces it. */
static void add_symbol(struct text *text, uintptr_t address)
{
        size_t named = SYMBOL_BYTES - SYMBOL_MARK_BYTES;

        if (!address) {
                text_add(text, "<not-available>");
                return;
        }
        if (text->room - text->used <= named)
                text->full = true;
        else
                text->room -= named;
        text_add(text, SYMBOL_MARK "%016lx", (unsigned long)address);
}

/* Numbers in ascending order, neighbours as from-to. */
static void add_numbers(struct text *text, const char *name,
                        bool (*has)(const struct entry *, unsigned int), const struct entry *entry,
                        unsigned int end)
{
        const char *before = name;

        for (unsigned int number = 0; number < end; number++) {
                unsigned int last = number;

                if (!has(entry, number))
                        continue;
                while (last + 1 < end && has(entry, last + 1))
                        last++;
                text_add(text, last > number ? "%s%u-%u" : "%s%u", before, number, last);
                before = ",";
                number = last;
        }
}

static bool has_cpu(const struct entry *entry, unsigned int cpu)
{
        return bit_get(entry->cpus, cpu);
}

static bool has_node(const struct entry *entry, unsigned int node)
{
        return entry->nodes[node];
}

static void add_entry(struct text *text, const struct entry *entry)
{
        text_add(text, "%7ld ", (long)entry->count);
        add_symbol(text, entry->address);
        if (entry->waste)
                text_add(text, " waste=%lu/%lu", (unsigned long)(entry->waste * entry->count),
                         (unsigned long)entry->waste);
        if (entry->age_least != entry->age_most)
                text_add(text, " age=%lu/%lu/%lu", (unsigned long)entry->age_least,
                         (unsigned long)(entry->age_sum / entry->count),
                         (unsigned long)entry->age_most);
        else
                text_add(text, " age=%lu", (unsigned long)entry->age_least);
        text_add(text, entry->pid_least == entry->pid_most ? " pid=%d" : " pid=%d-%d",
                 entry->pid_least, entry->pid_most);
        if (system_cpus(CPUS_POSSIBLE) > 1)
                add_numbers(text, " cpus=", has_cpu, entry, CPU_WORDS * 64);
        if (system_nodes() > 1)
                add_numbers(text, " nodes=", has_node, entry, NODES_MAX);
        text_add(text, "\n");
        if (!depot_has(entry->stack))
                return;
        for (uint32_t i = 0; i < entry->stack->count; i++) {
                text_add(text, "        ");
                add_symbol(text, entry->stack->frame[i]);
                text_add(text, "\n");
        }
}

/* The entry with the most objects that is not written yet, or NULL. */
static struct entry *next_entry(struct entry *entries)
{
        struct entry *most = NULL;

        for (uint32_t i = 0; i < ENTRIES; i++)
                if (entries[i].count && (!most || entries[i].count > most->count))
                        most = &entries[i];
        return most;
}

static size_t write_entries(struct entry *entries, char *start, size_t bytes)
{
        struct entry *entry = next_entry(entries);
        struct text text;

        text_begin(&text, start, bytes);
        if (!entry)
                text_add(&text, "No data");
        for (; entry && !text.full; entry = next_entry(entries)) {
                size_t before = text.used;

                add_entry(&text, entry);
                if (text.full)
                        text_cut(&text, before);
                entry->count = 0;
        }
        /* The last newline is the attribute's. */
        if (text.used && start[text.used - 1] == '\n')
                text_cut(&text, text.used - 1);
        return text.used;
}

size_t debug_traces(struct kmem_cache *cache, bool of_free, char *text, size_t bytes)
{
        struct entry *entries = metadata_alloc(ENTRIES * sizeof(*entries));
        enum track_item item = of_free ? TRACK_FREE : TRACK_ALLOC;
        uint64_t now = system_time_ms();
        size_t used;

        if (!entries)
                return 0;
        for (unsigned int number = 0; number < system_nodes(); number++) {
                struct engine_node *node = &cache->node[number];

                lock_take(&node->list_lock);
                add_list_locked(entries, cache, &node->partial, item, now);
                add_list_locked(entries, cache, &node->full, item, now);
                lock_drop(&node->list_lock);
        }
        used = write_entries(entries, text, bytes);
        metadata_free(entries, ENTRIES * sizeof(*entries));
        return used;
}
