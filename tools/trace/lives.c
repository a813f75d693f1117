/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Turns events that name addresses into records that name lives, with hash tables of the living
 * objects and of the sites. See lives.h.
 */
#include "tools/trace/lives.h"

#include "tools/trace/format.h"

#include <stdlib.h>
#include <string.h>

enum { TABLE_SHIFT_FIRST = 16, SITE_NAME_BYTES = 256 };

/* An open-addressed table from 64-bit keys, except 0, to places in an array beside it. */
struct table {
        uint64_t *keys;
        void *values;
        size_t value_bytes;
        unsigned int shift; /* 1 << shift places */
        size_t used;        /* places that have a key */
};

struct life {
        uint64_t requested; /* bytes */
        uint64_t given;     /* bytes */
        uint32_t object;    /* id */
        uint16_t cache;     /* id */
};

struct lives {
        struct trace_writer *writer;
        lives_name_site *name_site;
        void *context;
        struct table living; /* struct life by address */
        struct table sites;  /* uint32_t by address */
        uint32_t site_count;
        char (*caches)[64];
        uint32_t cache_count;
        uint64_t objects;   /* ids that were given out */
        uint64_t time;      /* the latest so far, ns */
        bool out_of_memory; /* or of ids: lives_close fails */
        struct lives_counts counts;
};

static bool table_make(struct table *table, size_t value_bytes, unsigned int shift)
{
        *table = (struct table){.value_bytes = value_bytes, .shift = shift};
        table->keys = calloc((size_t)1 << shift, sizeof(uint64_t));
        table->values = calloc((size_t)1 << shift, value_bytes);
        return table->keys && table->values;
}

static void table_free(struct table *table)
{
        free(table->keys);
        free(table->values);
}

static void *value_at(const struct table *table, size_t place)
{
        return (char *)table->values + place * table->value_bytes;
}

static size_t home_of(const struct table *table, uint64_t key)
{
        return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - table->shift));
}

/* The place of the key, or the free place where it would be. */
static size_t place_of(const struct table *table, uint64_t key)
{
        size_t mask = ((size_t)1 << table->shift) - 1;
        size_t place = home_of(table, key);

        while (table->keys[place] && table->keys[place] != key)
                place = (place + 1) & mask;
        return place;
}

static void *table_find(const struct table *table, uint64_t key)
{
        size_t place = place_of(table, key);

        return table->keys[place] ? value_at(table, place) : NULL;
}

static bool table_grow(struct table *table)
{
        struct table larger;

        if (!table_make(&larger, table->value_bytes, table->shift + 1)) {
                table_free(&larger);
                return false;
        }
        for (size_t i = 0; i < (size_t)1 << table->shift; i++)
                if (table->keys[i]) {
                        size_t place = place_of(&larger, table->keys[i]);

                        larger.keys[place] = table->keys[i];
                        memcpy(value_at(&larger, place), value_at(table, i), table->value_bytes);
                }
        larger.used = table->used;
        table_free(table);
        *table = larger;
        return true;
}

/* Makes room for the value of a new key; NULL without memory. */
static void *table_add(struct table *table, uint64_t key)
{
        size_t place;

        if (2 * (table->used + 1) > (size_t)1 << table->shift && !table_grow(table))
                return NULL;
        place = place_of(table, key);
        table->keys[place] = key;
        table->used++;
        return value_at(table, place);
}

/*
 * Removes a key. The entries behind the gap move up, unless they are at home or between home and
 * the gap.
 */
static void table_remove(struct table *table, uint64_t key)
{
        size_t mask = ((size_t)1 << table->shift) - 1;
        size_t gap = place_of(table, key);

        table->used--;
        for (size_t next = (gap + 1) & mask; table->keys[next]; next = (next + 1) & mask) {
                size_t home = home_of(table, table->keys[next]);

                if (((next - home) & mask) < ((next - gap) & mask))
                        continue;
                table->keys[gap] = table->keys[next];
                memcpy(value_at(table, gap), value_at(table, next), table->value_bytes);
                gap = next;
        }
        table->keys[gap] = 0;
}

static void lives_free(struct lives *lives)
{
        table_free(&lives->living);
        table_free(&lives->sites);
        free(lives->caches);
        free(lives);
}

struct lives *lives_open(const char *path, uint32_t cpus, uint32_t page_bytes, const char *source,
                         lives_name_site *name_site, void *context, struct trace_error *error)
{
        struct lives *lives = calloc(1, sizeof(*lives));

        if (!lives || !table_make(&lives->living, sizeof(struct life), TABLE_SHIFT_FIRST) ||
            !table_make(&lives->sites, sizeof(uint32_t), TABLE_SHIFT_FIRST)) {
                if (lives)
                        lives_free(lives);
                trace_fail(error, 0, "no memory");
                return NULL;
        }
        lives->name_site = name_site;
        lives->context = context;
        lives->writer = trace_writer_open(path, cpus, page_bytes, source, error);
        if (!lives->writer) {
                lives_free(lives);
                return NULL;
        }
        trace_writer_site(lives->writer, "?");
        lives->site_count = 1;
        lives_cache(lives, "kmalloc");
        lives_cache(lives, "?");
        return lives;
}

