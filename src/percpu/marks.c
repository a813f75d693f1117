/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Samples of a heap profile as marks in sheaves: deciding which objects become samples, and moving
 * sheaves with marks in and out of pairs. marks.h has the invariants.
 */
#include "percpu/marks.h"

#include "account/group.h"
#include "kmem.h"
#include "page/reclaim.h"
#include "percpu/drain.h"
#include "percpu/handed.h"
#include "percpu/percpu.h"
#include "percpu/stock.h"
#include "profile/draw.h"
#include "record/record.h"

#include <string.h>

enum {
        PUT_TRIES = 4,
        GATE_TRIES = 8, /* classes that an opening looks at */
        GATE_NS = 5000,
        LEAST_CLASS = 4, /* the logarithm of the sizes in bytes that an opening draws */
        CLASSES = 9,
};

bool marks_made;

static const struct pair no_sheaves = {&cold_sheaf, &cold_sheaf};

/*
 * Whether objects of the cache may have owners. A cache that is closed only for check=sheaf has
 * none until there are groups or a recording; then it has owners at once.
 */
static bool may_have_owners(const struct kmem_cache *cache)
{
        return cache_is_closed(cache) &&
               (!cache_is_checked(cache) || process_group || groups_are_on() || is_recording());
}

/*
 * Whether objects of the cache may be samples. A sample has neither the red zones of a debug cache
 * nor the owners of a closed cache, and readers may look at freed objects of a type-safe cache.
 * Engines without samples leave all objects undecided.
 */
static bool can_sample(const struct kmem_cache *cache)
{
        return cache->engine->samples && !may_have_owners(cache) &&
               !(cache->flags & SLAB_TYPESAFE_BY_RCU) && cache->size <= SAMPLE_BYTES_MAX &&
               !load_relaxed(&cache->skip_kfence);
}

/* How many objects come before the next sample. */
static uint32_t gap_of(const struct kmem_cache *cache)
{
        uint64_t interval = load_relaxed(&profile_interval);

        return interval && can_sample(cache) ? draw_gap(cache->object_size, interval) : UINT32_MAX;
}

/*
 * What the slot's last refill of the cache has left of its gap. Gaps have no memory, so a gap may go on
 * from refill to refill, and most refills draw nothing. Another thread on the slot may have read it too;
 * then the objects of one of both are left out of the count, which moves a sample.
 */
static uint64_t gap_left(const struct kmem_cache *cache, const struct slot_cache *record,
                         uint64_t interval)
{
        return interval && load_relaxed(&record->gap_interval) == interval
                       ? load_relaxed(&record->sample_gap)
                       : gap_of(cache);
}

void marks_decide(struct kmem_cache *cache, struct slot_cache *record, void **objects,
                  unsigned int count)
{
        uint64_t interval = load_relaxed(&profile_interval);
        uint64_t at = can_sample(cache) ? gap_left(cache, record, interval) : UINT32_MAX;

        /* Slices of a profile must begin even if nothing is ever drained. */
        if (load_relaxed(&profile_slices))
                reclaim_ask();
        for (; at < count; at += 1 + (uint64_t)gap_of(cache)) {
                /* MARK-3. Release, with marks_exist. */
                store_release(&marks_made, true);
                objects[at] = object_without_fresh(objects[at]); /* FRESH-2 */
                cache->engine->give(cache, &record->engine, &objects[at], 1);
                objects[at] = NULL;
        }
        /* Of a gap that has no room in 32 bits only this part is known: another is drawn. */
        store_relaxed(&record->gap_interval, at < UINT32_MAX ? interval : 0);
        store_relaxed(&record->sample_gap, (uint32_t)(at - count));
}

/*
 * A sheaf from the time before the cache was closed, or before sampling ended, may still have
 * marks.
 */
void *marks_sample(struct kmem_cache *cache)
{
        if (!can_sample(cache))
                return NULL;
        if (is_profiling())
                return sample_alloc(cache);
        return load_relaxed(&cache->guard_rate) ? guard_alloc(cache) : NULL;
}

/* How many more objects come before the next guard; each is guarded with a chance of 1 / rate. */
static uint32_t guard_gap(struct kmem_cache *cache, struct slot_cache *record)
{
        uint32_t rate = max_of(load_relaxed(&cache->guard_rate), 1u);
        uint32_t gap = load_relaxed(&record->guard_gap);

        /* None was drawn, or it was drawn for a rate that was higher by far. */
        if (!gap || gap / 32 > rate) {
                gap = 1 + (rate == 1 ? 0 : draw_gap(2, 2 * (uint64_t)rate - 1));
                store_relaxed(&record->guard_gap, gap);
        }
        return gap - 1;
}

/* The objects up to the next guard are fewer by @count; all of them: another gap is drawn. */
static void pass(struct slot_cache *record, uint32_t gap, uint32_t count)
{
        store_relaxed(&record->guard_gap, count > gap ? 0 : gap - count + 1);
}

