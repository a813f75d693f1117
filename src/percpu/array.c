/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The CPU array: a slot's objects of a cache with an engine of CACHING_ARRAY (S6-01). A refill
 * brings a batch in, a flush takes the oldest batch out, and the rest stays.
 *
 * Invariants:
 *  ARRAY-1  The cache's pair is {array, cold} or {cold, cold}. The array's capacity is the tunable
 *           limit, or the limit at the time when it was last taken out.
 *  ARRAY-2  In the pair, only pops and pushes change the array. To change it otherwise it is taken
 *           out, by replacing {array, cold} with {cold, cold}; from that commit on it is private
 *           (INV-3). It is put back by replacing {cold, cold} with {array, cold}.
 *  ARRAY-3  The slot cache lock is held from out to back, so that a second thread on the slot waits
 *           for the array instead of making another one.
 *
 * Opponents: pops and pushes on the slot, which find main cold while the array is out and come
 * here; a drainer, which takes the array out of the pair (INV-4); other slow paths of the slot,
 * kept out by the lock but while a constructor runs. Taking out fails if the thread has moved, the
 * slot is stopped or the pair has changed: the request is then served by the back end alone.
 * Putting back fails likewise, or if another array is there by now; then the objects go to the back
 * end and the array ends. Both replaces are sequences that, aborted, have changed nothing.
 *
 * The kernel sets a mark `touched` whenever an object is popped. Pops here do not know of it:
 * array_seen holds the size the reaper saw last, and an array of another size has been touched. An
 * array that has come back to exactly that size passes for untouched.
 */
#include "percpu/array.h"

#include "machine/probe.h"
#include "machine/system.h"
#include "percpu/percpu.h"
#include "percpu/stock.h"

#include <string.h>

enum {
        ARRAY_TOUCHED = -1,   /* in array_seen: a refill has set the mark */
        UNTOUCHED_BATCH = 16, /* most objects that an untouched array is refilled with (S6-31) */
        CHUNK = 64,           /* objects on the stack at a time: a batch of the default limit */
        REAP_FIRST_MS = 1000, /* S6-60 */
        REAP_MS = 2000,
};

static const struct pair no_array = {&cold_sheaf, &cold_sheaf};

/*
 * Takes out the slot's array, which is private then, or makes a new array if it has none. NULL if
 * the array cannot be had now, or without memory. The slot cache lock is held.
 */
static struct sheaf *take_out_locked(struct kmem_cache *cache, struct slot *slot,
                                     struct slot_cache *record)
{
        struct pair pair = slot_read_pair(slot, sheaf_offset(cache));

        /* Nothing can be put back while the slot is stopped, so no use for a new array. */
        if (unlikely(load_relaxed(&slot->stopped)))
                return NULL;
        if (!sheaf_is_cold(pair.main))
                return slot_replace(slot, sheaf_offset(cache), &pair, &no_array) ? pair.main : NULL;
        record->array_seen = 0;
        return sheaf_new(cache);
}

/*
 * Puts a private array into the pair and drops the slot cache lock. An array with another capacity
 * than the tunable limit ends instead (S6-51).
 */
static void put_back_locked(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                            struct sheaf *array)
{
        struct pair pair = {.main = array, .spare = &cold_sheaf};
        bool back = array->capacity == load_relaxed(&cache->sheaf_capacity) &&
                    slot_replace(slot, sheaf_offset(cache), &no_array, &pair);

        lock_drop(&record->engine.lock);
        if (back)
                return;
        sheaf_give(cache, record, array);
        sheaf_free(cache, array);
}

/* Single calls copy a single pointer. */
static inline void copy_objects(void **to, void *const *from, unsigned int count)
{
        if (count == 1)
                to[0] = from[0];
        else
                memcpy(to, from, count * sizeof(*to));
}

/*
 * Takes the oldest objects from the bottom of a private array; the rest shifts down (S6-41). Not
 * inlined: if gcc knows that the count is small it copies by rep movs, which takes longer for a
 * batch.
 */
