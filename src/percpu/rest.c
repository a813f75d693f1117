/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Counts what rests in a slot. Nothing is locked: sheaves and stocks change while they are read, and
 * a sheaf that was freed meanwhile has a size within bounds (sheaf_peek).
 */
#include "percpu/rest.h"

#include "machine/message.h"
#include "machine/system.h"
#include "page/purge.h"
#include "percpu/barn.h"
#include "percpu/percpu.h"
#include "percpu/quiet.h"

enum {
        CLASSES_MOST = 32,
        REST_LEAST = 1 << 20, /* bytes that a slot may have at rest in the smallest heap */
        REST_SHARE = 4,       /* of the heap, for all slots together */

        /* While the program has one thread: nobody else waits for the free pages, so the way to them is short. */
        ALONE_LEAST = 256 << 10,
        ALONE_SHARE = 16,

        COUNT_EACH = 8,    /* blocks beyond the bound until a full slot is counted again */
        LOOK_EACH = 4,     /* counts that a class begins until a block is looked at */
        LOOKED_SHARE = 4,  /* of what a look finds less than those before */
        COUNTED_SHIFT = 3, /* the least part of its size that a block counts for */
};

static struct kmem_cache *classes_of_pages[CLASSES_MOST];
static uint32_t nr_classes_of_pages;

void rest_add_class(struct kmem_cache *cache)
{
        uint32_t number = load_relaxed(&nr_classes_of_pages);

        check_or_die(number < CLASSES_MOST);
        classes_of_pages[number] = cache;
        store_relaxed(&pages_end_rest, percpu_end_rest);
        /* Partner: rest_count. */
        store_release(&nr_classes_of_pages, number + 1);
}

/* What a block of the class counts for (REST-3). */
static uint64_t bytes_of_block(const struct kmem_cache *cache)
{
        return cache->size - load_relaxed(&cache->untouched);
}

/* The class begins a count with this block, and looks at every fourth. Relaxed: of two looks at once one is lost. */
static void look_at_block(struct kmem_cache *cache, const void *block)
{
        uint32_t most = cache->size - (cache->size >> COUNTED_SHIFT);
        uint32_t counts = load_relaxed(&cache->rest_counts);
        uint32_t known = load_relaxed(&cache->untouched);
        uint32_t found;

        store_relaxed(&cache->rest_counts, counts + 1);
        if (counts % LOOK_EACH)
                return;
        /* Nothing is asked there, and the other slots' sheaves cannot be taken. */
        if (system_entered_sandbox()) {
                store_relaxed(&cache->untouched, 0u);
                return;
        }
        found = min_of(cache->size - (uint32_t)system_resident(block, cache->size), most);
        if (found > known)
                found = known + (found - known) / LOOKED_SHARE;
        store_relaxed(&cache->untouched, found);
        if (found >= cache->size - cache->size / 4)
                percpu_suit_sparse(cache, true);
        else if (found <= cache->size / 2)
                percpu_suit_sparse(cache, false);
}

static uint64_t blocks_in_pair(struct kmem_cache *cache, struct slot *slot)
{
        struct pair pair = slot_read_pair(slot, sheaf_offset(cache));

        return sheaf_peek(cache, pair.main) + sheaf_peek(cache, spare_of(&pair));
}

/* In the slot's stock, and in the barn, which is the nearest after it. */
static uint64_t blocks_in_sheaves(struct kmem_cache *cache, struct slot *slot)
{
        struct slot_cache *record = slot_peek(slot, cache_index(cache));
        uint64_t sheaves = load_relaxed(&barn_here(cache)->full_size);

        if (record)
                sheaves += load_relaxed(&record->stock_size);
        return sheaves * load_relaxed(&cache->sheaf_capacity);
}

/* The slot was found full, by a few blocks more or less: a count takes as long as the way to the free pages. */
static bool rest_in_full(struct kmem_cache *cache, struct slot *slot)
{
        bool rests = blocks_in_pair(cache, slot) == 0; /* REST-2 */

        if (rests)
                rest_came(cache, slot, 1);
        percpu_look_full(slot, cache);
        return rests;
}

/* The bytes that a slot may have at rest (REST-1). */
static int64_t rest_bound(void)
{
        bool alone = system_threads() == THREADS_ONE;
        uint64_t slots = max_of(slots_made_count(), 1u);
        uint64_t heap_bytes = load_relaxed(&heap.accessible_bytes);
        uint64_t share = heap_bytes / (alone ? ALONE_SHARE : REST_SHARE) / slots;

        return (int64_t)max_of(share, (uint64_t)(alone ? ALONE_LEAST : REST_LEAST));
}

bool rest_count(struct kmem_cache *cache, struct slot *slot, const void *block)
{
        int64_t most = rest_bound();
        uint32_t count = load_acquire(&nr_classes_of_pages);
        int64_t bytes;
        bool rests;

        if (load_relaxed(&slot->rest_full) % COUNT_EACH)
                return rest_in_full(cache, slot);
        look_at_block(cache, block);
        bytes = (int64_t)bytes_of_block(cache); /* with the block that comes */
        for (uint32_t i = 0; i < count; i++) {
                struct kmem_cache *other = classes_of_pages[i];

                bytes += (int64_t)(bytes_of_block(other) *
                                   (blocks_in_pair(other, slot) + blocks_in_sheaves(other, slot)));
        }
        rests = bytes <= most || blocks_in_pair(cache, slot) == 0; /* REST-2 */
        store_relaxed(&slot->rest_most, most);
        store_relaxed(&slot->rest_budget, most - bytes + (rests ? 0 : (int64_t)cache->size));
        if (bytes > most)
                percpu_look_full(slot, cache);
        return rests;
}
