/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The drain protocol (INV-4). To take a cache's sheaves from slots that other CPUs use:
 *
 *   (0) take drain_mutex
 *   (1) set the stop mark of the slots: from the next check on no thread replaces a pair
 *   (2) fence: every replace that passed the check before is committed or aborted
 *   (3) exchange the pairs for cold: pops and pushes that load main from now on go slow
 *   (4) fence: every pop and push that loaded the old main is committed or aborted
 *   (5) the old sheaves are private
 *   (6) clear the marks
 *
 * Without (1) or (2) a replace could install one of the old sheaves again, or take it, after (3):
 * the sheaf would have two owners. Without (4) a pop or push could commit into a sheaf that is
 * being emptied: an object would be handed out twice, or lost.
 *
 * For locked slots the drainer holds the slot's lock over the exchange, and no more is needed.
 *
 * To close a cache, the drainer exchanges its pairs for closed pairs instead of cold ones, so that
 * no slow path ever installs a sheaf there again.
 */
#include "percpu/drain.h"

#include "machine/message.h"
#include "machine/system.h"
#include "percpu/marks.h"
#include "percpu/percpu.h"
#include "percpu/stock.h"

#include <errno.h>

static struct lock drain_mutex;
bool slots_orphaned;

static const struct pair cold_pair = {&cold_sheaf, &cold_sheaf};
static const struct pair closed_pair = {&closed_sheaf, &closed_sheaf};

/*
 * The sheaves that a drain takes. drain_mutex holds it still, and cache_mutex too if it is for all
 * caches.
 */
struct drain {
        struct kmem_cache *cache;   /* NULL: all caches */
        unsigned int count;         /* slots made when it began; later ones have no mark */
        bool left_only;             /* only slots whose CPU may have left */
        bool quiet_only;            /* only records that are marked quiet, which clears the mark */
        bool stay_stopped;          /* the caller clears the marks */
        const struct pair *instead; /* the new content of their pairs: cold or closed */
};

static void stop_slots(unsigned int count, uint32_t stopped)
{
        for (unsigned int number = 0; number < count; number++)
                /*
                 * Release, for clearing: a replace that finds no mark sees the exchanged pairs. A
                 * new mark is ordered by the fence of step 2.
                 */
                store_release(&slot_made(number)->stopped, stopped);
}

static bool record_is_quiet(struct slot *slot, uint32_t index)
{
        const struct slot_cache *record = slot_peek(slot, index);

        return record && record->quiet;
}

static void each_pair(const struct drain *drain,
                      void (*act)(struct slot *slot, struct kmem_cache *cache,
                                  const struct pair *instead))
{
        for (unsigned int number = 0; number < drain->count; number++) {
                struct slot *slot = slot_made(number);

                if (drain->left_only && !slot_may_have_left(slot))
                        continue;
                if (drain->cache) {
                        act(slot, drain->cache, drain->instead);
                        continue;
                }
                for (uint32_t index = 1; index < slots_index_end(); index++) {
                        struct kmem_cache *cache = load_acquire(&caches_by_index[index]);

                        if (cache && (!drain->quiet_only || record_is_quiet(slot, index)))
                                act(slot, cache, drain->instead);
                }
        }
}

/*
 * Step 3 for a pair. Owners load main and spare separately, so two stores are enough (release;
 * slot_read_pair acquires). A slot without a record for the cache has never had a sheaf of it.
 */
static void exchange_pair(struct slot *slot, struct kmem_cache *cache, const struct pair *instead)
{
        struct slot_cache *record = slot_peek(slot, cache_index(cache));
        struct pair *pair = slot_pair(slot, sheaf_offset(cache));

        if (record)
                record->drained = *pair;
        store_release(&pair->main, instead->main);
        store_release(&pair->spare, instead->spare);
}

/*
 * Takes the pairs into record->drained and puts cold or closed pairs in their place; false if the
 * kernel refuses fences. A single pair of fences serves any number of slots and caches.
 */
