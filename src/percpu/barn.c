/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Barns: lists of full and of empty sheaves under the barn's lock, and the making of sheaves. */
#include "percpu/barn.h"

#include "base/metadata.h"
#include "percpu/marks.h"
#include "percpu/statistics.h"

struct barn *barns_new(void)
{
        return metadata_alloc(system_nodes() * sizeof(struct barn));
}

void barns_free(struct barn *barns)
{
        metadata_free(barns, system_nodes() * sizeof(struct barn));
}

size_t sheaf_bytes(const struct kmem_cache *cache, uint32_t capacity)
{
        return sizeof(struct sheaf) + max_of(cache->sheaf_room, capacity) * sizeof(void *);
}

void sheaf_free(struct kmem_cache *cache, struct sheaf *sheaf)
{
        count_sheaf_events(cache, SHEAF_FREE, 1);
        sheaf_set_size(sheaf, 0);
        metadata_free(sheaf, sheaf_bytes(cache, sheaf->capacity));
}

struct sheaf *sheaf_new(struct kmem_cache *cache)
{
        uint32_t capacity = load_relaxed(&cache->sheaf_capacity);
        struct sheaf *sheaf = capacity ? metadata_alloc(sheaf_bytes(cache, capacity)) : NULL;

        if (sheaf) {
                store_relaxed(&sheaf->capacity, capacity); /* relaxed: as sheaf_set_size */
                count_sheaf_events(cache, SHEAF_ALLOC, 1);
        }
        return sheaf;
}

struct sheaf *barn_take_empty(struct kmem_cache *cache)
{
        struct barn *barn = barn_here(cache);
        struct sheaf *sheaf = NULL;

        /* Relaxed peek, from stores under the lock: a stale zero only makes one more sheaf. */
        if (load_relaxed(&barn->empty_size)) {
                lock_take(&barn->lock);
                sheaf = sheaves_pop(&barn->empty, &barn->empty_size);
                lock_drop(&barn->lock);
        }
        return sheaf ? sheaf : sheaf_new(cache);
}

void barn_put_empty(struct kmem_cache *cache, struct sheaf *sheaf)
{
        struct barn *barn = barn_here(cache);

        if (sheaf->capacity == load_relaxed(&cache->sheaf_capacity) &&
            load_relaxed(&barn->empty_size) < load_relaxed(&barn->empty_max)) {
                lock_take(&barn->lock);
                sheaves_push(&barn->empty, &barn->empty_size, sheaf);
                lock_drop(&barn->lock);
        } else {
                sheaf_free(cache, sheaf);
        }
}

struct sheaf *barn_take_full(struct barn *barn)
{
        struct sheaf *sheaf;

        /* Relaxed peek: a stale zero sends the caller to the back end, which is always correct. */
        if (!load_relaxed(&barn->full_size))
                return NULL;
        lock_take(&barn->lock);
        sheaf = sheaves_pop(&barn->full, &barn->full_size);
        barn->full_low = min_of(barn->full_low, barn->full_size);
        lock_drop(&barn->lock);
        return sheaf;
}

struct sheaf *barn_take_surplus(struct barn *barn)
{
        struct sheaf *sheaf = NULL;

        /* Relaxed peek: a sheaf that comes meanwhile is no surplus yet. */
        if (!load_relaxed(&barn->full_size))
                return NULL;
        lock_take(&barn->lock);
        if (min_of(barn->full_low, barn->full_size)) {
                barn->full_low--;
                sheaf = sheaves_pop(&barn->full, &barn->full_size);
        }
        lock_drop(&barn->lock);
        return sheaf;
}

void barn_mark_low(struct barn *barn)
{
        lock_take(&barn->lock);
        barn->full_low = barn->full_size;
        lock_drop(&barn->lock);
}

bool barn_put_full(struct barn *barn, struct sheaf *sheaf)
{
        bool room;

        if (!barn_has_room(barn))
                return false;
        lock_take(&barn->lock);
        room = barn->full_size < barn_full_max(barn);
        if (room)
                sheaves_push(&barn->full, &barn->full_size, sheaf);
        lock_drop(&barn->lock);
        return room;
}

/* Takes from @list and puts @sheaf on @others; NULL, with nothing done, if @list is empty. */
static struct sheaf *exchange(struct barn *barn, struct sheaf **list, uint32_t *length,
                              struct sheaf **others, uint32_t *others_length, struct sheaf *sheaf)
{
        struct sheaf *taken;

        lock_take(&barn->lock);
        taken = sheaves_pop(list, length);
        if (taken)
                sheaves_push(others, others_length, sheaf);
        barn->full_low = min_of(barn->full_low, barn->full_size);
        lock_drop(&barn->lock);
        return taken;
}

/* The list of empty sheaves may exceed its limit here, as the kernel's may. */
struct sheaf *barn_exchange_empty(struct kmem_cache *cache, struct sheaf *empty)
{
        struct barn *barn = barn_here(cache);
        struct sheaf *full = NULL;

        /* Relaxed peek: a stale zero sends the caller to the back end. */
        if (load_relaxed(&barn->full_size))
                full = exchange(barn, &barn->full, &barn->full_size, &barn->empty,
                                &barn->empty_size, empty);
        count_sheaf_events(cache, full ? BARN_GET : BARN_GET_FAIL, 1);
        return full;
}

/* The limit is read without the lock, so CPUs that come at a time may exceed it (S13-05). */
struct sheaf *barn_exchange_full(struct kmem_cache *cache, struct sheaf *full)
{
        struct barn *barn = barn_here(cache);
        struct sheaf *empty = NULL;

        if (barn_has_room(barn) && load_relaxed(&barn->empty_size))
                empty = exchange(barn, &barn->empty, &barn->empty_size, &barn->full,
                                 &barn->full_size, full);
        if (empty)
                count_sheaf_events(cache, BARN_PUT, 1);
        return empty;
}

struct sheaf *barn_take_any(struct barn *barn)
{
        struct sheaf *sheaf;

        lock_take(&barn->lock);
        sheaf = sheaves_pop(&barn->full, &barn->full_size);
        if (!sheaf)
                sheaf = sheaves_pop(&barn->empty, &barn->empty_size);
        lock_drop(&barn->lock);
        return sheaf;
}

uint64_t barn_objects(struct barn *barn)
{
        uint64_t objects = 0;

        lock_take(&barn->lock);
        for (const struct sheaf *sheaf = barn->full; sheaf; sheaf = sheaf->next)
                objects += sheaf_count(sheaf, sheaf->size);
        lock_drop(&barn->lock);
        return objects;
}
