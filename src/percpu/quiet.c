/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Finds the slots' records that nobody has used since the last look, and takes their content away.
 *
 * A look reads words that their owners go on changing, and compares a hash of them with the hash of
 * the last look. It follows no pointers but for the sizes of sheaves, which may have been freed
 * (sheaf_peek). A wrong answer only costs time. A sheaf may be taken away although its thread uses
 * it, and is refilled; or it stays for one more look. So a thread that has exactly as many objects
 * in its sheaf as at the last look loses it, which costs at most a refill for each look.
 */
#include "percpu/quiet.h"

#include "machine/message.h"
#include "percpu/barn.h"
#include "percpu/drain.h"
#include "percpu/percpu.h"
#include "percpu/rest.h"

enum {
        GROWN_PART = 8, /* of the heap: its growth between two looks, and at least */
        GROWN_BYTES = 1 << 20,
        SHRUNK_PART = 2,   /* of what a look was due at: a heap that holds less begins anew */
        FULL_COUNTS = 64,  /* blocks that come to a full slot, from one look to the next */
        RESTING_PART = 32, /* of the heap, which rests whatever the program does */
};

struct quiet {
        bool changed;         /* some record has changed */
        unsigned int records; /* marked quiet, of slots */
};

static uint64_t mix(uint64_t sum, uint64_t value)
{
        return (sum ^ value) * 0x9e3779b97f4a7c15ull;
}

/*
 * Whether the slot keeps anything of the cache; *seen becomes a hash that changes with each use of
 * it.
 */
static bool look(struct slot *slot, struct kmem_cache *cache, const struct slot_cache *record,
                 uint64_t *seen)
{
        struct pair pair = slot_read_pair(slot, sheaf_offset(cache));
        const struct engine_slot *engine = &record->engine;
        uint32_t stock = load_relaxed(&record->stock_size);
        uint32_t partial = load_relaxed(&engine->partial);
        const struct page *slab = load_relaxed(&engine->slab);

        *seen = mix((uintptr_t)pair.main, sheaf_peek(cache, pair.main));
        *seen = mix(*seen, (uintptr_t)pair.spare);
        *seen = mix(*seen, sheaf_peek(cache, spare_of(&pair)));
        *seen = mix(*seen, load_relaxed(&engine->taken));
        *seen = mix(*seen, load_relaxed(&engine->given));
        *seen = mix(*seen, (uint64_t)partial << 32 | stock);
        return !sheaf_is_cold(pair.main) || !sheaf_is_cold(pair.spare) || stock || partial ||
               slab || load_relaxed(&record->empty_size);
}

/* Marks the record quiet if it holds something that nobody has used since the last look. */
static void look_at_record(struct slot *slot, uint32_t index, struct quiet *result)
{
        struct kmem_cache *cache = load_acquire(&caches_by_index[index]);
        struct slot_cache *record = cache ? slot_peek(slot, index) : NULL;
        uint64_t seen;
        bool holds;

        if (!record)
                return;
        holds = look(slot, cache, record, &seen);
        record->quiet = holds && seen == record->seen;
        result->changed |= seen != record->seen;
        if (record->quiet && slot != &shared_slot)
                result->records++;
        record->seen = seen;
}

bool percpu_take_quiet(void)
{
        struct quiet result = {0};
        unsigned int slots = slots_made_count();

        debug_check(lock_is_held(&cache_mutex));
        for (unsigned int number = 0; number <= slots; number++)
                for (uint32_t index = 1; index < slots_index_end(); index++)
                        look_at_record(number ? slot_made(number - 1) : &shared_slot, index,
                                       &result);
        if (result.records)
                result.changed |= percpu_drain_quiet(slots);
        return result.changed;
}

/* The heap holds so many pages when the next look of percpu_look_grown is due; under cache_mutex, relaxed. */
static size_t grown_pages;

/* Whether a slot keeps objects above a page of the cache, which are pages of their own or nearly. */
static bool has_objects_of_pages(const struct kmem_cache *cache)
{
        return cache->size > PAGE_SIZE && cache->engine->caching == CACHING_SHEAVES &&
               !cache->sheaves_as_7_0;
}