uint16_t lives_cache(struct lives *lives, const char *name)
{
        void *more;

        /* The trace is lost: each further name would be looked for among 65,536. */
        if (lives->out_of_memory)
                return TRACE_CACHE_UNKNOWN;
        for (uint32_t i = 0; i < lives->cache_count; i++)
                if (strncmp(lives->caches[i], name, sizeof(*lives->caches) - 1) == 0)
                        return (uint16_t)i;
        more = lives->cache_count < TRACE_CACHES_MAX
                       ? realloc(lives->caches, (lives->cache_count + 1) * sizeof(*lives->caches))
                       : NULL;
        if (!more) {
                lives->out_of_memory = true;
                return TRACE_CACHE_UNKNOWN;
        }
        lives->caches = more;
        memset(lives->caches[lives->cache_count], 0, sizeof(*lives->caches));
        strncpy(lives->caches[lives->cache_count], name, sizeof(*lives->caches) - 1);
        trace_writer_cache(lives->writer, lives->caches[lives->cache_count]);
        return (uint16_t)lives->cache_count++;
}

static uint32_t site_id(struct lives *lives, uint64_t site)
{
        char name[SITE_NAME_BYTES];
        uint32_t *id;

        if (!site)
                return TRACE_SITE_UNKNOWN;
        id = table_find(&lives->sites, site);
        if (id)
                return *id;
        id = lives->site_count < UINT32_MAX ? table_add(&lives->sites, site) : NULL;
        if (!id) {
                lives->out_of_memory = true;
                return TRACE_SITE_UNKNOWN;
        }
        lives->name_site(lives->context, site, name, sizeof(name) - 1);
        trace_writer_site(lives->writer, name);
        *id = lives->site_count++;
        return *id;
}

/* Whether an operation, without its bits, begins a life. */
static bool begins_life(unsigned int operation)
{
        return operation == TRACE_ALLOC || operation == TRACE_PAGE_ALLOC;
}

/* Takes the id of a new object; false if none is left: ids have 32 bits. */
static bool take_id(struct lives *lives, uint32_t *id)
{
        if (lives->objects == UINT32_MAX) {
                lives->out_of_memory = true;
                return false;
        }
        *id = (uint32_t)lives->objects++;
        return true;
}

/* Writes a record of the event and its life. */
static void write(struct lives *lives, const struct lives_event *event, const struct life *life,
                  uint8_t operation)
{
        struct trace_record record = {
                .time = lives->time,
                .requested = life->requested,
                .given = life->given,
                .thread = event->thread,
                .object = life->object,
                .site = operation == TRACE_IMPLIED ? TRACE_SITE_UNKNOWN
                                                   : site_id(lives, event->site),
                .flags = begins_life(operation & TRACE_OPERATION_MASK) ? event->flags : 0,
                .cpu = event->cpu,
                .cache = life->cache,
                .operation = operation,
        };

        trace_writer_add(lives->writer, &record);
}

static void end_life(struct lives *lives, const struct life *life, uint64_t address)
{
        lives->counts.living--;
        lives->counts.living_bytes -= life->requested;
        table_remove(&lives->living, address);
}

static void add_allocation(struct lives *lives, const struct lives_event *event)
{
        struct life *life = table_find(&lives->living, event->address);
        uint32_t id;

        if (life) {
                write(lives, event, life, TRACE_IMPLIED);
                lives->counts.implied++;
                end_life(lives, life, event->address);
        }
        if (!take_id(lives, &id))
                return;
        life = table_add(&lives->living, event->address);
        if (!life) {
                lives->out_of_memory = true;
                return;
        }
        *life = (struct life){.requested = event->requested,
                              .given = event->given,
                              .object = id,
                              .cache = event->cache};
        lives->counts.allocations++;
        lives->counts.living++;
        lives->counts.living_bytes += event->requested;
        write(lives, event, life, event->operation);
}

static void add_free(struct lives *lives, const struct lives_event *event)
{
        struct life *life = table_find(&lives->living, event->address);
        uint8_t bits = event->operation & (uint8_t)~TRACE_OPERATION_MASK;

        if (!life) {
                struct life orphan = {.cache = event->cache};

                if (!take_id(lives, &orphan.object))
                        return;
                lives->counts.orphans++;
                write(lives, event, &orphan, TRACE_ORPHAN | bits);
                return;
        }
        lives->counts.frees++;
        write(lives, event, life, event->operation);
        end_life(lives, life, event->address);
}

void lives_add(struct lives *lives, const struct lives_event *event)
{
        unsigned int operation = event->operation & TRACE_OPERATION_MASK;

        if (!event->address || lives->out_of_memory)
                return;
        if (event->time > lives->time)
                lives->time = event->time;
        if (begins_life(operation))
                add_allocation(lives, event);
        else
                add_free(lives, event);
}

void lives_cpus(struct lives *lives, uint32_t cpus)
{
        trace_writer_cpus(lives->writer, cpus);
}

bool lives_close(struct lives *lives, struct lives_counts *counts, struct trace_error *error)
{
        bool whole;

        if (lives->out_of_memory)
                trace_writer_give_up(lives->writer,
                                     "no memory, or more objects or caches than ids");
        whole = trace_writer_close(lives->writer, lives->objects, error);
        *counts = lives->counts;
        lives_free(lives);
        return whole;
}
