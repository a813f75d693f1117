/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The free objects that CPUs and nodes keep of every cache, by place. The walk takes no lock and
 * moves no object, so that a run which is looked at is equal to a run which is not.
 */
#include "tools/loads/loads.h"

#include "engines/slub/state.h"
#include "percpu/barn.h"

#include <stdio.h>

/* Words in front of the objects of a kernel's sheaf (S13-03). */
enum { HEADER_WORDS = 4 };

static void add_sheaf(const struct kmem_cache *cache, const struct sheaf *sheaf, uint64_t *bytes,
                      struct kept *kept)
{
        if (sheaf_is_cold(sheaf))
                return;
        *bytes += (uint64_t)sheaf->size * cache->size;
        kept->arrays += (sheaf->capacity + HEADER_WORDS) * sizeof(void *);
}

static void add_slots(const struct kmem_cache *cache, struct kept *kept)
{
        for (unsigned int number = 0; number < slots_made_count(); number++) {
                const struct pair *pair =
                        &slot_made(number)->pairs[cache->sheaf_offset >> PAIR_SHIFT];

                add_sheaf(cache, pair->main, &kept->cpu_sheaves, kept);
                add_sheaf(cache, spare_of(pair), &kept->cpu_sheaves, kept);
        }
}

static void add_barn(const struct kmem_cache *cache, const struct barn *barn, struct kept *kept)
{
        for (const struct sheaf *sheaf = barn->full; sheaf; sheaf = sheaf->next)
                add_sheaf(cache, sheaf, &kept->barns, kept);
        for (const struct sheaf *sheaf = barn->empty; sheaf; sheaf = sheaf->next)
                add_sheaf(cache, sheaf, &kept->barns, kept);
}

static void add_partial(const struct kmem_cache *cache, const struct page_list *list,
                        struct kept *kept)
{
        for (const struct page *slab = page_list_first(list); slab; slab = page_list_next(slab)) {
                unsigned int inuse = state_unpack(slab->state).inuse;

                kept->partial += (uint64_t)(cache->objects - inuse) * cache->size;
        }
}

void kept_add(struct kept *kept)
{
        for (unsigned int i = 0; i < kind_count; i++) {
                const struct kmem_cache *cache = kinds[i].cache;

                if (cache->engine->caching != CACHING_SHEAVES)
                        continue;
                add_slots(cache, kept);
                for (unsigned int node = 0; node < settings.nodes; node++) {
                        add_barn(cache, &cache->barn[node], kept);
                        add_partial(cache, &cache->node[node].partial, kept);
                }
        }
}

void kept_print(const struct kept *kept, uint64_t samples)
{
        uint64_t grain = samples * 1024;

        printf(" \"kept_kib\": {\"cpu_sheaves\": %lu, \"barns\": %lu, \"partial_slabs\": %lu,"
               " \"arrays\": %lu},\n",
               (unsigned long)(kept->cpu_sheaves / grain), (unsigned long)(kept->barns / grain),
               (unsigned long)(kept->partial / grain), (unsigned long)(kept->arrays / grain));
}