static bool look_at_grown(struct slot *slot, const struct kmem_cache *busy, uint32_t index)
{
        struct kmem_cache *cache = load_acquire(&caches_by_index[index]);
        struct slot_cache *record = cache ? slot_peek(slot, index) : NULL;
        uint64_t seen;

        if (!record || cache == busy || !has_objects_of_pages(cache))
                return false;
        record->quiet = look(slot, cache, record, &seen) && seen == record->grown_seen;
        record->grown_seen = seen;
        return record->quiet;
}

static void drain_unused_locked(struct slot *slot, const struct kmem_cache *busy)
{
        bool any = false;

        debug_check(lock_is_held(&cache_mutex));
        for (uint32_t index = 1; index < slots_index_end(); index++)
                any |= look_at_grown(slot, busy, index);
        if (any)
                percpu_drain_own(slot);
}

/* The pages that a heap of so many pages holds when the next look is due. */
static size_t grown_from(size_t held)
{
        return held + max_of(held / GROWN_PART, (size_t)GROWN_BYTES >> PAGE_SHIFT);
}

void percpu_look_grown(struct slot *slot, const struct kmem_cache *cache)
{
        size_t held = pages_held();
        size_t due = load_relaxed(&grown_pages);

        if (likely(held < due)) {
                /* The heap has shrunk since the last look, and grows from there again. */
                if (unlikely(grown_from(held) < due / SHRUNK_PART))
                        store_relaxed(&grown_pages, grown_from(held));
                return;
        }
        if (slot == &shared_slot || !lock_try(&cache_mutex))
                return;
        store_relaxed(&grown_pages, grown_from(held));
        drain_unused_locked(slot, cache);
        lock_drop(&cache_mutex);
}

void percpu_look_full(struct slot *slot, const struct kmem_cache *cache)
{
        uint32_t counts = load_relaxed(&slot->rest_full) + 1;

        store_relaxed(&slot->rest_full, counts);
        if (counts % FULL_COUNTS || !lock_try(&cache_mutex))
                return;
        drain_unused_locked(slot, cache);
        lock_drop(&cache_mutex);
}

/* Whether blocks of pages that rest are much of the heap. */
static bool much_rests(const struct slot *slot)
{
        return rest_bytes(slot) > (int64_t)((pages_held() << PAGE_SHIFT) / RESTING_PART);
}

void percpu_end_rest(void)
{
        struct slot *slot = slot_current();

        if (slot == &shared_slot || !much_rests(slot) || !lock_try(&cache_mutex))
                return;
        for (uint32_t index = 1; index < slots_index_end(); index++) {
                struct kmem_cache *cache = load_acquire(&caches_by_index[index]);
                struct slot_cache *record = cache ? slot_peek(slot, index) : NULL;

                if (record && has_objects_of_pages(cache))
                        record->quiet = true;
        }
        percpu_drain_own(slot);
        rest_ended(slot);
        lock_drop(&cache_mutex);
}

uint64_t percpu_activity(struct kmem_cache *cache)
{
        uint64_t activity = 0;

        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                struct slot *slot = number ? slot_made(number - 1) : &shared_slot;
                const struct slot_cache *record = slot_peek(slot, cache_index(cache));

                if (!record)
                        continue;
                activity = mix(activity, load_relaxed(&record->engine.taken));
                activity = mix(activity, load_relaxed(&record->engine.given));
                activity = mix(activity, load_relaxed(&record->engine.partial));
                activity = mix(activity, (uintptr_t)load_relaxed(&record->engine.slab));
        }
        return activity;
}

uint64_t percpu_resting(struct kmem_cache *cache)
{
        uint64_t resting = 0;

        for (unsigned int node = 0; node < system_nodes(); node++)
                resting = mix(resting, load_relaxed(&cache->barn[node].full_size));
        for (unsigned int number = 0; number < slots_made_count(); number++) {
                struct slot *slot = slot_made(number);
                const struct slot_cache *record = slot_peek(slot, cache_index(cache));
                struct pair pair = slot_read_pair(slot, sheaf_offset(cache));

                resting = mix(resting, sheaf_peek(cache, pair.main));
                resting = mix(resting, sheaf_peek(cache, spare_of(&pair)));
                resting = mix(resting, record ? load_relaxed(&record->stock_size) : 0);
        }
        return resting;
}
