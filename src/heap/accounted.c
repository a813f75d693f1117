/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Allocation of objects and large blocks with a charge to a memory group. On its way it also makes
 * faults (option failslab), marks checked objects, notes owners and records.
 */
#include "heap/accounted.h"
#include "heap/reclaim.h"

#include "account/owners.h"
#include "machine/message.h"
#include "page/large.h"
#include "percpu/figures.h"
#include "percpu/handed.h"
#include "profile/sample.h"

/* Closes an open cache that is asked for an accounted object; false if it must stay open. */
static KMEM_COLD bool close_cache(struct kmem_cache *cache)
{
        static uint32_t warned;
        bool closed;

        lock_take(&cache_mutex);
        closed = percpu_close(cache) == 0;
        lock_drop(&cache_mutex);
        if (!closed && add_relaxed(&warned, 1) == 1)
                message("cache \"%s\": __GFP_ACCOUNT without SLAB_ACCOUNT needs membarrier and a "
                        "free cache index; its objects are not charged",
                        cache->name);
        return closed;
}

/* Charges objects; false if a limit refuses. */
static bool charge(struct kmem_cache *cache, gfp_t flags, size_t count, struct kmem_group **owner)
{
        bool accounted = flags & __GFP_ACCOUNT || cache->flags & SLAB_ACCOUNT;

        *owner = NULL;
        /*
         * Objects of an open cache are freed without a look at their owner, so they must not have
         * one.
         */
        if (unlikely(!cache_is_closed(cache)) && !close_cache(cache))
                return true;
        return group_charge(accounted, count, object_charge(cache), owner);
}

/* Notes the owner of objects. An object that cannot have an owner is uncharged at once (S11-05). */
static void put_owner(struct kmem_cache *cache, struct kmem_group *owner, size_t count,
                      void **objects)
{
        size_t unowned = 0;

        for (size_t i = 0; i < count; i++)
                unowned += !owner_put(cache, objects[i], owner);
        if (unlikely(unowned))
                group_disown(owner, unowned, object_charge(cache));
}

/*
 * Marks objects that are to be handed out (HANDED-1) and returns how many; fewer than @count only
 * without memory for marks.
 */
static size_t mark_handed(struct kmem_cache *cache, size_t count, void **objects)
{
        size_t marked = 0;

        if (likely(!cache_is_checked(cache)))
                return count;
        /* A sample is no object of the heap; profile/sample.c checks its free itself. */
        while (marked < count &&
               (in_sample_region(objects[marked]) || handed_mark(objects[marked])))
                marked++;
        for (size_t i = marked; i < count; i++)
                if (in_sample_region(objects[i]))
                        block_free_sample(objects[i], "kmem_cache_alloc_bulk");
                else
                        percpu_free_slow(cache, objects[i]);
        return marked;
}

void *accounted_alloc(struct kmem_cache *cache, gfp_t flags, int node, bool *refused)
{
        struct kmem_group *owner;
        void *object;

        *refused = failslab_fails(cache, flags) || !charge(cache, flags, 1, &owner);
        if (unlikely(*refused))
                return NULL;
        object = node == NODE_ANY ? percpu_alloc(cache)
                                  : percpu_alloc_on_node(cache, node, flags & __GFP_THISNODE);
        object = percpu_unmarked(cache, object);
        if (object && !mark_handed(cache, 1, &object))
                object = NULL;
        if (!owner)
                return object;
        if (likely(object))
                put_owner(cache, owner, 1, &object);
        else
                group_uncharge(owner, 1, object_charge(cache));
        return object;
}

void *accounted_alloc_bytes(struct kmem_cache *cache, size_t size, size_t align, gfp_t flags)
{
        const struct engine *engine = cache->engine;
        bool large = engine->usable_bytes(size, align) >= PAGE_SIZE;
        size_t bytes = large ? large_charge(size) : exact_charge(size);
        struct kmem_group *owner;
        bool noted;
        void *block;

        /* These blocks pass no slow path of the per-CPU layer, which would poll. */
        figures_poll();
        if (failslab_fails(cache, flags) || !group_charge(flags & __GFP_ACCOUNT, 1, bytes, &owner))
                return NULL;
        block = engine->alloc_bytes(cache, size, align, flags & __GFP_ZERO);
        if (!owner)
                return block;
        if (ZERO_OR_NULL_PTR(block)) {
                group_uncharge(owner, 1, bytes);
                return block;
        }
        noted = large ? large_owner_put(block, owner, bytes)
                      : owner_put(engine->shared, block, owner);
        if (!noted)
                group_disown(owner, 1, bytes);
        return block;
}

