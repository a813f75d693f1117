/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The drain protocol (INV-4). To take a cache's sheaves from slots that other CPUs use:
 *
 *   (0) take drain_mutex
 *   (1) set the stop mark of the slots: from the next check on nobody replaces a pair
 *   (2) fence: every replace that passed the check before is committed or aborted
 *   (3) exchange the pairs for cold: pops and pushes that load main from now on go slow
 *   (4) fence: every pop and push that loaded the old main is committed or aborted
 *   (5) the old sheaves are private
 *   (6) clear the marks
 *
 * Without (1) or (2) a replace could install one of the old sheaves again, or take it, after
 * (3): two owners. Without (4) a pop or push could commit into a sheaf that is being emptied:
 * an object handed out twice, or lost.
 *
 * Locked slots: the slot's lock is held over the exchange; that is all of it.
 */
#include "percpu/drain.h"

#include "base/message.h"
#include "percpu/percpu.h"
#include "percpu/stock.h"

static struct lock drain_mutex;
bool slots_orphaned;

static const struct pair cold_pair = {&cold_sheaf, &cold_sheaf};

static void stop_slots(unsigned int count, uint32_t stopped)
{
        for (unsigned int number = 0; number < count; number++)
                store_release(&slot_made(number)->stopped, stopped);
}

/* Step 3 for one slot. Owners load main and spare one at a time, so two stores do. */
static void exchange_for_cold(struct slot *slot, uint32_t pair_offset)
{
        struct pair *pair = slot_pair(slot, pair_offset);

        slot->drained = *pair;
        store_release(&pair->main, &cold_sheaf);
        store_release(&pair->spare, &cold_sheaf);
}

/* Takes the pair of every slot into slot->drained; false if the kernel refuses fences. */
static bool detach_rseq(uint32_t pair_offset)
{
        /* Slots made later than this are left alone: they have no mark. */
        unsigned int count = slots_made_count();
        bool fenced;

        stop_slots(count, 1);
        fenced = slots_fence();
        if (fenced) {
                for (unsigned int number = 0; number < count; number++)
                        exchange_for_cold(slot_made(number), pair_offset);
                /* The kernel has granted the first; refusing now would leave sheaves shared. */
                check_or_die(slots_fence());
        }
        stop_slots(count, 0);
        return fenced;
}

static void detach_locked(uint32_t pair_offset)
{
        for (unsigned int number = 0; number < slots_made_count(); number++) {
                struct slot *slot = slot_made(number);

                lock_take(&slot->lock);
                exchange_for_cold(slot, pair_offset);
                lock_drop(&slot->lock);
        }
}

/* Without fences: only the calling thread's own slot, by an ordinary replace. */
static void detach_own(uint32_t pair_offset)
{
        struct slot *slot = slot_current();

        for (unsigned int number = 0; number < slots_made_count(); number++)
                slot_made(number)->drained = cold_pair;
        if (slot != &shared_slot) {
                struct pair pair = slot_read_pair(slot, pair_offset);

                if (slot_replace(slot, pair_offset, &pair, &cold_pair))
                        slot->drained = pair;
        }
}

static void empty_sheaf(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                        struct sheaf *sheaf)
{
        if (sheaf_is_cold(sheaf))
                return;
        sheaf_give(cache, slot, record, sheaf);
        sheaf_free(sheaf);
}

/* Everything a slot holds of the cache but its pair, which is in slot->drained. */
static void empty_slot(struct kmem_cache *cache, struct slot *slot)
{
        struct slot_cache *record = load_acquire(&slot->caches[cache_index(cache)]);
        struct sheaf *sheaf;

        if (!record)
                return;
        if (slot != &shared_slot) {
                empty_sheaf(cache, slot, record, slot->drained.main);
                empty_sheaf(cache, slot, record, slot->drained.spare);
                slot->drained = cold_pair;
        }
        while ((sheaf = stock_take(cache, slot, record)))
                empty_sheaf(cache, slot, record, sheaf);
        cache->engine->flush_slot(cache, &record->engine);
}