bool marks_fall_in(struct kmem_cache *cache, struct slot_cache *record, const struct pair *pair)
{
        uint32_t size = load_relaxed(&spare_of(pair)->size);
        uint32_t gap = guard_gap(cache, record);

        if (gap < size)
                return true;
        pass(record, gap, size);
        return false;
}

void *marks_decide_guards(struct kmem_cache *cache, struct slot_cache *record, struct sheaf *sheaf,
                          void *object)
{
        uint32_t gap = guard_gap(cache, record);
        uint32_t at;

        /* The object is a mark already; all others are decided anew. */
        marks_drop(sheaf);
        at = sheaf->size;
        if (object && gap == 0) {
                objects_give(cache, record, &object, 1);
                object = NULL;
                pass(record, gap, 1);
                gap = guard_gap(cache, record);
        } else if (object) {
                pass(record, gap--, 1);
        }
        while (gap < at) {
                at -= gap + 1;
                /* MARK-3. Release, with marks_exist. */
                store_release(&marks_made, true);
                objects_give(cache, record, &sheaf->object[at], 1);
                sheaf->object[at] = NULL;
                pass(record, gap, gap + 1);
                gap = guard_gap(cache, record);
        }
        pass(record, gap, at);
        return object;
}

/* A size class whose objects the slot has handed out and has more of; NULL if this draw finds none. */
static struct kmem_cache *draw_class(const struct slot *slot)
{
        uint32_t bits = LEAST_CLASS + draw_gap(1, 1 << 20) % CLASSES;
        uint32_t size = (1u << bits) + draw_gap(1, 1 << 20) % (1u << bits);
        /* Relaxed: a class that malloc has not used yet has no entry there. */
        uint32_t of_malloc = load_relaxed(&front()->malloc_class[(size - 1) >> CLASS_STEP_SHIFT]);
        uint32_t offset =
                of_malloc ? of_malloc
                          : load_relaxed(&front()->kmalloc_class[(size - 1) >> CLASS_STEP_SHIFT]);
        /* Acquire, with percpu_setup. A size class stays. */
        struct kmem_cache *cache = load_acquire(&caches_by_index[offset >> PAIR_SHIFT]);
        struct pair pair;

        if (!cache || !guards_are_on(cache) || !slot_peek(slot, cache_index(cache)))
                return NULL;
        pair = slot_read_pair((struct slot *)slot, sheaf_offset(cache));
        return sheaf_is_cold(pair.main) || spare_is_marked(&pair) ? NULL : cache;
}

void marks_gate_slow(struct slot *slot)
{
        uint64_t rate = load_relaxed(&guard_gate_rate);
        uint64_t now = system_time_ms();

        if (now < load_relaxed(&slot->guard_time) || slot == &shared_slot)
                return;
        store_relaxed(&slot->guard_time, now + max_of(rate * GATE_NS / 1000000, (uint64_t)1));
        for (unsigned int tries = 0; tries < GATE_TRIES; tries++) {
                struct kmem_cache *cache = draw_class(slot);

                if (cache) {
                        marks_put(cache);
                        return;
                }
        }
}

void *marks_guard_one(struct kmem_cache *cache, struct slot_cache *record)
{
        uint32_t gap = guard_gap(cache, record);

        pass(record, gap, 1);
        return gap == 0 ? guard_alloc(cache) : NULL;
}

bool guards_are_on_slow(const struct kmem_cache *cache)
{
        return can_sample(cache) && !is_profiling();
}

void *marks_alloc_one(struct kmem_cache *cache)
{
        return gap_of(cache) ? NULL : sample_alloc(cache);
}

unsigned int marks_serve(struct kmem_cache *cache, struct slot_cache *record, void **objects,
                         unsigned int count)
{
        unsigned int served = 0;

        for (unsigned int i = 0; i < count; i++) {
                void *object = likely(objects[i]) ? objects[i] : marks_sample(cache);

                if (likely(object || cache->engine->take(cache, &record->engine, &object, 1)))
                        objects[served++] = object;
        }
        return served;
}

/* The position of the topmost mark, plus 1; 0 if there is none. */
static uint32_t find_mark(const struct sheaf *sheaf)
{
        uint32_t at = sheaf->size;

        while (at && sheaf->object[at - 1])
                at--;
        return at;
}

static struct sheaf *marked(struct sheaf *sheaf)
{
        return (struct sheaf *)((uintptr_t)sheaf | 1);
}

bool marks_split(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                 const struct pair *pair, struct sheaf *sheaf)
{
        uint32_t mark = find_mark(sheaf);
        uint32_t above = sheaf->size - mark;
        struct sheaf *top =
                mark && !load_relaxed(&pair->main->size) ? barn_take_empty(cache) : NULL;
        struct pair new_pair = {.main = top, .spare = marked(sheaf)};

        if (!mark)
                return false;
        if (!top || above > top->capacity) {
                percpu_put_away(cache, slot, record, sheaf);
                if (top)
                        barn_put_empty(cache, top);
                return true;
        }
        memcpy(top->object, &sheaf->object[mark], above * sizeof(*top->object));
        sheaf_set_size(top, above);
        sheaf_set_size(sheaf, mark);
        if (slot_replace(slot, sheaf_offset(cache), pair, &new_pair)) {
                percpu_put_away(cache, slot, record, pair->main);
                percpu_put_away(cache, slot, record, spare_of(pair));
        } else {
                percpu_put_away(cache, slot, record, top);
                percpu_put_away(cache, slot, record, sheaf);
        }
        return true;
}

