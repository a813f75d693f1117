/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sizes, remote objects and statistics by the rule of Linux 7.0. */
#include "percpu/kernel_rule.h"

#include "kmem.h"
#include "percpu/statistics.h"
#include "percpu/stock.h"

enum {
        HEADER_WORDS = 4, /* words in front of the objects, in the kernel */
        REMOTE_PIECE = 32,
};

bool kernel_rule_is_used;

/* The rest of the kmalloc block that the least number of objects needs is used too. */
uint32_t kernel_capacity(const struct kmem_cache *cache)
{
        uint32_t least = cache->size >= PAGE_SIZE ? 4
                         : cache->size >= 1024    ? 12
                         : cache->size >= 256     ? 26
                                                  : 60;

        if (cache->flags & SLAB_NOLEAKTRACE)
                return 0;
        return (1u << fls(least + HEADER_WORDS - 1)) - HEADER_WORDS;
}

unsigned int give_remote(struct kmem_cache *cache, struct slot_cache *record, void **objects,
                         unsigned int count)
{
        void *remote[REMOTE_PIECE];
        unsigned int pieces = 0;
        unsigned int kept = 0;

        for (unsigned int i = 0; i < count; i++) {
                if (!object_is_remote(cache, objects[i])) {
                        objects[kept++] = objects[i];
                        continue;
                }
                remote[pieces++] = objects[i];
                if (pieces == REMOTE_PIECE) {
                        objects_give(cache, record, remote, pieces);
                        pieces = 0;
                }
        }
        if (pieces)
                objects_give(cache, record, remote, pieces);
        return kept;
}

void sheaf_events_add(struct kmem_cache *cache, enum slub_counter counter, uint64_t events)
{
        struct slot *slot = slot_current();

        count_events(&slot_record(&slot, cache)->engine, counter, events);
}