/* Takes objects in pieces that the per-CPU layer can count; returns how many it got. */
static size_t take_bulk(struct kmem_cache *cache, size_t count, void **objects)
{
        size_t taken = 0;

        while (taken < count) {
                unsigned int piece = (unsigned int)min_of(count - taken, (size_t)BULK_PIECE);
                unsigned int got = rseq_pop_bulk(sheaf_offset(cache), objects + taken, piece);

                if (got < piece)
                        got += percpu_alloc_bulk_slow(cache, objects + taken + got, piece - got);
                taken += got;
                if (got < piece)
                        break;
        }
        return taken;
}

bool accounted_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t count, void **objects,
                          const void *site)
{
        struct kmem_group *owner;
        size_t taken;

        /* A request for nothing succeeds, even if the group is above its limit. */
        if (!count)
                return true;
        if (unlikely(failslab_fails(cache, flags) || !charge(cache, flags, count, &owner)))
                return false;
        taken = mark_handed(cache, take_bulk(cache, count, objects), objects);
        for (size_t i = 0; is_recording() && i < taken; i++)
                record_object(cache, objects[i], site);
        if (unlikely(taken < count)) {
                /* They have no owner yet, so freeing them uncharges nothing. */
                for (size_t i = 0; i < taken; i++)
                        cache_free_at(cache, objects[i], site);
                if (owner)
                        group_uncharge(owner, count, object_charge(cache));
                return false;
        }
        if (owner)
                put_owner(cache, owner, count, objects);
        return true;
}

/* Throws the coin of a large block that is handed out, unless it is NULL. */
static void *profiled(void *block, size_t bytes)
{
        if (is_profiling() && block)
                sample_throw(block, bytes);
        return block;
}

static void *large_alloc_charged(size_t bytes, size_t align, gfp_t flags)
{
        struct kmem_group *owner;
        void *block;

        if (bytes > PTRDIFF_MAX ||
            !group_charge(flags & __GFP_ACCOUNT, 1, large_charge(bytes), &owner))
                return NULL;
        block = large_alloc(bytes, align, flags & __GFP_ZERO);
        if (unlikely(!block) && bytes <= heap_held_bytes() && heap_regain())
                block = large_alloc(bytes, align, flags & __GFP_ZERO);
        if (!owner)
                return block;
        if (!block)
                group_uncharge(owner, 1, large_charge(bytes));
        else if (!large_owner_put(block, owner, large_charge(bytes)))
                group_disown(owner, 1, large_charge(bytes));
        return block;
}

void *accounted_large_alloc(size_t bytes, size_t align, gfp_t flags)
{
        figures_poll();
        return profiled(large_alloc_charged(bytes, align, flags), bytes);
}

bool accounted_large_free(void *block)
{
        struct kmem_group *owner;
        uint32_t sample;
        size_t charged;
        bool freed;

        figures_poll();
        owner = large_owner_take(block, &charged);
        sample = sample_take(block);
        freed = large_free(block);
        sample_end(sample, block, freed);
        if (owner)
                group_uncharge(owner, 1, charged);
        return freed;
}

/*
 * A block that grows is charged first (so the owner's peak counts a failed attempt, too); a block
 * that shrinks is uncharged afterwards. If it has to move instead, the caller's new block is
 * charged on its own, and both count while there are two.
 */
static void *large_resize_charged(void *block, size_t bytes)
{
        size_t old;
        struct kmem_group *owner = large_owner(block, &old);
        size_t new = large_charge(bytes);
        void *resized;

        if (!owner)
                return large_resize(block, bytes);
        if (bytes > PTRDIFF_MAX || (new > old && !group_charge_more(owner, new - old)))
                return NULL;
        resized = large_resize(block, bytes);
        if (resized && !heap_contains(resized))
                large_owner_put(resized, owner, new);
        if (resized && new < old)
                group_charge_less(owner, old - new);
        else if (!resized && new > old)
                group_charge_less(owner, new - old);
        return resized;
}

/* For the profile, a resize is a free and an allocation. */
void *accounted_large_resize(void *block, size_t bytes)
{
        uint32_t sample;
        void *resized;

        figures_poll();
        sample = sample_take(block);
        resized = large_resize_charged(block, bytes);
        sample_end(sample, block, resized != NULL);
        return profiled(resized, bytes);
}
