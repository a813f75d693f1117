/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Many objects at once. Pointers move between the array and the main sheaf in one sequence; the
 * rest moves by whole sheaves, and less than a sheaf straight to or from the back end.
 */
#include "percpu/percpu.h"

#include "machine/fatal.h"
#include "machine/message.h"
#include "base/options.h"
#include "percpu/array.h"
#include "percpu/calls.h"
#include "percpu/drain.h"
#include "percpu/kernel_rule.h"
#include "percpu/marks.h"
#include "percpu/stock.h"

#include <string.h>

/* Locked slots take single steps: each step locks its slot for an object. */
static unsigned int pop_some(struct kmem_cache *cache, void **objects, unsigned int count)
{
        unsigned int taken = 0;

        if (slots_are_rseq())
                return rseq_pop_bulk(sheaf_offset(cache), objects, count);
        while (taken < count && (objects[taken] = locked_slot_pop(sheaf_offset(cache))))
                taken++;
        return taken;
}

static unsigned int push_some(struct kmem_cache *cache, void **objects, unsigned int count)
{
        unsigned int pushed = 0;

        if (slots_are_rseq())
                return rseq_push_bulk(sheaf_offset(cache), objects, count);
        while (pushed < count &&
               locked_slot_push(sheaf_offset(cache), objects[pushed]) == PUSH_DONE)
                pushed++;
        return pushed;
}

/*
 * Objects for a request that the main sheaf does not cover: a whole sheaf from stock or barn, or up
 * to @count objects from the back end. 0 without memory.
 */
static unsigned int take_many(struct kmem_cache *cache, struct slot *slot,
                              struct slot_cache *record, void **objects, unsigned int count)
{
        struct sheaf *sheaf;
        unsigned int taken;

        sheaf = load_relaxed(&cache->sheaf_capacity) && slot != &shared_slot
                        ? percpu_take_full(cache, slot, record)
                        : NULL;
        if (!sheaf) {
                taken = cache->engine->take(cache, &record->engine, objects, count);
                if (is_profiling())
                        marks_decide(cache, record, objects, taken);
        } else {
                taken = min_of(sheaf->size, count);
                sheaf_set_size(sheaf, sheaf->size - taken);
                memcpy(objects, &sheaf->object[sheaf->size], taken * sizeof(*objects));
                percpu_put_away(cache, slot, record, sheaf);
        }
        return marks_exist() ? marks_serve(cache, record, objects, taken) : taken;
}

/*
 * Whether a bulk request of @wanted more objects goes on by a single call, which installs a sheaf for
 * the rest. A request for less than half a sheaf is worth a refill. By the kernel's rule only the
 * slot's spare or the barn gives a sheaf, and the rest comes straight from slabs (S13-08).
 */
static bool goes_on_by_sheaf(struct kmem_cache *cache, struct slot *slot, unsigned int wanted)
{
        struct pair pair;

        if (!cache->sheaves_as_7_0)
                return wanted * 2 < load_relaxed(&cache->sheaf_capacity);
        pair = slot_read_pair(slot, sheaf_offset(cache));
        /* Relaxed peeks: a stale size costs a refill or a sheaf less. Only rseq has looked at main. */
        return (!slots_are_rseq() && load_relaxed(&pair.main->size)) ||
               load_relaxed(&spare_of(&pair)->size) || load_relaxed(&barn_here(cache)->full_size);
}

/*
 * Whether the objects that the sheaves of a slot have no room for go straight to slabs: by the
 * kernel's rule, when the barn cannot take a full sheaf for an empty (S13-08).
 */
static bool overflows(struct kmem_cache *cache, const struct pair *pair)
{
        const struct barn *barn = barn_here(cache);

        if (!cache->sheaves_as_7_0 || sheaf_is_cold(pair->main))
                return false;
        return !load_relaxed(&barn->empty_size) ||
               (!sheaf_is_cold(pair->spare) && !barn_has_room(barn));
}

/* Pushes onto main what it has room for, and counts it. */
static unsigned int push_counted(struct kmem_cache *cache, void **objects, unsigned int count)
{
        unsigned int pushed = push_some(cache, objects, count);

        count_sheaf_events(cache, FREE_FASTPATH, pushed);
        return pushed;
}

/* A slot's array is refilled and flushed batch by batch, as by single calls (S5-30). */
static bool goes_by_array(const struct kmem_cache *cache, const struct slot *slot)
{
        return cache->engine->caching == CACHING_ARRAY && load_relaxed(&cache->sheaf_capacity) &&
               slot != &shared_slot;
}

