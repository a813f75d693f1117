/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The set of slots: each is made when a thread first needs it and never unmade. Also the set of
 * their pairs that can be seen. slot_source.c decides which slot a thread has.
 *
 * slots_lock protects the set of slots, the pointers to their records and cold initialisation. It
 * nests inside cache_mutex and drain_mutex and outside all other locks.
 */
#include "percpu/slot_source.h"

#include "base/metadata.h"
#include "machine/system.h"
#include "percpu/figures.h"

struct sheaf cold_sheaf;
struct sheaf closed_sheaf;
KMEM_SPARSE _Alignas(4096) struct slot shared_slot;

struct lock slots_lock;
static KMEM_SPARSE struct slot *made[SLOTS_MAX];
static unsigned int made_count;
static uint32_t published = 1;           /* indexes below have cold or live pairs in every slot */
static uint64_t closed[CACHES_MAX / 64]; /* a bit an index: its pairs are closed (INV-6) */

static void slot_init_cold(struct slot *slot, uint32_t from, uint32_t to)
{
        for (uint32_t index = from; index < to; index++) {
                struct sheaf *sheaf = bit_get(closed, index) ? &closed_sheaf : &cold_sheaf;

                slot->pairs[index] = (struct pair){sheaf, sheaf};
        }
}

static struct slot *slot_make_locked(uint32_t id)
{
        struct slot *slot = metadata_alloc(sizeof(*slot));

        if (!slot)
                return NULL;
        slot->id = id;
        slot_init_cold(slot, 0, published);
        made[made_count] = slot;
        /* Release: slots_made_count acquires, so slot_made finds the slot. */
        store_release(&made_count, made_count + 1);
        /* Release, with slot_at: the pairs are cold before the slot can be found. */
        store_release(&front()->slots[id], slot->pairs);
        return slot;
}

struct slot *slot_make(uint32_t id)
{
        struct slot *slot;

        lock_take(&slots_lock);
        slot = slot_at(id);
        if (slot == &shared_slot)
                slot = slot_make_locked(id);
        lock_drop(&slots_lock);
        return slot;
}

void slots_init(void)
{
        unsigned int ids = SLOTS_MAX;

        /*
         * Ids are below the number of possible CPUs. That number may be wrong where /sys is hidden,
         * so at least the first page of the table is filled, and all of it if the count is a guess.
         */
        if (system_cpus_known())
                ids = min_of(ids, max_of(system_cpus(CPUS_POSSIBLE), 512u));
        fast.map = heap.map;
        fast.heap_base = heap.base;
        shared_slot.id = UINT32_MAX;
        slot_init_cold(&shared_slot, 0, published);
        for (unsigned int id = 0; id < ids; id++)
                front()->slots[id] = shared_slot.pairs;
        slot_source_init();
}

unsigned int slots_made_count(void)
{
        return load_acquire(&made_count);
}

struct slot *slot_made(unsigned int number)
{
        return made[number];
}

void slots_publish_index(uint32_t index)
{
        lock_take(&slots_lock);
        if (index >= published) {
                slot_init_cold(&shared_slot, published, index + 1);
                for (unsigned int number = 0; number < made_count; number++)
                        slot_init_cold(made[number], published, index + 1);
                /*
                 * Release, with slots_index_end: the pairs of the index are cold before it counts.
                 */
                store_release(&published, index + 1);
        }
        lock_drop(&slots_lock);
}

void slots_close_index(uint32_t index)
{
        lock_take(&slots_lock);
        bit_set(closed, index);
        lock_drop(&slots_lock);
}

/*
 * Makes a closed pair cold. Other threads may be using the pair and its slot. Main is stored last,
 * since nothing replaces the pair before main is cold (INV-6).
 */
static void reopen_pair(struct pair *pair)
{
        if (load_relaxed(&pair->main) != &closed_sheaf)
                return;
        store_release(&pair->spare, &cold_sheaf);
        store_release(&pair->main, &cold_sheaf);
}

void slots_reopen_index(uint32_t index)
{
        lock_take(&slots_lock);
        if (bit_get(closed, index)) {
                bit_clear(closed, index);
                for (unsigned int number = 0; number < made_count; number++)
                        reopen_pair(&made[number]->pairs[index]);
        }
        lock_drop(&slots_lock);
}

uint32_t slots_index_end(void)
{
        return load_acquire(&published);
}

static struct slot_cache *record_make(struct slot *slot, struct kmem_cache *cache)
{
        struct slot_cache **place = slot_place(slot, cache_index(cache));
        struct slot_cache *record = load_acquire(place);

        if (likely(record))
                return record;
        lock_take(&slots_lock);
        record = load_relaxed(place);
        if (!record) {
                record = metadata_alloc(slot_record_bytes(cache));
                if (record) {
                        if (cache->counters_bytes)
                                record->engine.counters = (void *)(record + 1);
                        record->engine.freelist = ENGINE_NO_OBJECT;
                        record->engine.home = 1 + slot->id % ENGINE_HOMES;
                        record->drained = (struct pair){&cold_sheaf, &cold_sheaf};
                        figures_add_slot(cache, &record->engine, slot->id);
                        /* Release, with slot_peek: the record is complete before it is found. */
                        store_release(place, record);
                }
        }
        lock_drop(&slots_lock);
        return record;
}

void slots_each_record(struct kmem_cache *cache,
                       void (*act)(struct kmem_cache *cache, struct engine_slot *slot, uint32_t id))
{
        lock_take(&slots_lock);
        for (unsigned int number = 0; number <= made_count; number++) {
                struct slot *slot = number ? made[number - 1] : &shared_slot;
                struct slot_cache *record = slot_peek(slot, cache_index(cache));

                if (record)
                        act(cache, &record->engine, slot->id);
        }
        lock_drop(&slots_lock);
}

struct slot_cache *slot_record(struct slot **slot, struct kmem_cache *cache)
{
        struct slot_cache *record = record_make(*slot, cache);

        if (likely(record))
                return record;
        *slot = &shared_slot;
        return slot_peek(&shared_slot, cache_index(cache));
}

bool slots_add_cache(struct kmem_cache *cache)
{
        return record_make(&shared_slot, cache) != NULL;
}
