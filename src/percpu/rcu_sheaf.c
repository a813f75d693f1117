/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sheaves that wait for a grace period. The slot cache lock protects a sheaf that is being filled. */
#include "percpu/rcu_sheaf.h"

#include "base/metadata.h"
#include "machine/message.h"
#include "percpu/barn.h"
#include "percpu/kernel_rule.h"
#include "percpu/statistics.h"
#include "percpu/stock.h"

/* NULL without memory, or if the cache has no sheaves by now. */
static struct rcu_sheaf *rcu_sheaf_new(struct kmem_cache *cache)
{
        struct rcu_sheaf *new = metadata_alloc(sizeof(*new));

        if (!new)
                return NULL;
        new->cache = cache;
        new->node = system_current_node();
        new->sheaf = barn_take_empty(cache);
        if (new->sheaf)
                return new;
        metadata_free(new, sizeof(*new));
        return NULL;
}

static void rcu_sheaf_free(struct rcu_sheaf *unused)
{
        barn_put_empty(unused->cache, unused->sheaf);
        metadata_free(unused, sizeof(*unused));
}

static bool is_full(const struct rcu_sheaf *collecting)
{
        return collecting->sheaf->size >= collecting->sheaf->capacity;
}

bool rcu_sheaf_add(struct kmem_cache *cache, void *object, struct slot_cache **full)
{
        struct slot *slot = slot_current();
        struct slot_cache *record = slot_record(&slot, cache);
        struct rcu_sheaf *new = NULL;
        bool collected;

        *full = NULL;
        if (slot == &shared_slot || (looks_at_nodes(cache) && object_is_remote(cache, object))) {
                count_sheaf_events(cache, FREE_RCU_SHEAF_FAIL, 1);
                return false;
        }
        /* Relaxed peek; the lock decides. The barn's lock is taken outside. */
        if (!load_relaxed(&record->rcu))
                new = rcu_sheaf_new(cache);
        lock_take(&record->engine.lock);
        if (new && !record->rcu) {
                store_relaxed(&record->rcu, new);
                new = NULL;
        }
        collected = record->rcu && !is_full(record->rcu);
        if (collected)
                sheaf_push(record->rcu->sheaf, object);
        if (record->rcu && is_full(record->rcu))
                *full = record;
        lock_drop(&record->engine.lock);
        if (new)
                rcu_sheaf_free(new);
        if (collected || !*full)
                count_sheaf_events(cache, collected ? FREE_RCU_SHEAF : FREE_RCU_SHEAF_FAIL, 1);
        return collected;
}

static struct rcu_sheaf *take_from_record(struct slot_cache *record, bool only_full)
{
        struct rcu_sheaf *taken;

        if (!record || !load_relaxed(&record->rcu))
                return NULL;
        lock_take(&record->engine.lock);
        taken = record->rcu;
        if (taken && only_full && !is_full(taken))
                taken = NULL;
        if (taken)
                store_relaxed(&record->rcu, NULL); /* rcu_sheaf_add peeks without the lock */
        lock_drop(&record->engine.lock);
        return taken;
}

struct rcu_sheaf *rcu_sheaf_take_full(struct slot_cache *record)
{
        return take_from_record(record, true);
}

struct rcu_sheaf *rcu_sheaves_take(struct kmem_cache *cache)
{
        uint32_t first = cache ? cache_index(cache) : 1;
        uint32_t end = cache ? first + 1 : slots_index_end();
        struct rcu_sheaf *chain = NULL;

        for (uint32_t index = first; index < end; index++) {
                struct kmem_cache *there = load_acquire(&caches_by_index[index]);

                if (!there || !there->sheaves_as_7_0)
                        continue;
                for (unsigned int number = 0; number < slots_made_count(); number++) {
                        struct rcu_sheaf *taken =
                                take_from_record(slot_peek(slot_made(number), index), false);

                        if (!taken)
                                continue;
                        taken->next = chain;
                        chain = taken;
                }
        }
        return chain;
}

void rcu_sheaf_end(struct rcu_sheaf *waiting)
{
        struct kmem_cache *cache = waiting->cache;
        struct sheaf *sheaf = waiting->sheaf;
        struct slot *slot = slot_current();
        struct slot_cache *record = slot_record(&slot, cache);
        bool whole = sheaf->size == sheaf->capacity &&
                     sheaf->capacity == load_relaxed(&cache->sheaf_capacity);

        unsigned int node = waiting->node;

        metadata_free(waiting, sizeof(*waiting));
        if (whole && barn_put_full(&cache->barn[node], sheaf)) {
                count_sheaf_events(cache, BARN_PUT, 1);
                return;
        }
        if (whole)
                count_sheaf_events(cache, BARN_PUT_FAIL, 1);
        sheaf_give(cache, record, sheaf);
        barn_put_empty(cache, sheaf);
}
