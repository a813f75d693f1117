/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Release, acquire and relaxed accesses, read-modify-writes and fences, by views: the operational model
 * of Kang, Hur, Lahav, Vafeiadis and Dreyer, "A promising semantics for relaxed-memory concurrency"
 * (POPL 2017), without promises and with stores in the order in which the search makes them.
 *
 * Memory has the newest value of every location, an aligned word of 4 bytes. A location also keeps
 * its last STORES_KEPT stores. A load may read any of them that is not older than one which the thread
 * knows: that it wrote or read itself, or that a thread knew at a point which happens before the load.
 * Points that happen before are a vector clock, the thread's view.
 *
 *  - A release store carries its thread's view; a relaxed store carries the view at the thread's last
 *    release fence. A read-modify-write reads the newest store and carries that store's view too, so
 *    it continues a release sequence.
 *  - An acquire load takes the view that its store carries. A relaxed load keeps it until the thread's
 *    next acquire fence.
 *  - A sequentially consistent fence acquires and releases, and joins the view of all such fences in
 *    the order of their execution. So these fences are in a total order.
 *  - A sequentially consistent access is here no more than acquire and release. C11 orders it also with
 *    others of its kind, of which the library has no loads.
 *
 * A load that reads another than the newest store is a stale read, a delay of the schedule (search.h).
 * To miss a store again before the thread gives way is the same delay.
 *
 * What C11 allows and this model does not: a load that reads a store which is made later (load buffering),
 * a store that goes in front of an older one of its location (2+2W), and a failed compare-and-swap that
 * read a stale value. It does not follow dependencies: it allows stale reads that the processors do not
 * make where an address depends on a load.
 *
 * Plain accesses have the newest value. A plain store over a location makes it new: all threads see it,
 * because plain accesses do not race (ThreadSanitizer's to find).
 */
#include "views.h"

#include "search.h"

#include <string.h>

enum {
        STORES_KEPT = 4, /* of a location */
        LOCATION_SHIFT = 2,
        LOCATION_BYTES = 1 << LOCATION_SHIFT,
        LOCATIONS_SHIFT = 13,
        LOCATIONS = 1 << LOCATIONS_SHIFT,
        ACCESS_LOCATIONS_MAX = 5, /* 16 bytes, at any address */
};

/* For each thread the number of its steps that happen before. */
struct view {
        uint32_t step[THREADS_MAX];
};

struct stored {
        const struct place *place;
        uint64_t number; /* of all stores in the order of execution; 0: before all */
        struct view carried;
        uint32_t known[THREADS_MAX]; /* step at which the thread first wrote or read it; 0: never */
        uint32_t missed[THREADS_MAX]; /* turn in which the thread last missed it; 0: never */
        char value[LOCATION_BYTES];
};

/* Stores oldest first. */
struct location {
        uintptr_t key;
        unsigned int count;
        struct stored stored[STORES_KEPT];
};

struct thread_views {
        struct view now;
        struct view at_acquire_fence; /* what relaxed loads have read, in addition */
        struct view at_release_fence; /* of the last one */
        uint32_t turns;               /* times that the thread gave way */
};

static struct location locations[LOCATIONS];
static struct thread_views views[THREADS_MAX];
static struct view fences; /* of all sequentially consistent ones */
static uint64_t stores;

static bool acquires(int order)
{
        return order == __ATOMIC_ACQUIRE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

static bool releases(int order)
{
        return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

static void join(struct view *view, const struct view *other)
{
        for (int i = 0; i < THREADS_MAX; i++)
                view->step[i] = max_of(view->step[i], other->step[i]);
}

static void make_step(int thread)
{
        views[thread].now.step[thread]++;
}

/* ---- Locations ---------------------------------------------------------------------------- */

static const char *location_start(const struct location *location)
{
        return (const char *)(location->key << LOCATION_SHIFT);
}

static struct stored *newest(struct location *location)
{
        return &location->stored[location->count - 1];
}

static struct location *find_location(uintptr_t key)
{
        size_t at = (key * 0x9e3779b97f4a7c15) >> (64 - LOCATIONS_SHIFT);

        for (size_t tried = 0; tried < LOCATIONS; tried++, at = (at + 1) % LOCATIONS) {
                if (!locations[at].key)
                        locations[at].key = key;
                if (locations[at].key == key)
                        return &locations[at];
        }
        explore_fail("the explorer's table of locations is full: expected fewer than %d",
                     LOCATIONS);
}

/* The locations of an access; of those with a plain store behind their stores, that is the only one. */
static unsigned int find_locations(struct location **found, const volatile void *address,
                                   size_t bytes)
{
        uintptr_t first = (uintptr_t)address >> LOCATION_SHIFT;
        uintptr_t last = ((uintptr_t)address + bytes - 1) >> LOCATION_SHIFT;

        if (last - first >= ACCESS_LOCATIONS_MAX)
                explore_fail("an access of %zu bytes: expected at most 16", bytes);
        for (uintptr_t key = first; key <= last; key++) {
                struct location *location = find_location(key);
                const char *start = location_start(location);

                if (!location->count || memcmp(newest(location)->value, start, LOCATION_BYTES)) {
                        location->count = 1;
                        location->stored[0] = (struct stored){0};
                        memcpy(location->stored[0].value, start, LOCATION_BYTES);
                }
                found[key - first] = location;
        }
        return (unsigned int)(last - first + 1);
}

/* The newest store that is not behind that number. */
static unsigned int store_at(const struct location *location, uint64_t number)
{
        unsigned int i = location->count - 1;

        while (i && location->stored[i].number > number)
                i--;
        return i;
}

/* ---- Loads -------------------------------------------------------------------------------- */

static bool knows(int thread, const struct stored *stored)
{
        for (int i = 0; i < THREADS_MAX; i++)
                if (stored->known[i] && stored->known[i] <= views[thread].now.step[i])
                        return true;
        return false;
}

/* Whether the thread may read older stores than this one: it knows neither it nor a newer one. */
static bool may_miss(int thread, const struct location *location, unsigned int number)
{
        if (!number)
                return false;
        for (unsigned int i = number; i < location->count; i++)
                if (knows(thread, &location->stored[i]))
                        return false;
        return true;
}

static void read_store(int thread, struct stored *stored, int order)
{
        if (!stored->known[thread])
                stored->known[thread] = views[thread].now.step[thread];
        join(&views[thread].at_acquire_fence, &stored->carried);
        if (acquires(order))
                join(&views[thread].now, &stored->carried);
}

/*
 * The search chooses up to which store of those to the locations the thread sees. An access of several
 * locations sees all of them at one moment.
 */
static uint64_t choose_number(int thread, const struct place *place, struct location **found,
                              unsigned int count)
{
        uint32_t turn = views[thread].turns + 1;
        uint64_t number = UINT64_MAX;

        for (;;) {
                struct stored *last = NULL;

                for (unsigned int i = 0; i < count; i++) {
                        struct stored *stored = &found[i]->stored[store_at(found[i], number)];

                        if (!last || stored->number > last->number)
                                last = stored;
                }
                for (unsigned int i = 0; i < count; i++) {
                        unsigned int at = store_at(found[i], number);

                        if (found[i]->stored[at].number == last->number &&
                            !may_miss(thread, found[i], at))
                                return number;
                }
                if (!search_delays(last->place, "is not seen by", place,
                                   last->missed[thread] != turn))
                        return number;
                last->missed[thread] = turn;
                number = last->number - 1;
        }
}

void views_load(int thread, const struct place *place, const volatile void *address, void *value,
                size_t bytes, int order)
{
        struct location *found[ACCESS_LOCATIONS_MAX];
        unsigned int count = find_locations(found, address, bytes);
        char seen[ACCESS_LOCATIONS_MAX * LOCATION_BYTES];
        uint64_t number;

        make_step(thread);
        number = choose_number(thread, place, found, count);
        for (unsigned int i = 0; i < count; i++) {
                struct stored *stored = &found[i]->stored[store_at(found[i], number)];

                memcpy(seen + i * LOCATION_BYTES, stored->value, LOCATION_BYTES);
                read_store(thread, stored, order);
        }
        memcpy(value, seen + (uintptr_t)address % LOCATION_BYTES, bytes);
}

void views_read_newest(int thread, const volatile void *address, size_t bytes, int order)
{
        struct location *found[ACCESS_LOCATIONS_MAX];
        unsigned int count = find_locations(found, address, bytes);

        make_step(thread);
        for (unsigned int i = 0; i < count; i++)
                read_store(thread, newest(found[i]), order);
}

/* ---- Stores ------------------------------------------------------------------------------- */

static void add_store(int thread, const struct place *place, struct location *location,
                      const struct view *carried)
{
        struct stored *added;

        if (location->count == STORES_KEPT) {
                location->count--;
                memmove(&location->stored[0], &location->stored[1],
                        location->count * sizeof(location->stored[0]));
        }
        added = &location->stored[location->count++];
        *added = (struct stored){.place = place, .number = stores, .carried = *carried};
        added->known[thread] = views[thread].now.step[thread];
        memcpy(added->value, location_start(location), LOCATION_BYTES);
}

static const struct view *released_view(int thread, int order)
{
        return releases(order) ? &views[thread].now : &views[thread].at_release_fence;
}

void views_changed(int thread, const struct place *place, const volatile void *address,
                   size_t bytes, int order)
{
        uintptr_t first = (uintptr_t)address >> LOCATION_SHIFT;
        uintptr_t last = ((uintptr_t)address + bytes - 1) >> LOCATION_SHIFT;

        stores++;
        for (uintptr_t key = first; key <= last; key++) {
                struct location *location = find_location(key);
                struct view carried = *released_view(thread, order);

                join(&carried, &newest(location)->carried);
                add_store(thread, place, location, &carried);
        }
}

void views_store(int thread, const struct place *place, volatile void *address, const void *value,
                 size_t bytes, int order)
{
        struct location *found[ACCESS_LOCATIONS_MAX];
        unsigned int count = find_locations(found, address, bytes);

        make_step(thread);
        memcpy((char *)(uintptr_t)address, value, bytes);
        stores++;
        for (unsigned int i = 0; i < count; i++)
                add_store(thread, place, found[i], released_view(thread, order));
}

/* ---- Fences ------------------------------------------------------------------------------- */

void views_fence(int thread, int order)
{
        struct thread_views *own = &views[thread];

        make_step(thread);
        if (acquires(order))
                join(&own->now, &own->at_acquire_fence);
        if (order == __ATOMIC_SEQ_CST) {
                join(&own->now, &fences);
                fences = own->now;
        }
        if (releases(order))
                own->at_release_fence = own->now;
}

void views_fence_all(void)
{
        for (int round = 0; round < 2; round++)
                for (int thread = 0; thread < THREADS_MAX; thread++)
                        views_fence(thread, __ATOMIC_SEQ_CST);
}

void views_follow(int thread, int before)
{
        views_fence(before, __ATOMIC_SEQ_CST);
        views_fence(thread, __ATOMIC_SEQ_CST);
}

void views_give_way(int thread)
{
        views[thread].turns++;
}

/* ---- Plain accesses ------------------------------------------------------------------------ */

/* A release carries the steps up to its own: plain accesses behind it belong to the next. */
uint32_t views_epoch(int thread)
{
        return views[thread].now.step[thread] + 1;
}

bool views_knows(int thread, int other, uint32_t epoch)
{
        return views[thread].now.step[other] >= epoch;
}
