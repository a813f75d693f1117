/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * How long a CPU partial list may be: the two accounting rules (S2), each rule is a branch in each
 * function here and nowhere else.
 *
 *   option           slabs (5.16 on)                    objects (to 5.15)
 *   counted          slabs, exactly (S2-10)             besides, free objects of a slab at the
 *                                                       moment it joins; later frees change
 *                                                       nothing (S2-01)
 *   a free drains    if slabs >= cpu_partial_slabs      if objects > cpu_partial (S2-03)
 *                    (S2-12)
 *   a refill stops   if slabs pushed >                  if the free objects of all slabs taken
 *                    cpu_partial_slabs / 2 (S2-21,      > cpu_partial / 2 (S2-20)
 *                    S2-22)
 *   shown            slabs, taken as half full (S2-31)  objects counted
 *
 * A slab that joins after its first free counts as a single object, even when more objects are
 * freed into it later. So the objects rule lets a list grow to cpu_partial + 1 slabs, which may all
 * be empty (S2-05): the reason for the slabs rule.
 *
 * A chain runs through page->next; page->prev holds its length in slabs and list_objects its free
 * objects as counted, from each slab on (S1-73). That has 24 bits: a greater limit has the effect
 * of that number, and objects that a refill brings beyond it are not counted.
 */
#include "base/options.h"
#include "engines/slub/slab.h"

/*
 * The limit in objects, by stride (S2.3). Slabs that hold few objects are mostly either full or
 * empty.
 */
static uint32_t default_objects(const struct kmem_cache *cache)
{
        static const uint32_t defaults[][4] = {
                [DEFAULTS_LATER] = {6, 24, 52, 120},
                [DEFAULTS_SEED] = {2, 6, 13, 30},
        };
        uint64_t which =
                options_for_cache_or(cache->name, OPTION_CPU_PARTIAL_DEFAULTS, DEFAULTS_LATER);
        unsigned int row = cache->size >= PAGE_SIZE ? 0
                           : cache->size >= 1024    ? 1
                           : cache->size >= 256     ? 2
                                                    : 3;

        return cache->slab_pages ? 0 : defaults[which][row];
}

void slub_setup_cpu_partial(struct kmem_cache *cache)
{
        uint32_t objects = (uint32_t)options_for_cache_or(cache->name, OPTION_CPU_PARTIAL,
                                                          default_objects(cache));

        cache->has_cpu_partial = objects != 0;
        cache->count_objects = options_for_cache_or(cache->name, OPTION_CPU_PARTIAL_ACCOUNTING,
                                                    ACCOUNT_SLABS) == ACCOUNT_OBJECTS;
        slub_set_cpu_partial(cache, objects);
}

/* The factor 2 stands for slabs that are half full on average (S2-11). */
void slub_set_cpu_partial(struct kmem_cache *cache, uint32_t objects)
{
        uint64_t slabs = (2 * (uint64_t)objects + cache->objects - 1) / cache->objects;

        store_relaxed(&cache->cpu_partial, objects);
        store_relaxed(&cache->cpu_partial_slabs, (uint32_t)min_of(slabs, (uint64_t)UINT32_MAX));
}

enum { LIST_OBJECTS_MAX = (1 << 24) - 1 };

bool partial_list_is_full(const struct kmem_cache *cache, const struct engine_slot *slot)
{
        const struct page *head;
        uint32_t objects_max;

        debug_check(lock_is_held(&slot->lock));
        if (!slot->partial)
                return false;
        head = page_at(slot->partial);
        /* Relaxed: a limit that changes meanwhile counts from the next time on. */
        objects_max = min_of(load_relaxed(&cache->cpu_partial), LIST_OBJECTS_MAX - 1u);
        return cache->count_objects ? head->list_objects > objects_max
                                    : head->prev >= load_relaxed(&cache->cpu_partial_slabs);
}

void partial_list_add(const struct kmem_cache *cache, struct engine_slot *slot, struct page *slab)
{
        const struct page *head = slot->partial ? page_at(slot->partial) : NULL;
        struct slab_state state = state_unpack(load_relaxed(&slab->state));
        uint32_t objects = (head ? head->list_objects : 0) + state.objects - state.inuse;

        debug_check(lock_is_held(&slot->lock));
        slab_enter(cache, slab, STAGE_TRANSIT, STAGE_CPU_PARTIAL);
        slab->prev = (head ? head->prev : 0) + 1;
        if (cache->count_objects)
                slab->list_objects = min_of(objects, (uint32_t)LIST_OBJECTS_MAX) & 0xffffff;
        slab->next = slot->partial;
        store_relaxed(&slot->partial, page_number(slab));
}

bool refill_is_enough(const struct kmem_cache *cache, uint32_t pushed, uint32_t free_objects)
{
        uint32_t slabs = load_relaxed(&cache->cpu_partial_slabs);

        if (!cache->has_cpu_partial)
                return true;
        if (cache->count_objects)
                return free_objects > load_relaxed(&cache->cpu_partial) / 2;
        /* With a limit of 0, which was lowered to it, eager freezing still took a second slab. */
        return pushed > slabs / 2 || (!slabs && !cache->freeze_eagerly);
}

struct slub_partial_list slub_slot_partial(struct engine_slot *slot)
{
        struct slub_partial_list list = {0};

        lock_take(&slot->lock);
        if (slot->partial) {
                list.slabs = page_at(slot->partial)->prev;
                list.objects = page_at(slot->partial)->list_objects;
        }
        lock_drop(&slot->lock);
        return list;
}

uint64_t slub_partial_objects(const struct kmem_cache *cache, const struct slub_partial_list *list)
{
        return cache->count_objects ? list->objects : list->slabs * cache->objects / 2;
}
