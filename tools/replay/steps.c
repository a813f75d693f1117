/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Makes a list of steps of a trace, so that replaying does nothing but look up a place.
 *
 * Caches: each name of the trace becomes a cache. If a name stands for several strides (several
 * caches with a name, or merged caches), each stride becomes a cache. An object's recorded stride
 * is kept if an alignment can make it, so rounding is as in the recorded kernel. If the recorded
 * kernel had room behind the object for something else, the object is as large as the stride.
 */
#include "tools/replay/steps.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALIGN_MOST = 4096 };

/* The source of a stride of a cache, in a table that is never more than half full. */
struct stride {
        uint32_t given;
        uint32_t source; /* 0: the place is free; no stride has the first source */
        uint16_t cache;
};

enum { STRIDE_SHIFT = 17, STRIDES = 1 << STRIDE_SHIFT };
_Static_assert(STRIDES / 2 > UINT16_MAX, "half of the places are more than there can be sources");

struct making {
        struct replay *replay;
        const struct trace *trace;
        struct stride *strides; /* STRIDES of them, by hash */
        bool *has_stride;       /* by cache id */
        uint32_t *source_of;    /* by object id; 0 for objects that are not there */
        uint64_t *bytes_of;     /* by object id */
        uint32_t *place_of;     /* by object id */
        uint32_t *free_places;  /* the place that became free last is used first */
        uint32_t free_place_count;
        enum places places;
};

static enum trace_operation operation_of(const struct trace *trace, uint64_t record)
{
        return trace->operation[record] & TRACE_OPERATION_MASK;
}

static bool begins_life(enum trace_operation operation)
{
        return operation == TRACE_ALLOC || operation == TRACE_PAGE_ALLOC;
}

static uint32_t add_source(struct replay *replay, const char *name, uint32_t given, bool again)
{
        struct source *source;

        if (replay->source_count > UINT16_MAX)
                die("the trace has more than %d caches", UINT16_MAX);
        replay->sources =
                need(realloc(replay->sources, (replay->source_count + 1) * sizeof(*source)));
        source = &replay->sources[replay->source_count];
        *source = (struct source){.given = given};
        if (again)
                snprintf(source->name, sizeof(source->name), "%.32s:%u", name, given);
        else
                snprintf(source->name, sizeof(source->name), "%.47s", name);
        return replay->source_count++;
}

/*
 * The source of a stride of a cache, made if need be. A cache may have as many strides as there can
 * be sources, and all records ask, so a list of each cache's would take the square of their number.
 */
static uint32_t source_of_stride(struct making *making, uint16_t cache, uint32_t given)
{
        uint64_t key = (uint64_t)cache << 32 | given;
        uint64_t place = key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - STRIDE_SHIFT);
        struct stride *stride = &making->strides[place];

        while (stride->source) {
                if (stride->cache == cache && stride->given == given)
                        return stride->source;
                place = (place + 1) % STRIDES;
                stride = &making->strides[place];
        }
        *stride = (struct stride){
                .given = given,
                .cache = cache,
                .source = add_source(making->replay, making->trace->caches.name[cache], given,
                                     making->has_stride[cache]),
        };
        making->has_stride[cache] = true;
        return stride->source;
}

/* Whether no slab serves the size, with the present classes and engine. */
static bool is_large_size(size_t bytes)
{
        struct kmem_cache *cache;

        if (bytes == 0)
                return false;
        if (bytes > class_bytes_max())
                return true;
        cache = need(class_cache(CLASS_KMALLOC, bytes));
        return cache->engine->usable_bytes &&
               cache->engine->usable_bytes(bytes, 0) % PAGE_SIZE == 0;
}

/* The bytes to ask for: the recorded request, or the given bytes if the request is unknown. */
static uint64_t asked_bytes(const struct trace *trace, uint64_t record)
{
        return trace->requested[record] ? trace->requested[record] : trace->given[record];
}

static uint32_t source_of_record(struct making *making, uint64_t record)
{
        const struct trace *trace = making->trace;
        uint64_t given = trace->given[record] ? trace->given[record] : trace->requested[record];

        if (operation_of(trace, record) == TRACE_PAGE_ALLOC)
                return SOURCE_PAGES;
        if (trace->cache[record] == TRACE_CACHE_KMALLOC)
                return is_large_size(asked_bytes(trace, record)) ? SOURCE_LARGE_SIZES
                                                                 : SOURCE_SIZES;
        if (given == 0 || given > UINT32_MAX)
                die("record %lu: an object of cache %s has %lu bytes; expected 1 to 4294967295",
                    (unsigned long)record, trace->caches.name[trace->cache[record]],
                    (unsigned long)given);
        return source_of_stride(making, trace->cache[record], (uint32_t)given);
}

