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
 *
 * Closing a cache is the same with one difference: the pairs are exchanged for closed instead of
 * cold, so that no slow path ever installs a sheaf there again.
 */
#include "percpu/drain.h"

#include "base/message.h"
#include "percpu/percpu.h"
#include "percpu/stock.h"

static struct lock drain_mutex;
bool slots_orphaned;

static const struct pair cold_pair = {&cold_sheaf, &cold_sheaf};
static const struct pair closed_pair = {&closed_sheaf, &closed_sheaf};

static void stop_slots(unsigned int count, uint32_t stopped)
{
        for (unsigned int number = 0; number < count; number++)
                store_release(&slot_made(number)->stopped, stopped);
}

/*
 * Step 3 for one slot. Owners load main and spare one at a time, so two stores do. A slot without
 * a record for the cache has never had a sheaf of it.
 */
static void exchange_pair(struct slot *slot, struct kmem_cache *cache, const struct pair *instead)
{
        struct slot_cache *record = load_acquire(&slot->caches[cache_index(cache)]);
        struct pair *pair = slot_pair(slot, sheaf_offset(cache));

        if (record)
                record->drained = *pair;
        store_release(&pair->main, instead->main);
        store_release(&pair->spare, instead->spare);
}

/*
 * Takes the pairs of the first @count slots into record->drained and puts a cold or closed pair
 * in their place; false if the kernel refuses fences.
 */
static bool detach_rseq(struct kmem_cache *cache, unsigned int count, const struct pair *instead)
{
        bool fenced;

        stop_slots(count, 1);
        fenced = slots_fence();
        if (fenced) {
                for (unsigned int number = 0; number < count; number++)
                        exchange_pair(slot_made(number), cache, instead);
                /* The kernel has granted the first; refusing now would leave sheaves shared. */
                check_or_die(slots_fence());
        }
        stop_slots(count, 0);
        return fenced;
}

static void detach_locked(struct kmem_cache *cache, unsigned int count, const struct pair *instead)
{
        for (unsigned int number = 0; number < count; number++) {
                struct slot *slot = slot_made(number);

                lock_take(&slot->lock);
                exchange_pair(slot, cache, instead);
                lock_drop(&slot->lock);
        }
}

/* Without fences: only the calling thread's own slot, by an ordinary replace. */
static void detach_own(struct kmem_cache *cache)
{
        struct slot *slot = slot_current();
        struct slot_cache *record = slot_record(slot, cache);
        struct pair pair = slot_read_pair(slot, sheaf_offset(cache));

        if (record && slot_replace(slot, sheaf_offset(cache), &pair, &cold_pair))
                record->drained = pair;
}

static void empty_sheaf(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                        struct sheaf *sheaf)
{
        if (sheaf_is_cold(sheaf))
                return;
        sheaf_give(cache, slot, record, sheaf);
        sheaf_free(cache, sheaf);
}

/* Everything a slot holds of the cache but its pair, and what was detached of that. */
static void empty_slot(struct kmem_cache *cache, struct slot *slot)
{
        struct slot_cache *record = load_acquire(&slot->caches[cache_index(cache)]);
        struct sheaf *sheaf;

        if (!record)
                return;
        empty_sheaf(cache, slot, record, record->drained.main);
        empty_sheaf(cache, slot, record, record->drained.spare);
        record->drained = cold_pair;
        while ((sheaf = stock_take(cache, slot, record)))
                empty_sheaf(cache, slot, record, sheaf);
        cache->engine->flush_slot(cache, &record->engine);
}

/*
 * Destroy needs no fences: the caller promises that nobody uses the cache, so no pop, push or
 * replace of its pairs runs or will run.
 */
static void detach_unused(struct kmem_cache *cache, unsigned int count)
{
        for (unsigned int number = 0; number < count; number++)
                exchange_pair(slot_made(number), cache, &cold_pair);
}

/* Empties the slots that exist now; drain_mutex is held. False if others' could not be taken. */
static bool flush_slots_locked(struct kmem_cache *cache, bool unused)
{
        /* Slots made later than this are left alone: they have no mark. */
        unsigned int count = slots_made_count();
        bool complete = true;

        if (unused) {
                detach_unused(cache, count);
        } else if (!slots_are_rseq()) {
                detach_locked(cache, count, &cold_pair);
        } else if (!detach_rseq(cache, count, &cold_pair)) {
                complete = false;
                detach_own(cache);
                count = slots_made_count(); /* the own slot may be new */
        }
        for (unsigned int number = 0; number < count; number++)
                empty_slot(cache, slot_made(number));
        empty_slot(cache, &shared_slot);
        return complete;
}

