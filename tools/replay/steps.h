/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A trace as a list of steps, for the programs that replay a trace: on the simulated machine
 * (main.c, run.c) and in real time (real_time.c).
 */
#ifndef KMEM_TOOLS_REPLAY_STEPS_H
#define KMEM_TOOLS_REPLAY_STEPS_H

#include "engines/caches.h"
#include "heap/heap.h"
#include "tools/trace/trace.h"
#include "page/large.h"
#include "percpu/rest.h"

/* The origin of objects, by the number in a step. */
enum { SOURCE_SIZES, SOURCE_LARGE_SIZES, SOURCE_PAGES, SOURCES_FIXED };

struct source {
        struct kmem_cache *cache; /* NULL: kmalloc or pages */
        char name[CACHE_NAME_BYTES];
        uint32_t object_bytes; /* the most that the trace asks for */
        uint32_t given;        /* the recorded stride */
        bool uncached;         /* never served by a sheaf: every call takes a slow path */
        /*
         * Has pages of its own, and does not count as allocated bytes. A program's may be objects of
         * a class of pages instead (step_is_large).
         */
        bool large;
};

/* An event, with objects named by place. */
struct step {
        uint64_t time;  /* ns since the trace began */
        uint64_t bytes; /* that were asked for */
        uint32_t place : 31;
        uint32_t frees : 1;
        uint16_t cpu;
        uint16_t source;
};

struct replay {
        uint64_t steps_count;
        struct step *steps;
        uint32_t places;
        uint32_t source_count;
        struct source *sources;
        uint32_t trace_cpus;
        bool of_program;
        /* Counts of a single copy. */
        uint64_t allocations;
        uint64_t frees;
        uint64_t implied_frees; /* of `frees` */
        uint64_t orphans;       /* left out: frees of objects from before the trace began */
};

/* Memory that replay_prepare takes: for a record its step, for an object an entry in 4 tables. */
enum {
        STEPS_RECORD_BYTES = sizeof(struct step),
        STEPS_OBJECT_BYTES = sizeof(uint64_t) + 3 * sizeof(uint32_t),
};

/* Prints a line and ends the program. */
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* die for wrong arguments, with status 2. */
void refuse(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* Returns @memory; ends the program if it is NULL. */
void *need(void *memory);
/* The number of an argument NAME=VALUE, from 1 to @most; ends the program if it is no number. */
unsigned int number_of(const char *name, const char *value, unsigned int most);
/* Reads and checks a trace; ends the program if the file is no trace. */
void load_or_die(const char *path, const struct trace_demand *demand, struct trace *trace);

/* Whether malloc made all objects: a kernel's trace has caches beside kmalloc. */
static inline bool trace_is_of_program(const struct trace *trace)
{
        return trace->caches.count <= TRACE_CACHE_UNKNOWN + 1;
}

enum places {
        PLACES_REUSED,   /* a place is used again when its object is gone */
        PLACES_OF_LIVES, /* each object has a place of its own */
};

/* Makes steps, and the caches that they need. The heap has been started. */
void replay_prepare(struct replay *replay, const struct trace *trace, enum places places);

static inline void *step_alloc(const struct replay *replay, const struct step *step)
{
        const struct source *source = &replay->sources[step->source];

        if (source->cache)
                return kmem_cache_alloc(source->cache, GFP_NOWAIT);
        if (step->source == SOURCE_PAGES)
                return large_alloc(max_of(step->bytes, (uint64_t)1), PAGE_SIZE, false);
        /* Only malloc has classes of pages (class_cache_paged). */
        if (step->source == SOURCE_LARGE_SIZES && replay->of_program)
                return block_alloc(CLASS_MALLOC, step->bytes, false, NULL);
        return kmalloc(step->bytes, GFP_NOWAIT);
}

/* Whether malloc gave the object out of a class of pages, which has sheaves and stocks. */
static inline bool step_is_of_pages(const struct step *step, const void *object)
{
        const struct kmem_cache *cache =
                step->source == SOURCE_LARGE_SIZES ? cache_of(object) : NULL;

        return cache && cache_is_of_pages(cache);
}

/* Whether the object has pages of its own. It has not been freed yet. */
static inline bool step_is_large(const struct replay *replay, const struct step *step,
                                 const void *object)
{
        return replay->sources[step->source].large && !step_is_of_pages(step, object);
}

static inline void step_free(const struct replay *replay, const struct step *step, void *object)
{
        const struct source *source = &replay->sources[step->source];

        if (source->cache)
                kmem_cache_free(source->cache, object);
        else if (step->source == SOURCE_PAGES)
                large_free(object);
        else
                kfree(object);
}

#endif
