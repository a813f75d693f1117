/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A scenario: what is there before the threads begin, what each of them does, and what must be true
 * when they have ended. Setup and check run alone. A thread must end in every schedule.
 */
#ifndef KMEM_EXPLORE_SCENARIO_H
#define KMEM_EXPLORE_SCENARIO_H

#include "kmem.h"
#include "place.h"

enum { THREADS_MAX = 4 };

struct scenario {
        const char *name;
        const char *about;   /* what runs against what, in a line */
        const char *options; /* KMEM_OPTIONS of its heap */
        void (*setup)(void);
        void (*thread[THREADS_MAX])(void);
        unsigned int cpu[THREADS_MAX]; /* of each thread; those of the same CPU abort each other */
        unsigned int nodes;            /* 0: one */
        unsigned int usable;           /* CPUs that the process may use, for locked slots; 0: all */
        unsigned int forks;            /* calls of explore_fork */
        bool cold;                     /* the heap is not up when the threads begin: no setup */
        unsigned int refusals;         /* requests for memory of its threads that may be refused */
        void (*check)(void);           /* NULL: check_empty() of the scenario's cache */
        bool woken;                    /* no wait may end by its time: a wake-up is lost then */
        bool large;                    /* `make test` runs it with one preemption, not with two */
};

/* Whether the running thread's request for memory at that place is refused (search.c). No point. */
bool search_refuses(const struct place *place);

/* The tables of the files in scenarios/, each ended by an entry without a name; NULL at the end. */
extern const struct scenario *const scenario_tables[];

/* A child of fork begins: its figures must not go into its parent's registry (registry/registry.c). */
void registry_begin_child(void);

/* A registry is made at the next look for one (registry/registry.c). */
extern bool registry_due;

/* The cache of most scenarios; check_empty() looks at it and ends it. */
extern struct kmem_cache *cache;

/* Makes the cache with objects of that size. Option sheaf_capacity says how large sheaves are. */
void make_cache(unsigned int size);

/*
 * The oracle's books. take: kmem_cache_alloc, and nobody else has the object. give: kmem_cache_free
 * of an object that take has returned. Both may be called by threads.
 */
void *take(void);
void give(void *object);
/* As take; NULL if there is no memory. */
void *take_if_any(void);
/* For objects that come and go by other calls. */
void take_notes(const void *object);
void give_notes(const void *object);
/* Calls of take and give that are under way. */
extern unsigned int calls_under_way;
/* Gives back all objects that threads have; returns how many the cache counts as in use then. */
unsigned int give_all(void);

/*
 * No object is out, the figures of the cache say so, and every slab goes back when the cache is
 * shrunk; then the cache is ended.
 */
void check_empty(void);

#define CHECK(condition)                                                                           \
        do {                                                                                       \
                if (!(condition))                                                                  \
                        explore_fail("%s:%d: not true: %s", __FILE__, __LINE__, #condition);       \
        } while (0)

#endif