static KMEM_NOINLINE unsigned int pull_oldest(struct sheaf *array, void **objects,
                                              unsigned int count)
{
        count = min_of(count, array->size);
        memcpy(objects, array->object, count * sizeof(*objects));
        sheaf_set_size(array, array->size - count);
        memmove(array->object, array->object + count, array->size * sizeof(*objects));
        return count;
}

/*
 * How many objects an empty array is refilled with (S6-31). If the caller wants more than a refill
 * (@wanted), so that the array would keep none, the amount is as many whole refills as the request
 * takes.
 */
static uint32_t refill_amount(const struct kmem_cache *cache, const struct slot_cache *record,
                              const struct sheaf *array, unsigned int wanted)
{
        uint32_t amount = min_of(load_relaxed(&cache->batchcount), array->capacity);

        if (!record->array_seen)
                return min_of(amount, (uint32_t)UNTOUCHED_BATCH);
        return wanted > amount && amount ? wanted - wanted % amount : amount;
}

/*
 * Takes the objects of a refill while the slot's array is private and empty. Several refills may be
 * taken at once, because each would go on where the last left off. If the back end makes a slab,
 * constructors run, which may allocate and so may need any lock. Then the lock is dropped, and
 * another thread may make an array meanwhile.
 */
static unsigned int refill_locked(struct kmem_cache *cache, struct slot_cache *record,
                                  void **objects, uint32_t amount)
{
        unsigned int taken;

        if (cache->ctor)
                lock_drop(&record->engine.lock);
        taken = cache->engine->take(cache, &record->engine, objects, amount);
        PROBE3(refill, cache->name, taken, cache->size);
        if (cache->ctor)
                lock_take(&record->engine.lock);
        record->array_seen = (uint32_t)ARRAY_TOUCHED;
        return taken;
}

/*
 * Takes objects out of a private array, refilled as often as need be. A refill that would leave
 * nothing in the array goes straight to the caller.
 */
static unsigned int take_private_locked(struct kmem_cache *cache, struct slot_cache *record,
                                        struct sheaf *array, void **objects, unsigned int count)
{
        unsigned int taken = 0;
        unsigned int got;

        while (taken < count) {
                unsigned int wanted = count - taken;
                uint32_t amount = refill_amount(cache, record, array, wanted);

                if (array->size) {
                        got = min_of(wanted, array->size);
                        sheaf_set_size(array, array->size - got);
                        copy_objects(objects + taken, array->object + array->size, got);
                } else if (wanted >= amount) {
                        got = refill_locked(cache, record, objects + taken, amount);
                        if (!got)
                                break;
                } else {
                        got = 0;
                        sheaf_set_size(array, refill_locked(cache, record, array->object, amount));
                        if (!array->size)
                                break;
                }
                taken += got;
        }
        return taken;
}

static void objects_flush(struct kmem_cache *cache, struct slot_cache *record, void **objects,
                          unsigned int count)
{
        unsigned int kept = objects_keep_own(cache, objects, count);

        PROBE3(drain, cache->name, kept, cache->size);
        if (kept)
                cache->engine->flush(cache, &record->engine, objects, kept);
}

/*
 * Takes up to @count of the oldest objects out of the slot's array and returns how many; less
 * than asked for if the array has no more or cannot be had.
 */
static unsigned int shed_chunk(struct kmem_cache *cache, struct slot *slot,
                               struct slot_cache *record, void **objects, unsigned int count)
{
        unsigned int pulled = 0;
        struct sheaf *array = NULL;

        lock_take(&record->engine.lock);
        if (!sheaf_is_cold(slot_read_pair(slot, sheaf_offset(cache)).main))
                array = take_out_locked(cache, slot, record);
        if (!array) {
                lock_drop(&record->engine.lock);
                return 0;
        }
        pulled = pull_oldest(array, objects, count);
        put_back_locked(cache, slot, record, array);
        return pulled;
}

/*
 * Gives back a part of an untouched array (S6-61); the reaper sees the caller's slot only, as in
 * the kernel.
 */