static bool detach_rseq(const struct drain *drain)
{
        bool fenced;

        stop_slots(drain->count, 1);
        fenced = !system_sandbox_was_told() && slots_fence();
        if (fenced) {
                each_pair(drain, exchange_pair);
                /* The kernel granted the first fence; a refusal now would leave sheaves shared. */
                check_or_die(slots_fence());
        }
        if (!drain->stay_stopped)
                stop_slots(drain->count, 0);
        return fenced;
}

static void exchange_under_lock(struct slot *slot, struct kmem_cache *cache,
                                const struct pair *instead)
{
        lock_take(&slot->lock);
        exchange_pair(slot, cache, instead);
        lock_drop(&slot->lock);
}

static bool detach(const struct drain *drain)
{
        if (slots_are_rseq())
                return detach_rseq(drain);
        if (drain->stay_stopped)
                stop_slots(drain->count, 1);
        each_pair(drain, exchange_under_lock);
        return true;
}

/* Without fences the drainer takes only the calling thread's own slot, by an ordinary replace. */
static void detach_own(struct kmem_cache *cache)
{
        struct slot *slot = slot_current();
        struct slot_cache *record = slot_peek(slot, cache_index(cache));
        struct pair pair = slot_read_pair(slot, sheaf_offset(cache));

        if (record && slot_replace(slot, sheaf_offset(cache), &pair, &cold_pair))
                record->drained = pair;
}

static void empty_sheaf(struct kmem_cache *cache, struct slot_cache *record, struct sheaf *sheaf)
{
        if (sheaf_is_cold(sheaf))
                return;
        sheaf_give(cache, record, sheaf);
        sheaf_free(cache, sheaf);
}

/* Empties a slot of a cache: the detached sheaves, the stock, and the back end's part. */
static void empty_slot(struct slot *slot, struct kmem_cache *cache, const struct pair *unused)
{
        struct slot_cache *record = slot_peek(slot, cache_index(cache));
        struct sheaf *sheaf;

        if (!record)
                return;
        empty_sheaf(cache, record, record->drained.main);
        empty_sheaf(cache, record, spare_of(&record->drained));
        record->drained = cold_pair;
        while ((sheaf = stock_take(cache, slot, record)))
                empty_sheaf(cache, record, sheaf);
        stock_free_empty(cache, record);
        cache->engine->flush_slot(cache, &record->engine);
}

/*
 * Empties the slots that exist now; drain_mutex is held. False if the sheaves of other slots could
 * not be taken. Destroy (@unused) needs no fences: the caller promises that nobody uses the cache,
 * so no pop, push or replace of its pairs runs or will run.
 */
static bool flush_slots_locked(struct kmem_cache *cache, bool unused)
{
        struct drain drain = {.cache = cache, .count = slots_made_count(), .instead = &cold_pair};
        bool complete = true;

        if (unused) {
                each_pair(&drain, exchange_pair);
        } else if (!detach(&drain)) {
                complete = false;
                detach_own(cache);
                drain.count = slots_made_count(); /* the own slot may be new */
        }
        each_pair(&drain, empty_slot);
        return complete;
}

/* Empties the barns, and the back end's part for threads without a slot. */
static void empty_shared(struct kmem_cache *cache)
{
        struct slot_cache *record = slot_peek(&shared_slot, cache_index(cache));
        struct sheaf *sheaf;

        for (unsigned int node = 0; node < system_nodes(); node++)
                while ((sheaf = barn_take_any(&cache->barn[node])))
                        empty_sheaf(cache, record, sheaf);
        empty_slot(&shared_slot, cache, NULL);
}

/*
 * Empties the slots of CPUs that have left to the nodes (S12-01). A slot that is in use after all,
 * or again, fills up as any other.
 */
void percpu_follow_cpus(void)
{
        struct drain drain = {.left_only = true, .instead = &cold_pair};
        bool left = system_cpus_reread();

        slots_follow_cpus();
        if (!left)
                return;
        percpu_after_fork();
        lock_take(&drain_mutex);
        drain.count = slots_made_count();
        if (detach(&drain))
                each_pair(&drain, empty_slot);
        lock_drop(&drain_mutex);
}

static void forget_quiet(struct slot *slot, struct kmem_cache *cache, const struct pair *unused)
{
        slot_peek(slot, cache_index(cache))->quiet = false;
}

