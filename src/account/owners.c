/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The owners of objects; owners.h has the layout. An entry belongs to the thread that holds the
 * object: it is written when the object is handed out and cleared when it comes back, so plain
 * accesses would be enough, and a thread that passes the object to another thread passes the entry
 * too. They are relaxed atomics because a double free may race. A vector is put in place by
 * compare-and-swap, because other threads may make a vector for the page too. It is freed with its
 * slab, when no object in it has an owner.
 */
#include "account/owners.h"

#include "base/metadata.h"
#include "base/options.h"
#include "page/extra.h"
#include "page/huge.h"

struct owner_vector {
        uint64_t bytes; /* page/extra.h frees it by this */
        struct kmem_group *owner[];
};

enum { START_SHIFT = 32, SHARED_STEP = 8 };

void owners_setup(struct kmem_cache *cache)
{
        uint32_t step = cache->engine->shared ? SHARED_STEP : cache->size;

        cache->start_step = step;
        /*
         * Exact for offsets in a page: the reciprocal exceeds 2^32 / step by less than 1, and
         * offset * step < 2^32 as long as steps are below a page. Larger steps are not divided by.
         */
        cache->start_reciprocal =
                step < PAGE_SIZE ? (uint32_t)(((uint64_t)1 << START_SHIFT) / step + 1) : 0;
}

static uint32_t place_in_page(const struct kmem_cache *cache, const void *object)
{
        uint64_t offset = ((uintptr_t)object - heap.base) & (PAGE_SIZE - 1);

        return (uint32_t)(offset * cache->start_reciprocal >> START_SHIFT);
}

static bool is_in_vector(const struct kmem_cache *cache)
{
        return cache->start_reciprocal != 0;
}

/* The page's vector, made if need be; NULL without memory. */
static struct owner_vector *vector_make(const struct kmem_cache *cache, uintptr_t *word)
{
        size_t entries = (PAGE_SIZE - 1) / cache->start_step + 1;
        size_t bytes = sizeof(struct owner_vector) + entries * sizeof(struct kmem_group *);
        struct owner_vector *vector = metadata_alloc(bytes);
        uintptr_t expected = 0;

        if (!vector)
                return NULL;
        vector->bytes = bytes;
        /* Release: the size, and the zeroes, are there before the vector is found (acquire). */
        if (compare_swap(word, &expected, (uintptr_t)vector))
                return vector;
        metadata_free(vector, bytes);
        return (struct owner_vector *)expected;
}

bool owner_put(const struct kmem_cache *cache, const void *object, struct kmem_group *owner)
{
        uintptr_t *word = page_extra_make(address_page(object));
        struct owner_vector *vector;

        if (unlikely(!word))
                return false;
        if (!is_in_vector(cache)) {
                store_relaxed(word, (uintptr_t)owner | 1);
                return true;
        }
        /* Acquire, with vector_make. */
        vector = (struct owner_vector *)load_acquire(word);
        if (unlikely(!vector)) {
                vector = vector_make(cache, word);
                if (!vector)
                        return false;
        }
        store_relaxed(&vector->owner[place_in_page(cache, object)], owner);
        return true;
}

/* Clears and returns the owner of an object of this cache, NULL if it has none. */
static struct kmem_group *owner_take(const struct kmem_cache *cache, const void *object)
{
        uintptr_t *word = page_extra(address_page(object));
        struct kmem_group **entry = (struct kmem_group **)word;
        struct owner_vector *vector;
        struct kmem_group *owner;

        if (!word)
                return NULL;
        if (is_in_vector(cache)) {
                /* Acquire, with vector_make. */
                vector = (struct owner_vector *)load_acquire(word);
                if (!vector)
                        return NULL;
                entry = &vector->owner[place_in_page(cache, object)];
        }
        owner = load_relaxed(entry);
        if (owner)
                store_relaxed(entry, NULL);
        return (struct kmem_group *)((uintptr_t)owner & ~(uintptr_t)1);
}

/*
 * Whether the pointer points into an object. It is reported later, but if that does not end the
 * process, its owner must not be looked up.
 */
static bool is_wrong(const struct kmem_cache *cache, const void *object)
{
        return options.bad_free != BAD_FREE_ABORT && !cache_is_object(cache, object);
}

/* The object's charge; 0 if no block starts there after all. */
static size_t charge_of(const struct kmem_cache *cache, const void *object)
{
        size_t bytes;

        if (likely(cache != cache->engine->shared))
                return object_charge(cache);
        bytes = cache->engine->block_bytes(object);
        return bytes ? exact_charge(bytes) : 0;
}

void owner_forget(const struct kmem_cache *cache, const void *object)
{
        size_t charge = is_wrong(cache, object) ? 0 : charge_of(cache, object);
        struct kmem_group *owner = charge ? owner_take(cache, object) : NULL;

        if (owner)
                group_uncharge(owner, 1, charge);
}

void owner_forget_bulk(const struct kmem_cache *cache, size_t count, void *const *objects)
{
        const struct kmem_cache *mapped = cache->engine->shared ? cache->engine->shared : cache;
        struct kmem_group *owner = NULL; /* of the last @same objects */
        size_t same = 0;

        for (size_t i = 0; cache == cache->engine->shared && i < count; i++)
                owner_forget(cache, objects[i]);
        if (cache == cache->engine->shared)
                return;

        for (size_t i = 0; i < count; i++) {
                struct kmem_group *next;

                if (!heap_contains(objects[i]) ||
                    heap.map[address_page(objects[i])] != mapped->pair_offset ||
                    is_wrong(cache, objects[i]))
                        continue;
                next = owner_take(cache, objects[i]);
                if (next != owner && same) {
                        group_uncharge(owner, same, object_charge(cache));
                        same = 0;
                }
                owner = next;
                same += next != NULL;
        }
        if (same)
                group_uncharge(owner, same, object_charge(cache));
}

bool large_owner_put(void *block, struct kmem_group *owner, size_t charge)
{
        uintptr_t *word;

        if (!heap_contains(block))
                return huge_owner_set(block, owner, charge);
        /* A block in the heap is charged its pages, which large_size tells. */
        word = page_extra_make(address_page(block));
        if (!word)
                return false;
        store_relaxed(word, (uintptr_t)owner | 1);
        return true;
}

struct kmem_group *large_owner(const void *block, size_t *charge)
{
        uintptr_t *word;

        if (!heap_contains(block))
                return huge_owner(block, charge);
        word = page_extra(address_page(block));
        if (!word || !(load_relaxed(word) & 1))
                return NULL;
        *charge = large_size(block);
        return *charge ? (struct kmem_group *)(load_relaxed(word) & ~(uintptr_t)1) : NULL;
}

struct kmem_group *large_owner_take(void *block, size_t *charge)
{
        struct kmem_group *owner = large_owner(block, charge);

        if (!owner)
                return NULL;
        if (heap_contains(block))
                store_relaxed(page_extra(address_page(block)), 0);
        else
                huge_owner_set(block, NULL, 0);
        return owner;
}