/* First pass: finds all sources and the largest objects of each. */
static void find_sources(struct making *making)
{
        const struct trace *trace = making->trace;

        for (uint64_t i = 0; i < trace->records; i++) {
                uint32_t number;
                struct source *source;

                if (!begins_life(operation_of(trace, i)))
                        continue;
                number = source_of_record(making, i);
                source = &making->replay->sources[number];
                making->source_of[trace->object[i]] = number + 1;
                making->bytes_of[trace->object[i]] = asked_bytes(trace, i);
                if (number >= SOURCES_FIXED) {
                        uint64_t bytes = min_of(asked_bytes(trace, i), (uint64_t)source->given);

                        making->bytes_of[trace->object[i]] = bytes;
                        source->object_bytes = max_of(source->object_bytes, (uint32_t)bytes);
                }
        }
}

/* The least alignment that makes the recorded stride of the recorded size, or 0. */
static unsigned int align_for(uint32_t bytes, uint32_t stride)
{
        for (unsigned int align = sizeof(void *); align <= ALIGN_MOST; align *= 2)
                if (round_up(bytes, align) == stride)
                        return align;
        return 0;
}

static void make_cache(struct source *source)
{
        unsigned int align = align_for(source->object_bytes, source->given);
        struct kmem_cache_args args = {.align = align};
        uint32_t bytes = source->object_bytes;

        /* Engine slob packs objects by size alone, as the kernel's slob did. */
        if (!align && source->given > bytes)
                bytes = source->given;
        source->cache = kmem_cache_create_args(source->name, bytes, &args, 0);
        if (!source->cache)
                die("cannot make cache %s of %u bytes", source->name, bytes);
        source->uncached = source->cache->engine->caching == CACHING_NONE;
        source->large = source->uncached && source->cache->size >= PAGE_SIZE;
}

static void make_caches(struct replay *replay)
{
        struct kmem_cache *sizes = need(class_cache(CLASS_KMALLOC, 8));

        replay->sources[SOURCE_SIZES].uncached = sizes->engine->caching == CACHING_NONE;
        for (uint32_t i = SOURCE_LARGE_SIZES; i < SOURCES_FIXED; i++) {
                replay->sources[i].uncached = true;
                replay->sources[i].large = true;
        }
        for (uint32_t i = SOURCES_FIXED; i < replay->source_count; i++)
                make_cache(&replay->sources[i]);
}

static uint32_t take_place(struct making *making)
{
        if (making->free_place_count)
                return making->free_places[--making->free_place_count];
        if (making->replay->places == INT32_MAX)
                die("more than %d objects%s", INT32_MAX,
                    making->places == PLACES_REUSED ? " live at once" : "");
        return making->replay->places++;
}

static void add_step(struct making *making, uint64_t record, bool frees)
{
        const struct trace *trace = making->trace;
        struct replay *replay = making->replay;
        uint32_t object = trace->object[record];

        if (!frees)
                making->place_of[object] = take_place(making);
        replay->steps[replay->steps_count++] = (struct step){
                .time = trace->time[record],
                .bytes = making->bytes_of[object],
                .place = making->place_of[object] & INT32_MAX,
                .frees = frees,
                .cpu = trace->cpu[record],
                .source = (uint16_t)(making->source_of[object] - 1),
        };
        if (frees && making->places == PLACES_REUSED)
                making->free_places[making->free_place_count++] = making->place_of[object];
}

static void make_steps(struct making *making)
{
        struct replay *replay = making->replay;
        const struct trace *trace = making->trace;

        for (uint64_t i = 0; i < trace->records; i++) {
                enum trace_operation operation = operation_of(trace, i);

                if (operation == TRACE_ORPHAN) {
                        replay->orphans++;
                        continue;
                }
                replay->implied_frees += operation == TRACE_IMPLIED;
                if (begins_life(operation))
                        replay->allocations++;
                else
                        replay->frees++;
                add_step(making, i, !begins_life(operation));
        }
}

void replay_prepare(struct replay *replay, const struct trace *trace, enum places places)
{
        size_t objects = trace->objects + 1;
        struct making making = {
                .replay = replay,
                .trace = trace,
                .strides = need(calloc(STRIDES, sizeof(struct stride))),
                .has_stride = need(calloc((size_t)trace->caches.count + 1, sizeof(bool))),
                .source_of = need(calloc(objects, sizeof(uint32_t))),
                .bytes_of = need(calloc(objects, sizeof(uint64_t))),
                .place_of = need(calloc(objects, sizeof(uint32_t))),
                .free_places = need(calloc(objects, sizeof(uint32_t))),
                .places = places,
        };

        *replay = (struct replay){
                .trace_cpus = max_of(trace->cpus, 1u),
                .of_program = trace_is_of_program(trace),
        };
        replay->steps = need(calloc(trace->records + 1, sizeof(*replay->steps)));
        for (int i = 0; i < SOURCES_FIXED; i++)
                add_source(replay, "", 0, false);
        find_sources(&making);
        make_caches(replay);
        make_steps(&making);
        free(making.strides);
        free(making.has_stride);
        free(making.source_of);
        free(making.bytes_of);
        free(making.place_of);
        free(making.free_places);
}