/*
 * Threads without a slot use the records of the shared slot. Its pairs stay cold, so these records
 * hold nothing but the back end's part.
 */
bool percpu_drain_quiet(unsigned int slots)
{
        struct drain drain = {.count = slots, .quiet_only = true, .instead = &cold_pair};

        bool detached;

        percpu_after_fork();
        lock_take(&drain_mutex);
        detached = detach(&drain);
        /* The stock and the back end's part need no fences. */
        each_pair(&drain, empty_slot);
        each_pair(&drain, forget_quiet);
        lock_drop(&drain_mutex);
        return detached;
}

/*
 * Only threads on the slot's CPU replace its pairs beside the drainer, and drain_mutex keeps the drainer out, whose
 * `drained` this fills. A pair whose replace fails, because it has changed or the thread has moved, stays as it is;
 * stock and back end's part are emptied all the same, under their lock. Calls that run meanwhile use the cold pair.
 */
void percpu_drain_own(struct slot *slot)
{
        bool drains = lock_try(&drain_mutex);

        for (uint32_t index = 1; index < slots_index_end(); index++) {
                struct kmem_cache *cache = load_acquire(&caches_by_index[index]);
                struct slot_cache *record = cache ? slot_peek(slot, index) : NULL;
                struct pair pair;

                if (!record || !record->quiet)
                        continue;
                record->quiet = false;
                if (!drains)
                        continue;
                pair = slot_read_pair(slot, sheaf_offset(cache));
                /* INV-6: a closed pair, which is cold, stays. */
                if (!sheaf_is_cold(pair.main) &&
                    slot_replace(slot, sheaf_offset(cache), &pair, &cold_pair))
                        record->drained = pair;
                empty_slot(slot, cache, NULL);
        }
        if (drains)
                lock_drop(&drain_mutex);
}

void percpu_drain_surplus(struct kmem_cache *cache)
{
        struct slot_cache *record = slot_peek(&shared_slot, cache_index(cache));
        struct sheaf *sheaf;

        lock_take(&drain_mutex);
        for (unsigned int node = 0; node < system_nodes(); node++) {
                while ((sheaf = barn_take_surplus(&cache->barn[node]))) {
                        empty_sheaf(cache, record, sheaf);
                        record->quiet = true;
                }
                barn_mark_low(&cache->barn[node]);
        }
        if (record->quiet)
                empty_slot(&shared_slot, cache, NULL);
        record->quiet = false;
        lock_drop(&drain_mutex);
}

enum { FOLLOW_MS = 100 };

void percpu_follow_cpus_seldom(void)
{
        static uint64_t due; /* under cache_mutex */
        uint64_t now = system_time_ms();

        if (now < due)
                return;
        due = now + FOLLOW_MS;
        percpu_follow_cpus();
}

bool percpu_flush(struct kmem_cache *cache, bool unused)
{
        bool complete;

        percpu_after_fork();
        lock_take(&drain_mutex);
        complete = flush_slots_locked(cache, unused);
        empty_shared(cache);
        lock_drop(&drain_mutex);
        return complete;
}

void percpu_flush_all(void)
{
        struct drain drain = {.instead = &cold_pair};
        bool detached;

        percpu_after_fork();
        lock_take(&drain_mutex);
        drain.count = slots_made_count();
        detached = detach(&drain);
        if (detached)
                each_pair(&drain, empty_slot);
        for (uint32_t index = 1; index < slots_index_end(); index++) {
                struct kmem_cache *cache = load_acquire(&caches_by_index[index]);

                if (!cache)
                        continue;
                if (!detached)
                        flush_slots_locked(cache, false);
                empty_shared(cache);
        }
        lock_drop(&drain_mutex);
}

bool percpu_stop(unsigned int *slots)
{
        struct drain drain = {.stay_stopped = true, .instead = &cold_pair};
        bool detached;

        debug_check(lock_is_held(&cache_mutex));
        percpu_after_fork();
        lock_take(&drain_mutex);
        drain.count = slots_made_count();
        detached = detach(&drain);
        if (detached)
                each_pair(&drain, empty_slot);
        *slots = drain.count;
        if (!detached)
                percpu_go_on(drain.count);
        return detached;
}