/* Fills the lower of two private sheaves with the oldest of the upper one. */
static void settle(struct sheaf *lower, struct sheaf *upper)
{
        uint32_t moved = min_of(upper->size, lower->capacity - lower->size);

        memcpy(&lower->object[lower->size], upper->object, moved * sizeof(*upper->object));
        sheaf_set_size(lower, lower->size + moved);
        sheaf_set_size(upper, upper->size - moved);
        memmove(upper->object, &upper->object[moved], upper->size * sizeof(*upper->object));
}

bool marks_merge(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                 const struct pair *pair, void *object)
{
        struct sheaf *main = pair->main;
        struct sheaf *spare = spare_of(pair);
        struct pair new_pair = {.main = main, .spare = marked(spare)};

        if (sheaf_is_cold(main) || !slot_replace(slot, sheaf_offset(cache), pair, &no_sheaves))
                return false;
        settle(spare, main);
        if (likely(main->size < main->capacity))
                sheaf_push(main, object);
        else
                objects_give(cache, record, &object, 1);
        if (!slot_replace(slot, sheaf_offset(cache), &no_sheaves, &new_pair)) {
                percpu_put_away(cache, slot, record, main);
                percpu_put_away(cache, slot, record, spare);
        }
        return true;
}

/*
 * Puts a mark on top of a private sheaf. If the sheaf is full, its newest object moves to a new
 * main.
 */
static void push_mark(struct kmem_cache *cache, struct slot_cache *record, struct sheaf *sheaf)
{
        if (sheaf->size == sheaf->capacity) {
                void *newest = sheaf_pop(sheaf);

                if (!slots_are_rseq() || rseq_push(sheaf_offset(cache), newest) != PUSH_DONE)
                        objects_give(cache, record, &newest, 1);
        }
        /* MARK-3. Release, with marks_exist. */
        store_release(&marks_made, true);
        sheaf_push(sheaf, NULL);
}

/*
 * Main moves into the spare, as far as there is room, and the sheaf left over is full, empty or
 * cold. A sheaf with few objects would go to the back end, and here it would have few only because
 * of a mark. Then samples would vanish more often than other objects.
 */
static bool put_mark(struct kmem_cache *cache)
{
        struct slot *slot = slot_current();
        struct slot_cache *record = slot_record(&slot, cache);
        struct pair pair, alone, new_pair;
        struct sheaf *empty, *top, *rest;

        if (slot == &shared_slot)
                return false;
        pair = slot_read_pair(slot, sheaf_offset(cache));
        empty = sheaf_is_cold(pair.main) ? NULL : barn_take_empty(cache);
        if (!empty)
                return false;
        alone = (struct pair){.main = empty, .spare = &cold_sheaf};
        if (!slot_replace(slot, sheaf_offset(cache), &pair, &alone)) {
                barn_put_empty(cache, empty);
                return false;
        }
        top = pair.main;
        rest = spare_of(&pair);
        if (!sheaf_is_cold(rest)) {
                settle(rest, top);
                if (!top->size && rest->size < rest->capacity) {
                        top = rest;
                        rest = pair.main;
                }
        }
        push_mark(cache, record, top);
        new_pair = (struct pair){.main = empty, .spare = marked(top)};
        if (!slot_replace(slot, sheaf_offset(cache), &alone, &new_pair))
                percpu_put_away(cache, slot, record, top);
        /* It is full, empty or cold. */
        percpu_put_away(cache, slot, record, rest);
        return true;
}

void marks_put(struct kmem_cache *cache)
{
        percpu_after_fork();
        if (!(is_profiling() || guards_are_on(cache)) || !can_sample(cache) ||
            !load_relaxed(&cache->sheaf_capacity))
                return;
        /*
         * The thread may have moved, or another thread may have taken the sheaves out for a moment.
         */
        for (unsigned int tries = 0; tries < PUT_TRIES; tries++)
                if (put_mark(cache))
                        return;
        /* Here the back end would have taken an object, so the mark vanishes. */
}

void marks_drop(struct sheaf *sheaf)
{
        uint32_t kept = 0;

        for (uint32_t i = 0; i < sheaf->size; i++)
                if (likely(sheaf->object[i]))
                        sheaf->object[kept++] = sheaf->object[i];
        sheaf_set_size(sheaf, kept);
}

/*
 * ThreadSanitizer leaves this function alone: the owner of the sheaf writes whole pointers, by plain stores
 * and copies, and a count of pointers that are not NULL may be as old as the sheaf's size.
 */
__attribute__((no_sanitize_thread)) uint32_t marks_count(const struct sheaf *sheaf, uint32_t size)
{
        uint32_t objects = 0;

        for (uint32_t i = 0; i < size; i++)
                objects += load_relaxed(&sheaf->object[i]) != NULL;
        return objects;
}
