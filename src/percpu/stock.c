/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A slot's stock of full sheaves, and giving objects and sheaves to the back end. An object that
 * was freed to the wrong cache goes to its own, with a message.
 */
#include "percpu/stock.h"

#include "account/owners.h"
#include "machine/message.h"
#include "base/options.h"
#include "machine/probe.h"
#include "percpu/marks.h"
#include "percpu/percpu.h"
#include "percpu/statistics.h"

enum { STOCK_SHARE = 8 /* of the heap, for all slots together */ };

static uint64_t full_bytes(const struct kmem_cache *cache, const struct sheaf *sheaf)
{
        return (uint64_t)sheaf->capacity * cache->size;
}

/*
 * The bytes of the slot's stocks that the cache's count among, and the most that these may be. Objects
 * above a page have a count of their own: a burst of them soon has megabytes, and in a large heap
 * that is little (STOCK_SHARE).
 */
static uint64_t *stocked_bytes(const struct kmem_cache *cache, struct slot *slot)
{
        return cache->size > PAGE_SIZE ? &slot->stock_bytes_above_page : &slot->stock_bytes;
}

static uint64_t stocked_most(const struct kmem_cache *cache)
{
        uint64_t slots = max_of(slots_made_count(), 1u);
        uint64_t share = load_relaxed(&heap.accessible_bytes) / STOCK_SHARE / slots;
        uint64_t most = options.slot_cache_max;

        return cache->size > PAGE_SIZE && most ? max_of(most, share) : most;
}

struct sheaf *stock_take(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record)
{
        struct sheaf *sheaf;

        /* Relaxed peek, from stores under the lock: a stale zero sends the caller to the barn. */
        if (!load_relaxed(&record->stock_size))
                return NULL;
        lock_take(&record->engine.lock);
        sheaf = sheaves_pop(&record->stock, &record->stock_size);
        if (sheaf)
                sub_relaxed(stocked_bytes(cache, slot), full_bytes(cache, sheaf));
        lock_drop(&record->engine.lock);
        return sheaf;
}

bool stock_put(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
               struct sheaf *sheaf)
{
        bool room;

        if (load_relaxed(&record->stock_size) >= load_relaxed(&cache->stock_max))
                return false;
        lock_take(&record->engine.lock);
        room = record->stock_size < load_relaxed(&cache->stock_max) &&
               load_relaxed(stocked_bytes(cache, slot)) + full_bytes(cache, sheaf) <=
                       stocked_most(cache);
        if (room) {
                sheaves_push(&record->stock, &record->stock_size, sheaf);
                add_relaxed(stocked_bytes(cache, slot), full_bytes(cache, sheaf));
        }
        lock_drop(&record->engine.lock);
        return room;
}

static struct sheaf *pop_empty(struct slot_cache *record)
{
        struct sheaf *sheaf;

        /* Relaxed peek, as in stock_take. */
        if (!load_relaxed(&record->empty_size))
                return NULL;
        lock_take(&record->engine.lock);
        sheaf = sheaves_pop(&record->empty, &record->empty_size);
        lock_drop(&record->engine.lock);
        return sheaf;
}

struct sheaf *stock_take_empty(struct kmem_cache *cache, struct slot_cache *record)
{
        struct sheaf *sheaf = pop_empty(record);

        return sheaf ? sheaf : barn_take_empty(cache);
}

void stock_put_empty(struct kmem_cache *cache, struct slot_cache *record, struct sheaf *sheaf)
{
        uint32_t most = load_relaxed(&cache->stock_empty_max);
        bool room = false;

        if (load_relaxed(&record->empty_size) < most &&
            sheaf->capacity == load_relaxed(&cache->sheaf_capacity)) {
                lock_take(&record->engine.lock);
                room = record->empty_size < most;
                if (room)
                        sheaves_push(&record->empty, &record->empty_size, sheaf);
                lock_drop(&record->engine.lock);
        }
        if (!room)
                barn_put_empty(cache, sheaf);
}

void stock_free_empty(struct kmem_cache *cache, struct slot_cache *record)
{
        struct sheaf *sheaf;

        while ((sheaf = pop_empty(record)))
                sheaf_free(cache, sheaf);
}

void report_stranger(const struct kmem_cache *cache, struct kmem_cache *own, void *object)
{
        message("kmem_cache_free(%s, %p): wrong slab cache: the object is from %s", cache->name,
                object, own->name);
        if (own->engine->report_stranger)
                own->engine->report_stranger(own, object);
}

/*
 * An object that was freed to @cache, but is another cache's in the page map, goes to that cache, with
 * a message (S8-42). No lock may be held.
 */
static void object_give_to_own(struct kmem_cache *cache, void *object)
{
        struct kmem_cache *own = caches_by_index[heap.map[address_page(object)] >> PAIR_SHIFT];
        struct slot *slot = slot_current();
        struct slot_cache *record = slot_record(&slot, own);

        report_stranger(cache, own, object);
        /* The object was freed to another cache, so no slow path has uncharged it. */
        if (cache_has_owners(own))
                owner_forget(own, object);
        own->engine->give(own, &record->engine, &object, 1);
}

/* How many objects, from the first on, lie in pages with this entry of the map. */
static unsigned int count_mapped(void *const *objects, unsigned int count, uint16_t entry)
{
        size_t accessible = load_relaxed(&heap.accessible_bytes);
        const uint16_t *map = heap.map;
        uintptr_t base = heap.base;

        for (unsigned int i = 0; i < count; i++) {
                size_t distance = (uintptr_t)objects[i] - base;

                if (distance >= accessible || load_relaxed(&map[distance >> PAGE_SHIFT]) != entry)
                        return i;
        }
        return count;
}

unsigned int objects_keep_own(struct kmem_cache *cache, void **objects, unsigned int count)
{
        const struct kmem_cache *mapped = cache->engine->shared ? cache->engine->shared : cache;
        unsigned int kept = count_mapped(objects, count, (uint16_t)mapped->pair_offset);

        for (unsigned int i = kept; i < count; i++) {
                uint16_t offset = heap_contains(objects[i])
                                          ? load_relaxed(&heap.map[address_page(objects[i])])
                                          : (uint16_t)mapped->pair_offset;

                if (likely(offset == mapped->pair_offset || !offset))
                        objects[kept++] = objects[i];
                else
                        object_give_to_own(cache, objects[i]);
        }
        return kept;
}

void objects_give(struct kmem_cache *cache, struct slot_cache *record, void **objects,
                  unsigned int count)
{
        unsigned int foreign;

        for (unsigned int i = 0; cache->marks_freed && i < count; i++)
                objects[i] = object_without_fresh(objects[i]); /* FRESH-2 */
        if (!cache->engine->finds_foreign)
                count = objects_keep_own(cache, objects, count);
        if (!count)
                return;
        foreign = cache->engine->give(cache, &record->engine, objects, count);
        for (unsigned int i = count - foreign; i < count; i++)
                object_give_to_own(cache, objects[i]);
}

void sheaf_give(struct kmem_cache *cache, struct slot_cache *record, struct sheaf *sheaf)
{
        if (marks_exist())
                marks_drop(sheaf);
        PROBE3(drain, cache->name, sheaf->size, cache->size);
        count_sheaf_events(cache, SHEAF_FLUSH, sheaf->size);
        objects_give(cache, record, sheaf->object, sheaf->size);
        sheaf_set_size(sheaf, 0);
}