unsigned int percpu_alloc_bulk_slow(struct kmem_cache *cache, void **objects, unsigned int count)
{
        struct slot *slot = slot_current();
        struct slot_cache *record = slot_record(&slot, cache);
        unsigned int taken = 0;

        percpu_after_fork();
        while (taken < count) {
                unsigned int wanted = count - taken;
                unsigned int got = 0;

                if (goes_by_array(cache, slot)) {
                        got = array_alloc(cache, slot, record, objects + taken, wanted);
                } else if (goes_on_by_sheaf(cache, slot, wanted)) {
                        objects[taken] = percpu_alloc_slow(cache);
                        got = objects[taken] != NULL;
                        if (got && wanted > 1) {
                                unsigned int more =
                                        pop_some(cache, objects + taken + 1, wanted - 1);

                                count_sheaf_events(cache, ALLOC_FASTPATH, more);
                                got += more;
                        }
                } else {
                        struct pair pair = slot_read_pair(slot, sheaf_offset(cache));

                        if (load_relaxed(&spare_of(&pair)->size) &&
                            percpu_take_turns(slot, cache, &pair))
                                got = pop_some(cache, objects + taken, wanted);
                        if (!got)
                                got = take_many(cache, slot, record, objects + taken, wanted);
                }
                /* The way of a single object is the only one that looks for memory elsewhere. */
                if (unlikely(!got)) {
                        objects[taken] = percpu_alloc_slow(cache);
                        got = objects[taken] != NULL;
                }
                if (!got)
                        break;
                taken += got;
        }
        calls_leave(record, NULL, 0);
        return taken;
}

/* Gives back objects that have no room in the main sheaf: as a whole sheaf, or to the back end. */
static void give_many(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                      void **objects, unsigned int count)
{
        struct sheaf *sheaf = NULL;

        if (slot != &shared_slot && count == load_relaxed(&cache->sheaf_capacity))
                sheaf = stock_take_empty(cache, record);
        /* The capacity may have changed since the caller read it. */
        if (sheaf && unlikely(sheaf->capacity != count)) {
                stock_put_empty(cache, record, sheaf);
                sheaf = NULL;
        }
        if (!sheaf) {
                objects_give(cache, record, objects, count);
                return;
        }
        memcpy(sheaf->object, objects, count * sizeof(*objects));
        sheaf_set_size(sheaf, count);
        percpu_put_away(cache, slot, record, sheaf);
}

static KMEM_COLD void report_double_free(struct kmem_cache *cache, void *object)
{
        if (options.bad_free == BAD_FREE_IGNORE)
                message("kmem_cache_free_bulk(%s, %p): free already (double free); ignored",
                        cache->name, object);
        else
                fatal_call("kmem_cache_free_bulk(%s, %p): free already (double free)", cache->name,
                           object);
}

void percpu_free_bulk_slow(struct kmem_cache *cache, void **objects, unsigned int count)
{
        struct slot *slot = slot_current();
        struct slot_cache *record = slot_record(&slot, cache);
        unsigned int given = 0;

        percpu_after_fork();
        if (goes_by_array(cache, slot)) {
                array_free(cache, slot, record, objects, count);
                return;
        }
        if (looks_at_nodes(cache))
                count = give_remote(cache, record, objects, count);
        while (given < count) {
                unsigned int left = count - given;
                struct pair pair = slot_read_pair(slot, sheaf_offset(cache));
                uint32_t capacity = load_relaxed(&cache->sheaf_capacity);
                unsigned int got = 0;

                /* A closed cache's main was not looked at yet. */
                if (cache->sheaves_as_7_0 && !sheaf_is_cold(pair.main))
                        got = push_counted(cache, objects + given, left);
                if (!got &&
                    load_relaxed(&spare_of(&pair)->size) <
                            load_relaxed(&spare_of(&pair)->capacity) &&
                    percpu_take_turns(slot, cache, &pair))
                        got = push_counted(cache, objects + given, left);
                if (!got && overflows(cache, &pair)) {
                        got = left;
                        objects_give(cache, record, objects + given, got);
                } else if (!got && left >= capacity && !(capacity && cache->sheaves_as_7_0)) {
                        got = capacity ? capacity : left;
                        give_many(cache, slot, record, objects + given, got);
                } else if (!got) {
                        /* A single free by the slow path makes room for the others. */
                        if (!percpu_free_slow(cache, objects[given]))
                                report_double_free(cache, objects[given]);
                        got = 1;
                        if (left > 1)
                                got += push_counted(cache, objects + given + 1, left - 1);
                }
                given += got;
        }
        calls_leave(record, NULL, 0);
}

unsigned int percpu_free_own(struct kmem_cache *cache, void **objects, unsigned int count)
{
        struct slot *slot = slot_current();
        struct slot_cache *record = slot_record(&slot, cache);
        unsigned int others;

        percpu_after_fork();
        others = cache->engine->give(cache, &record->engine, objects, count);
        memmove(objects, objects + count - others, others * sizeof(*objects));
        return others;
}