bool percpu_flush(struct kmem_cache *cache)
{
        bool complete = true;
        struct slot_cache *record;
        struct sheaf *sheaf;

        percpu_after_fork();
        lock_take(&drain_mutex);
        if (!slots_are_rseq())
                detach_locked(cache->pair_offset);
        else if (!detach_rseq(cache->pair_offset)) {
                complete = false;
                detach_own(cache->pair_offset);
        }
        record = slot_record(&shared_slot, cache);
        if (record)
                while ((sheaf = barn_take_any(cache->barn)))
                        empty_sheaf(cache, &shared_slot, record, sheaf);
        for (unsigned int number = 0; number < slots_made_count(); number++)
                empty_slot(cache, slot_made(number));
        empty_slot(cache, &shared_slot);
        lock_drop(&drain_mutex);
        return complete;
}

static uint64_t sheaf_objects(const struct sheaf *sheaf)
{
        /* A sheaf that is being changed may be read torn between pointers, never beyond. */
        return min_of(load_relaxed(&sheaf->size), load_relaxed(&sheaf->capacity));
}

void percpu_report(struct kmem_cache *cache, struct engine_report *report, uint64_t *resting)
{
        *resting = barn_objects(cache->barn);
        cache->engine->report(cache, report);
        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                struct slot *slot = number ? slot_made(number - 1) : &shared_slot;
                struct slot_cache *record = load_acquire(&slot->caches[cache_index(cache)]);
                struct pair pair = slot_read_pair(slot, cache->pair_offset);

                *resting += sheaf_objects(pair.main) + sheaf_objects(pair.spare);
                if (!record)
                        continue;
                lock_take(&record->engine.lock);
                for (const struct sheaf *sheaf = record->stock; sheaf; sheaf = sheaf->next)
                        *resting += sheaf->size;
                lock_drop(&record->engine.lock);
                cache->engine->report_slot(cache, &record->engine, report);
        }
}

/*
 * A forked child has one thread. Slots of other CPUs may never be used again by it, so their
 * sheaves go to the barns. Sheaves that vanished threads held in slow paths are lost; they count
 * as in use.
 */
void collect_orphans(void)
{
        lock_take(&drain_mutex);
        if (load_relaxed(&slots_orphaned) && slots_are_rseq()) {
                struct slot *own = slot_current();

                for (unsigned int number = 0; number < slots_made_count(); number++) {
                        struct slot *slot = slot_made(number);

                        for (uint32_t index = 1; slot != own && index < slots_index_end(); index++) {
                                struct kmem_cache *cache = caches_by_index[index];
                                struct slot_cache *record = slot->caches[index];

                                if (!cache || !record)
                                        continue;
                                exchange_for_cold(slot, cache->pair_offset);
                                empty_slot(cache, slot);
                        }
                }
        }
        store_relaxed(&slots_orphaned, false);
        lock_drop(&drain_mutex);
}

/* Calls a function on every lock of the caches, outermost first. */
static void each_lock(void (*act)(struct lock *))
{
        for (uint32_t index = 1; index < slots_index_end(); index++) {
                struct kmem_cache *cache = caches_by_index[index];

                if (!cache)
                        continue;
                for (unsigned int number = 0; number <= slots_made_count(); number++) {
                        struct slot *slot = number ? slot_made(number - 1) : &shared_slot;
                        struct slot_cache *record = slot->caches[index];

                        if (record)
                                act(&record->engine.lock);
                }
                for (unsigned int node = 0; node < NODES_MAX; node++)
                        act(&cache->node[node].list_lock);
                act(&cache->barn->lock);
        }
}

void percpu_fork_prepare(void)
{
        lock_take(&drain_mutex);
        slots_fork_prepare();
        each_lock(lock_take);
}

void percpu_fork_parent(void)
{
        each_lock(lock_drop);
        slots_fork_parent();
        lock_drop(&drain_mutex);
}

void percpu_fork_child(void)
{
        each_lock(lock_reset);
        slots_fork_child();
        lock_reset(&drain_mutex);
        store_relaxed(&slots_orphaned, true);
}
