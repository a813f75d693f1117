/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Free blocks of the classes of pages rest in a slot's sheaves and stocks, within a bound of bytes:
 * a sheaf bounds its objects, but a few blocks of each of 24 classes are many megabytes. The bound is lower
 * while the program has a single thread, whose way to the free pages nobody else holds up.
 *
 * REST-1  A slot's budget is the bytes that may still come to rest before they are counted anew. What
 *         comes takes its size off the budget: a freed block, and a sheaf from slabs or from another
 *         slot. A block that goes to the program gives its size back, up to the bound, and what goes
 *         to slabs or to another slot gives nothing, unless all of it goes at once. So pairs of malloc and
 *         free count nothing while there is room, and a count can only find more room. A slot that holds more than the bound
 *         (REST-2) has a budget below 0, or one class would make room for others. A slot that was
 *         found full counts every eighth block that comes; the others find room by REST-2 alone.
 *         The budget is a hint: a thread that moves, or two that store at once, only shift the next count.
 * REST-2  A block comes whatever the budget says if none of its class rests in the slot, so that
 *         pairs of malloc and free keep their block in a slot that is full of other classes.
 * REST-3  A count takes the blocks of a class for as many bytes as those that were looked at had resident: a
 *         program that begins its blocks and leaves the rest untouched would fill a slot with address
 *         space. A look that finds more counts at once, one that finds less by a quarter, and a block
 *         counts for an eighth of its size at least. Every fourth count that a class begins looks at the block
 *         that comes.
 * REST-4  Sheaves of sparse blocks, those with a quarter of their bytes resident at most, are larger, as the bound
 *         has room for more of them; where half and more is resident a class has its small ones again.
 */
#ifndef KMEM_PERCPU_REST_H
#define KMEM_PERCPU_REST_H

#include "engines/caches.h"
#include "kmem.h"
#include "percpu/slot.h"

/* Whether it is a class of whole pages, whose objects malloc's slow path alone hands out. */
static inline bool cache_is_of_pages(const struct kmem_cache *cache)
{
        return cache->is_class && cache->size > CLASS_BYTES_MAX;
}

/* Counts a new class of pages from now on. Under cache_mutex. */
KMEM_HIDDEN void rest_add_class(struct kmem_cache *cache);
/*
 * rest_has_room where the budget is used up: sets the budget by a count, which a slot that was found full makes at
 * every eighth block only. @block comes, and may be looked at (REST-3). In a full slot it calls percpu_look_full, and
 * after a look percpu_suit_sparse, so no lock may be held that comes after cache_mutex.
 */
KMEM_HIDDEN bool rest_count(struct kmem_cache *cache, struct slot *slot, const void *block);

/* Whether the budget has room for a freed block of a class of pages. */
static inline bool rest_fits(const struct kmem_cache *cache, const struct slot *slot)
{
        return load_relaxed(&slot->rest_budget) >= (int64_t)cache->size;
}

/* @blocks came to rest in the slot. */
static inline void rest_came(const struct kmem_cache *cache, struct slot *slot, uint32_t blocks)
{
        int64_t budget = load_relaxed(&slot->rest_budget);

        store_relaxed(&slot->rest_budget, budget - (int64_t)blocks * cache->size);
}

/* Whether a freed block of a class of pages may rest in the slot; if so, it is taken off the budget. */
static inline bool rest_has_room(struct kmem_cache *cache, struct slot *slot, const void *block)
{
        if (unlikely(!rest_fits(cache, slot)))
                return rest_count(cache, slot, block);
        rest_came(cache, slot, 1);
        return true;
}

/* A block went from the slot to the program. */
static inline void rest_went(const struct kmem_cache *cache, struct slot *slot)
{
        int64_t budget = load_relaxed(&slot->rest_budget) + cache->size;

        store_relaxed(&slot->rest_budget, min_of(budget, load_relaxed(&slot->rest_most)));
}

/* The bytes at rest, as far as the budget tells. */
static inline int64_t rest_bytes(const struct slot *slot)
{
        return load_relaxed(&slot->rest_most) - load_relaxed(&slot->rest_budget);
}

/* All that rested in the slot is gone from it. */
static inline void rest_ended(struct slot *slot)
{
        store_relaxed(&slot->rest_budget, load_relaxed(&slot->rest_most));
}

enum { REFILL_PART = 4 }; /* of the budget that a refill may take, as frees come to rest as well */

/* Blocks that a refill of a class of pages takes, at least one. */
static inline uint32_t rest_refill(const struct kmem_cache *cache, const struct slot *slot,
                                   uint32_t capacity)
{
        int64_t room = load_relaxed(&slot->rest_budget) / REFILL_PART / cache->size;

        return (uint32_t)max_of(min_of(room, (int64_t)capacity), (int64_t)1);
}

#endif