static void reap_array(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record)
{
        void *objects[CHUNK];
        struct sheaf *array;
        uint32_t count = 0;
        uint32_t size;

        lock_take(&record->engine.lock);
        array = slot_read_pair(slot, sheaf_offset(cache)).main;
        size = sheaf_peek(cache, array);
        if (size && size == record->array_seen) {
                count = (cache->sheaf_capacity + 4) / 5;
                if (count > size)
                        count = (size + 1) / 2;
        }
        if (size)
                record->array_seen = size - count;
        lock_drop(&record->engine.lock);
        while (count) {
                unsigned int pulled =
                        shed_chunk(cache, slot, record, objects, min_of(count, (uint32_t)CHUNK));

                if (!pulled)
                        return;
                objects_give(cache, record, objects, pulled);
                count -= pulled;
        }
}

/*
 * The reaper's round, on slow paths: at most every two seconds a slot, and left out if the set of
 * caches is busy (S6-60). No lock may be held.
 */
static void reap_due(struct slot *slot)
{
        uint64_t due = load_relaxed(&slot->reap_time);
        uint64_t now = system_time_ms();

        if (likely(due && now < due))
                return;
        if (!lock_try(&cache_mutex))
                return;
        if (unlikely(due != load_relaxed(&slot->reap_time))) {
                lock_drop(&cache_mutex); /* another thread was here meanwhile */
                return;
        }
        store_relaxed(&slot->reap_time, now + (due ? REAP_MS : REAP_FIRST_MS));
        for (uint32_t index = 1; due && index < slots_index_end(); index++) {
                struct kmem_cache *cache = caches_by_index[index];
                struct slot_cache *record = slot_peek(slot, index);

                if (!cache || cache->engine->caching != CACHING_ARRAY)
                        continue;
                if (record)
                        reap_array(cache, slot, record);
                cache->engine->reap(cache, now);
        }
        lock_drop(&cache_mutex);
}

unsigned int array_alloc(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                         void **objects, unsigned int count)
{
        struct sheaf *array;
        unsigned int taken;

        reap_due(slot);
        lock_take(&record->engine.lock);
        array = take_out_locked(cache, slot, record);
        if (unlikely(!array)) {
                lock_drop(&record->engine.lock);
                return cache->engine->take(cache, &record->engine, objects, count);
        }
        /* Another thread may have freed into the array since the caller found it empty. */
        taken = take_private_locked(cache, record, array, objects, count);
        put_back_locked(cache, slot, record, array);
        return taken;
}

/*
 * Puts some of the objects into the slot's array, after flushes if it is full, and returns how
 * many. The oldest objects leave while other threads may use the array already.
 */
static unsigned int put_some(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                             void *const *objects, unsigned int count)
{
        void *oldest[CHUNK];
        unsigned int flushed = 0;
        unsigned int pulled = 0;
        struct sheaf *array;

        lock_take(&record->engine.lock);
        array = take_out_locked(cache, slot, record);
        if (unlikely(!array)) {
                lock_drop(&record->engine.lock);
                return 0;
        }
        if (array->size == array->capacity) {
                flushed = cache->engine->flush_count(cache, array->size, count);
                pulled = pull_oldest(array, oldest, min_of(flushed, (unsigned int)CHUNK));
        }
        count = min_of(count, array->capacity - array->size);
        copy_objects(array->object + array->size, objects, count);
        sheaf_set_size(array, array->size + count);
        put_back_locked(cache, slot, record, array);
        while (pulled) {
                objects_flush(cache, record, oldest, pulled);
                flushed -= pulled;
                pulled = flushed ? shed_chunk(cache, slot, record, oldest,
                                              min_of(flushed, (unsigned int)CHUNK))
                                 : 0;
        }
        return count;
}

void array_free(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                void **objects, unsigned int count)
{
        reap_due(slot);
        while (count) {
                unsigned int put = put_some(cache, slot, record, objects, count);

                if (unlikely(!put)) {
                        objects_give(cache, record, objects, count);
                        return;
                }
                objects += put;
                count -= put;
        }
}