void percpu_go_on(unsigned int slots)
{
        stop_slots(slots, 0);
        lock_drop(&drain_mutex);
}

/*
 * The sheaves' new index is stored after the fences. A slow path that reads the old index later
 * finds the pair closed, and a slow path that read a pair at the old index before finds that the
 * pair changed (INV-6).
 */
static bool close_locked(struct kmem_cache *cache, uint32_t hidden_index)
{
        struct drain drain = {.cache = cache, .instead = &closed_pair};
        uint32_t index = cache->fast_offset >> PAIR_SHIFT;

        /* Before the count: a slot made later begins closed, one made earlier is counted. */
        slots_close_index(index);
        drain.count = slots_made_count();
        if (!detach(&drain)) {
                slots_reopen_index(index);
                return false;
        }
        store_release(&cache->sheaf_offset, hidden_index << PAIR_SHIFT);
        each_pair(&drain, empty_slot);
        return true;
}

int percpu_close(struct kmem_cache *cache)
{
        uint32_t hidden_index;
        bool done;

        if (cache_is_closed(cache))
                return 0;
        percpu_after_fork();
        hidden_index = cache_index_take();
        if (!hidden_index)
                return ENOSPC;
        slots_publish_index(hidden_index);
        lock_take(&drain_mutex);
        done = close_locked(cache, hidden_index);
        lock_drop(&drain_mutex);
        if (!done)
                cache_index_give(hidden_index);
        return done ? 0 : EPERM;
}

void percpu_report(struct kmem_cache *cache, struct engine_report *report, uint64_t *resting)
{
        /* Back ends show what they report (REG-2). */
        figures_poll();
        *resting = 0;
        for (unsigned int node = 0; node < system_nodes(); node++)
                *resting += barn_objects(&cache->barn[node]);
        cache->engine->report(cache, report);
        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                struct slot *slot = number ? slot_made(number - 1) : &shared_slot;
                struct slot_cache *record = slot_peek(slot, cache_index(cache));
                struct pair pair = slot_read_pair(slot, sheaf_offset(cache));

                *resting += sheaf_peek(cache, pair.main) + spare_count(cache, &pair);
                if (!record)
                        continue;
                lock_take(&record->engine.lock);
                for (const struct sheaf *sheaf = record->stock; sheaf; sheaf = sheaf->next)
                        *resting += sheaf_count(sheaf, sheaf->size);
                lock_drop(&record->engine.lock);
                cache->engine->report_slot(cache, &record->engine, report);
        }
}

/*
 * After fork the child may never again use a slot that only vanished threads used, so its first
 * slow path empties all slots; the child may have threads again by then. Sheaves that vanished
 * threads held in slow paths are lost, and their objects count as in use. A cache cannot vanish
 * under this function: destroy flushes first, and the flush waits for drain_mutex.
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
 * Calls a function on every lock of the caches, outermost first. The locks of locked slots come
 * after those of all caches, because a pair may be replaced with the slot cache lock held.
 */
static void each_lock(void (*act)(struct lock *))
{
        for (uint32_t index = 1; index < slots_index_end(); index++) {
                struct kmem_cache *cache = caches_by_index[index];

                if (!cache)
                        continue;
                for (unsigned int number = 0; number <= slots_made_count(); number++) {
                        struct slot *slot = number ? slot_made(number - 1) : &shared_slot;
                        struct slot_cache *record = slot_peek(slot, index);

                        if (record)
                                act(&record->engine.lock);
                }
                if (cache->engine->each_lock)
                        cache->engine->each_lock(cache, act);
                for (unsigned int node = 0; node < system_nodes(); node++)
                        act(&cache->node[node].list_lock);
                for (unsigned int node = 0; node < system_nodes(); node++)
                        act(&cache->barn[node].lock);
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

void percpu_fork_take(void (*take)(struct lock *lock))
{
        take(&drain_mutex);
        take(&slots_lock);
        each_lock(take);
}

void percpu_fork_release(void (*release)(struct lock *lock))
{
        each_lock(release);
        release(&slots_lock);
        release(&drain_mutex);
}

void percpu_fork_child(void)
{
        store_relaxed(&slots_orphaned, true);
}
