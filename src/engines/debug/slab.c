/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A slab of a debug cache: its begin, its list of free objects, its end.
 */
#include "engines/debug/object.h"

#include <string.h>

/* Constructors last: a red zone or poison would overwrite their values. */
static void setup_slab(struct kmem_cache *cache, struct page *slab, uint32_t objects)
{
        struct slab_state state = state_read(slab);

        state.head = 0;
        state_write(slab, state);
        /*
         * Padding, filler and the tail keep this value, because nothing else writes to them
         * (S4-11).
         */
        if (has_flag(cache, SLAB_POISON))
                memset(page_address(slab), POISON_INUSE, order_bytes(slab->order));
        for (uint32_t index = 0; index < objects; index++) {
                void *object = slub_object(cache, slab, index);

                slab_set_next(slab, objects, index, INDEX_END);
                object_init(cache, object, false);
                *free_pointer_place(cache, object) =
                        index + 1 < objects ? slub_object(cache, slab, index + 1) : NULL;
                if (has_flag(cache, SLAB_STORE_USER))
                        memset(object_track(cache, object, TRACK_ALLOC), 0,
                               TRACKS * sizeof(struct track));
                if (debug_has_request(cache))
                        *request_place(cache, object) = cache->object_size;
        }
        for (uint32_t index = 0; cache->ctor && index < objects; index++)
                cache->ctor(slub_object(cache, slab, index));
}

struct page *slab_make_new(struct kmem_cache *cache, int node)
{
        unsigned int count = 1;

        return slabs_make(cache, node, &count, setup_slab);
}

uint32_t debug_next(const struct kmem_cache *cache, const struct page *slab, uint32_t index)
{
        uint32_t next;

        return free_index(cache, slab, *free_pointer_place(cache, slub_object(cache, slab, index)),
                          &next)
                       ? next
                       : INDEX_END;
}

bool slab_check(struct debug_report *report, struct page *slab)
{
        const struct kmem_cache *cache = report->cache;
        struct slab_state state = state_read(slab);
        uint8_t *start = page_address(slab);
        size_t used = (size_t)state.objects * cache->size;
        size_t bytes = order_bytes(slab->order);
        uint8_t *fault;
        uint8_t *last = start + bytes - 1;

        if (state.frozen)
                return false;
        if (!has_flag(cache, SLAB_POISON))
                return true;
        fault = first_other(start + used, POISON_INUSE, bytes - used);
        if (likely(!fault))
                return true;
        while (*last == POISON_INUSE)
                last--;
        report_error(report, slab, NULL, "Padding overwritten. 0x%016lx-0x%016lx @offset=%zu",
                     (unsigned long)(uintptr_t)fault, (unsigned long)(uintptr_t)last,
                     (size_t)(fault - start));
        report_add_bytes(report, "Padding  ", fault, (size_t)(last - fault) + 1);
        report_fix(report, "Restoring slab padding 0x%016lx-0x%016lx=0x%x",
                   (unsigned long)(uintptr_t)fault, (unsigned long)(uintptr_t)last, POISON_INUSE);
        memset(fault, POISON_INUSE, (size_t)(last - fault) + 1);
        return true;
}

void slab_check_list(struct debug_report *report, struct page *slab)
{
        const struct kmem_cache *cache = report->cache;
        struct slab_state state = state_read(slab);
        uint32_t index = state.head;
        uint32_t listed = 0;
        /* The walk is most of flag F's time, and the compiler would read all of these at each step. */
        char *const first = slub_object(cache, slab, 0);
        const void *const table = slab->table;
        const bool narrow = is_narrow(state.objects);
        const size_t size = cache->size;
        const uint64_t reciprocal = cache->reciprocal;
        const uint32_t free_pointer = cache->free_pointer;

        while (index != INDEX_END) {
                char *object = first + index * size;
                void **place = (void **)(void *)(object + free_pointer);
                uintptr_t next = (uintptr_t)*place;
                /* As slub_index. */
                uint64_t offset = next - (uintptr_t)first;
                uint64_t found = (offset * reciprocal) >> RECIPROCAL_SHIFT;

                listed++;
                if (!next)
                        break;
                index = (uint32_t)found;
                if (likely(found * size == offset && found < state.objects &&
                           !table_in_use(table, narrow, index) && listed < state.objects))
                        continue;
                /*
                 * The objects behind the pointer are lost; two pointers may also name an object
                 * twice.
                 */
                report_error(report, slab, object, "Freechain corrupt");
                *place = NULL;
                break;
        }
        if (state.inuse + listed == state.objects)
                return;
        report_error(report, slab, NULL, "Wrong object count. Counter is %u but counted were %u",
                     state.inuse, state.objects - listed);
        state.inuse = state.objects - listed;
        state_write(slab, state);
        report_fix(report, "Object count adjusted");
}

static void check_last_time(struct kmem_cache *cache, struct page *slab)
{
        uint32_t objects = slab_objects(slab);
        struct debug_report report;

        report_begin(&report, cache);
        slab_check(&report, slab);
        for (uint32_t index = 0; index < objects; index++)
                object_check(&report, slab, slub_object(cache, slab, index), false);
        report_send(&report);
}

void slabs_check_and_end(struct kmem_cache *cache, uint32_t chain)
{
        if (has_flag(cache, SLAB_CONSISTENCY_CHECKS))
                for (uint32_t number = chain; number; number = page_at(number)->next)
                        check_last_time(cache, page_at(number));
        slabs_end(cache, chain);
}
