/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Counts what rests in a slot. Nothing is locked: sheaves and stocks change while they are read, and
 * a sheaf that was freed meanwhile has a size within bounds (sheaf_peek).
 */
#include "percpu/rest.h"

#include "machine/message.h"
#include "percpu/barn.h"
#include "percpu/quiet.h"

enum {
        CLASSES_MOST = 32,
        REST_LEAST = 1 << 20, /* bytes that a slot may have at rest in the smallest heap */
        REST_SHARE = 4,       /* of the heap, for all slots together */
        COUNT_EACH = 8,       /* blocks beyond the bound until a full slot is counted again */
};

static struct kmem_cache *classes_of_pages[CLASSES_MOST];
static uint32_t nr_classes_of_pages;

void rest_add_class(struct kmem_cache *cache)
{
        uint32_t number = load_relaxed(&nr_classes_of_pages);

        check_or_die(number < CLASSES_MOST);
        classes_of_pages[number] = cache;
        /* Partner: rest_count. */
        store_release(&nr_classes_of_pages, number + 1);
}

static uint64_t bytes_in_pair(struct kmem_cache *cache, struct slot *slot)
{
        struct pair pair = slot_read_pair(slot, sheaf_offset(cache));

        return (uint64_t)cache->size *
               (sheaf_peek(cache, pair.main) + sheaf_peek(cache, spare_of(&pair)));
}

/* In the slot's stock, and in the barn, which is the nearest after it. */
static uint64_t bytes_in_sheaves(struct kmem_cache *cache, struct slot *slot)
{
        struct slot_cache *record = slot_peek(slot, cache_index(cache));
        uint64_t sheaves = load_relaxed(&barn_here(cache)->full_size);

        if (record)
                sheaves += load_relaxed(&record->stock_size);
        return sheaves * load_relaxed(&cache->sheaf_capacity) * cache->size;
}

/* The slot was found full, by a few blocks more or less: a count takes as long as the way to the free pages. */
static bool rest_in_full(struct kmem_cache *cache, struct slot *slot)
{
        bool rests = bytes_in_pair(cache, slot) == 0; /* REST-2 */

        if (rests)
                rest_came(cache, slot, 1);
        percpu_look_full(slot, cache);
        return rests;
}

bool rest_count(struct kmem_cache *cache, struct slot *slot)
{
        uint64_t slots = max_of(slots_made_count(), 1u);
        uint64_t share = load_relaxed(&heap.accessible_bytes) / REST_SHARE / slots;
        int64_t most = (int64_t)max_of(share, (uint64_t)REST_LEAST);
        uint32_t count = load_acquire(&nr_classes_of_pages);
        int64_t bytes = cache->size; /* with the block that comes */
        bool rests;

        if (load_relaxed(&slot->rest_full) % COUNT_EACH)
                return rest_in_full(cache, slot);
        for (uint32_t i = 0; i < count; i++)
                bytes += (int64_t)(bytes_in_pair(classes_of_pages[i], slot) +
                                   bytes_in_sheaves(classes_of_pages[i], slot));
        rests = bytes <= most || bytes_in_pair(cache, slot) == 0; /* REST-2 */
        store_relaxed(&slot->rest_most, most);
        store_relaxed(&slot->rest_budget, most - bytes + (rests ? 0 : (int64_t)cache->size));
        if (bytes > most)
                percpu_look_full(slot, cache);
        return rests;
}