bool percpu_flush(struct kmem_cache *cache, bool unused)
{
        struct slot_cache *record;
        struct sheaf *sheaf;
        bool complete;

        percpu_after_fork();
        lock_take(&drain_mutex);
        complete = flush_slots_locked(cache, unused);
        record = slot_record(&shared_slot, cache);
        if (record) {
                while ((sheaf = barn_take_any(cache->barn)))
                        empty_sheaf(cache, &shared_slot, record, sheaf);
                empty_slot(cache, &shared_slot);
        }
        lock_drop(&drain_mutex);
        return complete;
}

/*
 * The sheaves' new index is told after the fences: whoever reads the old one later finds the pair
 * closed, and whoever compares with what it read there before finds it changed (INV-6).
 */
static bool close_locked(struct kmem_cache *cache, uint32_t hidden_index)
{
        uint32_t index = cache_index(cache);
        unsigned int count;

        /* Before the count: a slot made later begins closed, one made earlier is counted. */
        slots_close_index(index);
        count = slots_made_count();
        if (!slots_are_rseq()) {
                detach_locked(cache, count, &closed_pair);
        } else if (!detach_rseq(cache, count, &closed_pair)) {
                slots_reopen_index(index);
                return false;
        }
        store_release(&cache->sheaf_offset, hidden_index << PAIR_SHIFT);
        for (unsigned int number = 0; number < count; number++)
                empty_slot(cache, slot_made(number));
        return true;
}

bool percpu_close(struct kmem_cache *cache)
{
        uint32_t hidden_index;
        bool done;

        if (cache_is_closed(cache))
                return true;
        hidden_index = percpu_take_index();
        if (!hidden_index)
                return false;
        slots_publish_index(hidden_index);
        lock_take(&drain_mutex);
        done = close_locked(cache, hidden_index);
        lock_drop(&drain_mutex);
        if (!done)
                percpu_give_index(hidden_index);
        return done;
}

void percpu_report(struct kmem_cache *cache, struct engine_report *report, uint64_t *resting)
{
        *resting = barn_objects(cache->barn);
        cache->engine->report(cache, report);
        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                struct slot *slot = number ? slot_made(number - 1) : &shared_slot;
                struct slot_cache *record = load_acquire(&slot->caches[cache_index(cache)]);
                struct pair pair = slot_read_pair(slot, sheaf_offset(cache));

                *resting += sheaf_peek(cache, pair.main) + sheaf_peek(cache, pair.spare);
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
 * Slots that only vanished threads used may never be used again by a forked child, so at its
 * first slow path all slots are emptied; it may have threads again by then. Sheaves that vanished
 * threads held in slow paths are lost; they count as in use.
 * A cache cannot vanish under this: destroy flushes first, and that waits for drain_mutex.
 */
void collect_orphans(void)
{
        lock_take(&drain_mutex);
        if (load_relaxed(&slots_orphaned) && slots_are_rseq())
                for (uint32_t index = 1; index < slots_index_end(); index++) {
                        struct kmem_cache *cache = load_acquire(&caches_by_index[index]);

                        if (cache)
                                flush_slots_locked(cache, false);
                }
        store_relaxed(&slots_orphaned, false);
        lock_drop(&drain_mutex);
}

/*
 * Calls a function on every lock of the caches, outermost first, and on those of locked slots:
 * a pair may be replaced with the slot cache lock held, so they come after all of those.
 */
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
                if (cache->engine->each_lock)
                        cache->engine->each_lock(cache, act);
                for (unsigned int node = 0; node < NODES_MAX; node++)
                        act(&cache->node[node].list_lock);
                act(&cache->barn->lock);
        }
        for (unsigned int number = 0; !slots_are_rseq() && number < slots_made_count(); number++)
                act(&slot_made(number)->lock);
        act(&slob_lock);
}

static bool any_held;

static void look(struct lock *lock)
{
        any_held |= lock_is_held(lock);
}

bool percpu_locks_free(void)
{
        any_held = lock_is_held(&drain_mutex);
        each_lock(look);
        return !any_held;
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
