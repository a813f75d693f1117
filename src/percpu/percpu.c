/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Refill and drain: the slow paths for a sheaf that runs empty or full.
 *
 * A slow path never works on a sheaf in a pair. It takes a sheaf out of a pair by replacing it
 * (INV-3), works on it alone, and puts a sheaf in the same way. A replacement fails if the thread
 * moved, another thread was quicker or the slot is stopped. Then the slow path serves the request
 * all the same, from or to the sheaf that it owns, and installs nothing.
 */
#include "percpu/percpu.h"

#include "account/group.h"
#include "account/owners.h"
#include "machine/message.h"
#include "base/metadata.h"
#include "base/options.h"
#include "machine/probe.h"
#include "kmem.h"
#include "page/reclaim.h"
#include "percpu/array.h"
#include "percpu/calls.h"
#include "percpu/drain.h"
#include "percpu/figures.h"
#include "percpu/handed.h"
#include "percpu/kernel_rule.h"
#include "percpu/marks.h"
#include "percpu/quiet.h"
#include "percpu/rest.h"
#include "percpu/statistics.h"
#include "percpu/stock.h"
#include "record/record.h"

#include <errno.h>

/*
 * Bytes of free objects that a stock or a barn of a cache may hold, and the most sheaves of each.
 * Objects above a page come from slabs of a few, so each way to the back end makes and ends slabs;
 * their stocks have no limit but that of all of them together (stock.c).
 */
enum {
        STOCK_BYTES = 256 << 10,
        BARN_BYTES = 64 << 10,
        STOCK_MAX = 4,
        STOCK_MAX_SHARED_PAGES = 6,
        OTHERS_LOOKED_AT = 8, /* other slots, for a sheaf in their stock */
        STOCK_MAX_ABOVE_PAGE = 64,
        STOCK_EMPTY_BYTES = 4 << 10, /* of empty sheaves */
        SPARSE_CAPACITY = 14,
        BARN_FULL_MAX = 10,
};

bool class_is_coarse(uint32_t size)
{
        return options.classes == CLASSES_AUTO && size >> __builtin_ctz(size) <= 3;
}

/*
 * A sheaf holds about 32 KiB of objects and, with its header of two words, fills a metadata block
 * of a power of two: 126 objects up to 256 bytes, 62 up to 512, 30 up to 1 KiB, 14 up to 2 KiB, 6
 * up to a page, 14 up to four pages, 6 up to 64 KiB. With the kernel's numbers (S13-03), bursts of
 * 32 objects above 256 bytes miss. A class that stands for others (heap/classes.c) serves the
 * requests of all of them, so its sheaf may have twice the size.
 */
static uint32_t default_capacity(const struct kmem_cache *cache)
{
        bool for_others = cache->flags & SLAB_KMALLOC && class_is_coarse(cache->size);
        uint32_t bytes = for_others ? 64u << 10 : 32u << 10;
        uint32_t words = 1u << (fls(bytes / cache->size | 1) - 1);

        /* A few objects of more than 64 KiB would be megabytes at rest, for which only malloc asks. */
        if (cache->size > 64u << 10)
                return !cache->is_class ? 0 : cache->size <= 128u << 10 ? 4 : 2;
        if (cache->size > PAGE_SIZE)
                return cache->size <= 4 * PAGE_SIZE ? 14 : 6;
        return min_of(max_of(words, 8u), for_others ? 256u : 128u) - 2;
}

/*
 * Whether the cache is closed from its first object on: because its objects are recorded, charged,
 * counted or checked (HANDED-2), have their node looked at, or may be refused (FAULT-2). A cache
 * with SLAB_ACCOUNT begins open while there are no groups, and can be closed when the first group
 * is made.
 */
static bool begins_closed(const struct kmem_cache *cache)
{
        return is_recording() || process_group || cache_is_checked(cache) ||
               cache->counts_sheaves || (cache->sheaf_room && looks_at_nodes(cache)) ||
               (cache->failslab && options.failslab.probability) ||
               (cache->flags & SLAB_ACCOUNT && (groups_are_on() || !slots_can_drain()));
}

static void give_indexes(struct kmem_cache *cache)
{
        if (cache_is_closed(cache))
                cache_index_give(cache->sheaf_offset >> PAIR_SHIFT);
        if (cache->fast_offset != cache->pair_offset)
                cache_index_give(cache->fast_offset >> PAIR_SHIFT);
        cache_index_give(cache_index(cache));
        cache->sheaf_offset = cache->fast_offset = cache->pair_offset = 0;
}

/*
 * Whether free objects keep what the program left in them: a constructor ran once, or readers may
 * still look (S4-43, S8-10). A free by address would mark the object (percpu/freed.h).
 */
static bool cache_keeps_objects(const struct kmem_cache *cache)
{
        return cache->ctor || cache->flags & SLAB_TYPESAFE_BY_RCU;
}

/*
 * Whether the pair that the page map knows is cold for good. Then frees by address take the slow path, which
 * knows the caches that keep their objects, and checks that the address is an object's first byte: what
 * that costs is nothing beside the use of a block of pages.
 */
static bool cache_looks_at_frees(const struct kmem_cache *cache)
{
        return cache->engine->caching != CACHING_NONE &&
               (cache_keeps_objects(cache) || cache_is_of_pages(cache));
}

/*
 * Takes the index that the page map knows, another index for calls with a cache that looks at frees,
 * and another for the sheaves of a cache that begins closed. False if there are too few;
 * give_indexes takes back what there was.
 */
static bool take_indexes(struct kmem_cache *cache)
{
        bool looks = cache_looks_at_frees(cache);
        uint32_t index = cache_index_take();
        uint32_t direct = index && looks ? cache_index_take() : index;
        uint32_t hidden = direct && begins_closed(cache) ? cache_index_take() : direct;

        cache->pair_offset = index << PAIR_SHIFT;
        cache->fast_offset = (direct ? direct : index) << PAIR_SHIFT;
        cache->sheaf_offset = hidden ? hidden << PAIR_SHIFT : cache->fast_offset;
        if (!hidden)
                return false;
        slots_publish_index(index);
        slots_publish_index(direct);
        slots_publish_index(hidden);
        return true;
}

/*
 * Whether a slot's objects stay on pages that other slots' objects are not on, as far as the heap does not
 * grow by it: other slots get its sheaves only before that (decisions/0046).
 */
static bool keeps_to_own_pages(const struct kmem_cache *cache)
{
        return cache_shares_pages(cache) && cache->engine->would_grow && options.slot_cache_max &&
               !cache->sheaves_as_7_0;
}

/* The capacity of new sheaves, and how many full ones are kept. */
static void set_capacity(struct kmem_cache *cache, uint32_t capacity)
{
        uint64_t bytes = max_of((uint64_t)capacity * cache->size, 1ul);
        uint64_t full_max = min_of(max_of(BARN_BYTES / bytes, 1ul), (uint64_t)BARN_FULL_MAX);
        uint64_t stock_max = min_of(STOCK_BYTES / bytes, (uint64_t)STOCK_MAX);
        uint64_t full_max_few = min_of(full_max, 1ul);
        uint32_t few_slots = 1;
        uint64_t empty_max, stock_empty_max;

        if (cache->size > PAGE_SIZE)
                stock_max = STOCK_MAX_ABOVE_PAGE;
        if (keeps_to_own_pages(cache)) {
                stock_max = min_of((STOCK_BYTES + BARN_BYTES) / bytes,
                                   (uint64_t)STOCK_MAX_SHARED_PAGES);
                /* Few slots of a single node find each other's stocks. */
                if (system_nodes() == 1) {
                        few_slots = OTHERS_LOOKED_AT + 1;
                        full_max_few = 0;
                }
        }
        if (cache->sheaves_as_7_0) {
                full_max = full_max_few = KERNEL_BARN_FULL_MAX;
                stock_max = 0;
        }
        full_max = options_for_cache_or(cache->name, OPTION_BARN_FULL, full_max);
        full_max_few = options_for_cache_or(cache->name, OPTION_BARN_FULL, full_max_few);
        empty_max = options_for_cache_or(cache->name, OPTION_BARN_EMPTY, BARN_EMPTY_MAX);
        /* A stock that may keep nothing needs no empty sheaves. */
        stock_empty_max = min_of(stock_max, STOCK_EMPTY_BYTES / sheaf_bytes(cache, capacity));
        if (!options.slot_cache_max || !empty_max)
                stock_empty_max = 0;
        store_relaxed(&cache->sheaf_capacity, capacity);
        store_relaxed(&cache->stock_max, (uint32_t)stock_max);
        store_relaxed(&cache->stock_empty_max, (uint32_t)stock_empty_max);
        for (unsigned int node = 0; node < system_nodes(); node++) {
                store_relaxed(&cache->barn[node].full_max, (uint32_t)full_max);
                store_relaxed(&cache->barn[node].full_max_few, (uint32_t)full_max_few);
                store_relaxed(&cache->barn[node].few_slots, few_slots);
                store_relaxed(&cache->barn[node].empty_max, (uint32_t)empty_max);
        }
}

/*
 * The capacity that a new cache begins with. A number given for its name comes first, then the
 * least that the program asks for, which is a least only (S13-03).
 */
static uint32_t first_capacity(struct kmem_cache *cache)
{
        uint64_t capacity =
                cache->sheaves_as_7_0 ? kernel_capacity(cache) : default_capacity(cache);
        enum option_source source =
                options_for_cache(cache->name, OPTION_SHEAF_CAPACITY, &capacity);

        if (source > OPTION_FOR_ALL)
                return (uint32_t)capacity;
        /* They have none even if they ask (S13-03). */
        if (cache->sheaves_as_7_0 && cache->flags & SLAB_NOLEAKTRACE)
                return 0;
        return max_of((uint32_t)capacity, cache->sheaf_asked);
}

static void choose_sheaves(struct kmem_cache *cache)
{
        bool has_sheaves = cache->engine->caching == CACHING_SHEAVES;
        uint64_t given;

        cache->guard_rate = (uint32_t)options_for_cache_or(cache->name, OPTION_GUARD_SAMPLING,
                                                           guard_rate_of_new);
        guard_note_rate(cache->guard_rate);
        if (cache->engine->caching == CACHING_ARRAY)
                return;
        cache->sheaves_as_7_0 = options_for_cache_or(cache->name, OPTION_SHEAF_RULE,
                                                     SHEAVES_STOCKED) == SHEAVES_7_0;
        if (cache->sheaves_as_7_0)
                store_relaxed(&kernel_rule_is_used, true);
        cache->looks_at_nodes =
                cache->sheaves_as_7_0 && options_for_cache_or(cache->name, OPTION_REMOTE_FREES,
                                                              REMOTE_TO_SLAB) == REMOTE_TO_SLAB;
        cache->sheaf_capacity = has_sheaves ? first_capacity(cache) : 0;
        if (has_sheaves)
                cache->sheaf_room = max_of(default_capacity(cache), cache->sheaf_capacity);
        cache->capacity_follows =
                has_sheaves && cache_is_of_pages(cache) && !cache->sheaves_as_7_0 &&
                options_for_cache(cache->name, OPTION_SHEAF_CAPACITY, &given) == OPTION_UNSET;
        if (cache->capacity_follows)
                cache->sheaf_room = max_of(cache->sheaf_room, (uint32_t)SPARSE_CAPACITY);
        cache->counts_sheaves =
                cache->sheaves_as_7_0 && cache->sheaf_capacity && cache->counters_bytes;
}

/*
 * Other threads may be using the cache. A slow path that has read the old capacity may still make a
 * sheaf of that size. It does no harm: each slow path goes by the sheaf's own capacity, and the
 * sheaf is freed when it is empty (barn_put_empty), an array after it was taken out
 * (put_back_locked). The drain protocol takes away all other sheaves of the old capacity.
 */
static void change_capacity(struct kmem_cache *cache, uint32_t capacity)
{
        set_capacity(cache, capacity);
        percpu_flush(cache, false);
}

void percpu_change_capacity(struct kmem_cache *cache, uint32_t capacity)
{
        cache->capacity_follows = false;
        change_capacity(cache, capacity);
}

void percpu_suit_sparse(struct kmem_cache *cache, bool sparse)
{
        uint32_t capacity = sparse ? SPARSE_CAPACITY : default_capacity(cache);

        if (load_relaxed(&cache->sheaf_capacity) == capacity || !lock_try(&cache_mutex))
                return;
        if (cache->capacity_follows) {
                /* REG-2 */
                figures_poll();
                change_capacity(cache, capacity);
                figures_show_cache(cache);
        }
        lock_drop(&cache_mutex);
}

int percpu_setup(struct kmem_cache *cache)
{
        int error = 0;

        cache->barn = barns_new();
        if (!cache->barn)
                return ENOMEM;
        choose_sheaves(cache);
        set_capacity(cache, cache->sheaf_capacity);
        figures_add_cache(cache);
        if (!take_indexes(cache))
                error = ENOSPC;
        else if (!slots_add_cache(cache))
                error = ENOMEM;
        if (error) {
                figures_drop_cache(cache);
                give_indexes(cache);
                barns_free(cache->barn);
                return error;
        }
        owners_setup(cache);
        if (cache_is_of_pages(cache))
                rest_add_class(cache);
        /* Release: a thread that finds the cache by its index (acquire) finds it complete. */
        store_release(&caches_by_index[cache_index(cache)], cache);
        return 0;
}

void percpu_retire(struct kmem_cache *cache)
{
        uint32_t index = cache_index(cache);

        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                struct slot_cache **place =
                        slot_place(number ? slot_made(number - 1) : &shared_slot, index);

                if (*place)
                        figures_drop_slot(&(*place)->engine);
                metadata_free(*place, slot_record_bytes(cache));
                *place = NULL;
        }
        figures_drop_cache(cache);
        barns_free(cache->barn);
        store_release(&caches_by_index[index], NULL);
        if (cache_is_closed(cache))
                slots_reopen_index(cache->fast_offset >> PAIR_SHIFT);
        give_indexes(cache);
}

/* Whether a refill from slabs needs a new one. */
static bool would_grow(struct kmem_cache *cache, struct slot_cache *record)
{
        return cache->engine->would_grow(cache, &record->engine,
                                         load_relaxed(&cache->sheaf_capacity));
}

/*
 * Takes a sheaf from the stock of another slot if the heap would grow otherwise, so that objects
 * which a thread has left behind on another CPU are used first. It does not look across nodes, and
 * it looks at few slots: the stocks are small, and reclaim finds unused sheaves in the others.
 */
static struct sheaf *take_from_others(struct kmem_cache *cache, const struct slot *slot,
                                      struct slot_cache *record)
{
        unsigned int made = slots_made_count();

        if (system_nodes() > 1 || !cache->engine->would_grow || !load_relaxed(&cache->stock_max))
                return NULL;
        for (unsigned int step = 1; step <= min_of(made, (unsigned int)OTHERS_LOOKED_AT); step++) {
                struct slot *other = slot_made((slot->id + step) % made);
                struct slot_cache *theirs = slot_peek(other, cache_index(cache));
                struct sheaf *sheaf;

                if (other == slot || !theirs || !load_relaxed(&theirs->stock_size))
                        continue;
                if (!would_grow(cache, record))
                        return NULL;
                sheaf = stock_take(cache, other, theirs);
                if (sheaf)
                        return sheaf;
        }
        return NULL;
}

struct sheaf *percpu_take_full(struct kmem_cache *cache, struct slot *slot,
                               struct slot_cache *record)
{
        struct sheaf *sheaf = stock_take(cache, slot, record);

        if (sheaf)
                return sheaf;
        if (!keeps_to_own_pages(cache) ||
            (load_relaxed(&barn_here(cache)->full_size) &&
             !cache->engine->has_slabs(&record->engine, load_relaxed(&cache->sheaf_capacity))))
                sheaf = barn_take_full(barn_here(cache));
        count_sheaf_events(cache, sheaf ? BARN_GET : BARN_GET_FAIL, 1);
        if (!sheaf)
                sheaf = take_from_others(cache, slot, record);
        if (sheaf && cache_is_of_pages(cache))
                rest_came(cache, slot, sheaf->size);
        return sheaf;
}

/*
 * How many objects a refill takes: a sheaf's worth. Above a page a slab has an object or a few, and each
 * that rests in a sheaf keeps pages from other classes. A program has blocks of many such sizes, but
 * only one or two of most. So a slot's refill of a size class takes no more than the slot has taken
 * before, and of a class of pages no more than may rest.
 */
static uint32_t refill_count(const struct kmem_cache *cache, const struct slot *slot,
                             const struct slot_cache *record, const struct sheaf *sheaf)
{
        uint64_t taken = load_relaxed(&record->engine.taken);
        uint32_t most = cache_is_of_pages(cache) ? rest_refill(cache, slot, sheaf->capacity)
                                                 : sheaf->capacity;

        if (!(cache->flags & SLAB_KMALLOC) || cache->size <= PAGE_SIZE ||
            options.classes == CLASSES_KERNEL || cache->sheaves_as_7_0 || taken >= most)
                return most;
        return max_of((uint32_t)taken, 1u);
}

/*
 * Fills an empty sheaf that the caller owns. If the back end has no object, the sheaf is put away
 * and the result is NULL.
 */
static struct sheaf *fill(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                          struct sheaf *sheaf)
{
        uint32_t count = refill_count(cache, slot, record, sheaf);

        percpu_look_grown(slot, cache);
        sheaf_set_size(sheaf, cache->engine->take(cache, &record->engine, sheaf->object, count));
        if (cache_is_of_pages(cache))
                rest_came(cache, slot, sheaf->size);
        PROBE3(refill, cache->name, sheaf->size, cache->size);
        count_sheaf_events(cache, SHEAF_REFILL, sheaf->size);
        if (sheaf->size) {
                if (is_profiling())
                        marks_decide(cache, record, sheaf->object, sheaf->size);
                return sheaf;
        }
        stock_put_empty(cache, record, sheaf);
        return NULL;
}

struct sheaf *percpu_refill(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record)
{
        struct sheaf *sheaf = percpu_take_full(cache, slot, record);

        if (sheaf)
                return sheaf;
        sheaf = stock_take_empty(cache, record);
        return sheaf ? fill(cache, slot, record, sheaf) : NULL;
}

void percpu_put_away(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                     struct sheaf *sheaf)
{
        if (sheaf_is_cold(sheaf))
                return;
        if (sheaf->size) {
                /*
                 * A sheaf with few objects would only look like a refill. While a profile runs,
                 * though, it may have few objects because it has marks, and marks must not leave
                 * more often than objects do.
                 */
                bool worth = is_profiling() || sheaf->size * 4 >= sheaf->capacity;

                if (worth && (stock_put(cache, slot, record, sheaf) ||
                              barn_put_full(barn_here(cache), sheaf))) {
                        count_sheaf_events(cache, BARN_PUT, 1);
                        return;
                }
                sheaf_give(cache, record, sheaf);
        }
        stock_put_empty(cache, record, sheaf);
}

/*
 * Takes the spare out of the pair, which serves without a spare until the caller installs another.
 * The caller owns the sheaf from the replacement on, with any objects that were freed into it
 * meanwhile. NULL if there is no spare, or if the pair has changed.
 */
static struct sheaf *take_spare(struct kmem_cache *cache, struct slot *slot,
                                const struct pair *pair)
{
        struct pair alone = {.main = pair->main, .spare = &cold_sheaf};

        if (sheaf_is_cold(pair->spare) || !slot_replace(slot, sheaf_offset(cache), pair, &alone))
                return NULL;
        return spare_of(pair);
}

/* The caller's empty sheaf for a full one of the barn, or the empty sheaf filled (S13-04). */
static struct sheaf *exchange_or_fill(struct kmem_cache *cache, struct slot *slot,
                                      struct slot_cache *record, struct sheaf *empty)
{
        struct sheaf *full = barn_exchange_empty(cache, empty);

        return full ? full : fill(cache, slot, record, empty);
}

/*
 * A full sheaf for a pair with two empty sheaves: a kept sheaf, or the spare after the back end
 * filled it.
 */
static struct sheaf *refill_spare(struct kmem_cache *cache, struct slot *slot,
                                  struct slot_cache *record, const struct pair *pair)
{
        struct sheaf *sheaf;

        if (cache->sheaves_as_7_0) {
                sheaf = take_spare(cache, slot, pair);
                if (sheaf && !sheaf->size)
                        return exchange_or_fill(cache, slot, record, sheaf);
        } else {
                sheaf = percpu_take_full(cache, slot, record);
                if (!sheaf)
                        sheaf = take_spare(cache, slot, pair);
        }
        if (!sheaf)
                return percpu_refill(cache, slot, record);
        /* Another thread may have freed into the spare, or into the sheaf while it was main. */
        return sheaf->size ? sheaf : fill(cache, slot, record, sheaf);
}

/* Empties a sheaf of the caller's into the back end; NULL if it is of an old capacity. */
static struct sheaf *emptied(struct kmem_cache *cache, struct slot_cache *record,
                             struct sheaf *sheaf)
{
        sheaf_give(cache, record, sheaf);
        if (sheaf->capacity == load_relaxed(&cache->sheaf_capacity))
                return sheaf;
        barn_put_empty(cache, sheaf);
        return NULL;
}

/*
 * As drain_spare, with the barn's lock taken once (S13-05). The kernel hands over main, we hand over
 * the spare, which thereby has left its pair already. A sheaf for a barn that lacks an empty one is
 * made, and the barn gets the full one all the same.
 */
static struct sheaf *exchange_spare(struct kmem_cache *cache, struct slot_cache *record,
                                    struct sheaf *spare)
{
        struct sheaf *empty;

        /*
         * Two turns of the pair by other threads may have emptied the spare and left the pair as it
         * was. An empty sheaf among the barn's full ones would be popped below its first object.
         */
        if (spare->size < spare->capacity)
                return emptied(cache, record, spare);
        if (!barn_has_room(barn_here(cache))) {
                count_sheaf_events(cache, BARN_PUT_FAIL, 1);
                return emptied(cache, record, spare);
        }
        empty = barn_exchange_full(cache, spare);
        if (empty)
                return empty;
        empty = sheaf_new(cache);
        if (!empty || !barn_put_full(barn_here(cache), spare)) {
                if (empty)
                        sheaf_free(cache, empty);
                count_sheaf_events(cache, BARN_PUT_FAIL, 1);
                return emptied(cache, record, spare);
        }
        count_sheaf_events(cache, BARN_PUT, 1);
        return empty;
}

/*
 * An empty sheaf for a pair with two full sheaves. If neither stock nor barn has room, it is the
 * spare, emptied into the back end, which saves the barn's lock. NULL only without memory.
 */
static struct sheaf *drain_spare(struct kmem_cache *cache, struct slot *slot,
                                 struct slot_cache *record, const struct pair *pair)
{
        struct sheaf *sheaf = NULL;

        /*
         * Relaxed, from other threads' writes under the locks: a stale count only chooses the other
         * way to an empty sheaf.
         */
        if (cache->sheaves_as_7_0 ||
            (load_relaxed(&record->stock_size) >= load_relaxed(&cache->stock_max) &&
             !barn_has_room(barn_here(cache))))
                sheaf = take_spare(cache, slot, pair);
        if (sheaf)
                sheaf = cache->sheaves_as_7_0 ? exchange_spare(cache, record, sheaf)
                                              : emptied(cache, record, sheaf);
        return sheaf ? sheaf : stock_take_empty(cache, record);
}

bool percpu_take_turns(struct slot *slot, struct kmem_cache *cache, const struct pair *pair)
{
        struct pair swapped = {.main = pair->spare, .spare = pair->main};

        /* MARK-2 */
        return !spare_is_marked(pair) && slot_replace(slot, sheaf_offset(cache), pair, &swapped);
}

/*
 * Makes @sheaf the main sheaf. With @keep_spare the old main is put away; without it the old main
 * becomes the spare, and the old spare is put away.
 */
static bool install(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                    const struct pair *pair, struct sheaf *sheaf, bool keep_spare)
{
        struct pair new_pair = {.main = sheaf, .spare = keep_spare ? pair->spare : pair->main};

        calls_leave(record, sheaf, sheaf->size);
        if (!slot_replace(slot, sheaf_offset(cache), pair, &new_pair))
                return false;
        percpu_put_away(cache, slot, record, keep_spare ? pair->main : spare_of(pair));
        return true;
}

/* Main has no marks (MARK-1), so marks_split installs a sheaf with marks in two parts. */
static void install_refill(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                           struct sheaf *sheaf)
{
        struct pair pair = slot_read_pair(slot, sheaf_offset(cache));

        if (marks_exist() && marks_split(cache, slot, record, &pair, sheaf))
                return;
        /* An empty main takes the place of a missing spare, to receive frees later. */
        if (load_relaxed(&pair.main->size) ||
            !install(cache, slot, record, &pair, sheaf,
                     sheaf_is_cold(pair.main) || !sheaf_is_cold(pair.spare)))
                percpu_put_away(cache, slot, record, sheaf);
}

static void *pop_again(struct kmem_cache *cache)
{
        return slots_are_rseq() ? rseq_pop(sheaf_offset(cache))
                                : locked_slot_pop(sheaf_offset(cache));
}

/* Counts an object that a sheaf gave, unless there was none; returns it. */
static void *counted(struct kmem_cache *cache, void *object)
{
        if (object)
                count_sheaf_events(cache, ALLOC_FASTPATH, 1);
        return object;
}

void *percpu_alloc_resting(struct kmem_cache *cache)
{
        return cache_is_closed(cache) ? NULL : counted(cache, pop_again(cache));
}

bool (*percpu_regain)(void);

static void *take_one(struct kmem_cache *cache, struct slot_cache *record)
{
        void *object;

        return cache->engine->take(cache, &record->engine, &object, 1) ? object : NULL;
}

/*
 * A single object straight from the back end: for caches without sheaves and threads without a
 * slot.
 */
static void *alloc_one(struct kmem_cache *cache, struct slot_cache *record)
{
        void *object;

        if (is_profiling()) {
                object = marks_alloc_one(cache);
                if (object)
                        return object;
        } else if (unlikely(guards_are_on(cache))) {
                object = marks_guard_one(cache, record);
                if (object)
                        return object;
        }
        object = take_one(cache, record);
        /* Memory that rests in other caches and slots serves before a request fails. */
        if (unlikely(!object) && percpu_regain && percpu_regain())
                object = take_one(cache, record);
        return object;
}

void *percpu_alloc_slow(struct kmem_cache *cache)
{
        struct slot *slot = slot_current();
        struct slot_cache *record = slot_record(&slot, cache);
        bool guards = guards_are_on(cache);
        struct sheaf *sheaf;
        struct pair pair;
        void *object;
        bool mine;

        percpu_after_fork();
        marks_gate(slot);
        if (!load_relaxed(&cache->sheaf_capacity) || slot == &shared_slot)
                return alloc_one(cache, record);
        if (!slots_are_rseq()) {
                object = counted(cache, locked_slot_pop(sheaf_offset(cache)));
                if (likely(object))
                        return object;
        }
        if (cache->engine->caching == CACHING_ARRAY)
                return array_alloc(cache, slot, record, &object, 1) ? object
                                                                    : alloc_one(cache, record);
        pair = slot_read_pair(slot, sheaf_offset(cache));
        calls_count(cache, record, pair.main);
        /* The size may be stale; then the pop finds nothing and a refill follows. */
        mine = spare_is_marked(&pair) || (guards && marks_fall_in(cache, record, &pair));
        if (load_relaxed(&spare_of(&pair)->size) && !mine &&
            percpu_take_turns(slot, cache, &pair)) {
                object = counted(cache, pop_again(cache));
                calls_leave(record, spare_of(&pair), sheaf_peek(cache, spare_of(&pair)));
                if (likely(object))
                        return object;
        }
        /*
         * Nothing can be installed while the slot is stopped, so a whole sheaf would be of no use.
         */
        if (unlikely(load_relaxed(&slot->stopped)))
                return alloc_one(cache, record);
        sheaf = mine ? take_spare(cache, slot, &pair) : NULL;
        /* Two turns of the pair by other threads may have emptied a spare without marks. */
        if (unlikely(sheaf && !sheaf->size))
                sheaf = fill(cache, slot, record, sheaf);
        if (likely(!sheaf))
                sheaf = refill_spare(cache, slot, record, &pair);
        /*
         * There was no memory for a sheaf, or for so many objects; a single object may still be
         * there.
         */
        if (unlikely(!sheaf))
                return alloc_one(cache, record);
        object = counted(cache, sheaf_pop(sheaf));
        if (unlikely(guards))
                object = marks_decide_guards(cache, record, sheaf, object);
        install_refill(cache, slot, record, sheaf);
        /*
         * The object is a mark. Its sample is made after the installation, because the walk of the
         * stack takes long.
         */
        if (unlikely(!object))
                object = marks_sample(cache);
        return likely(object) ? object : alloc_one(cache, record);
}

/*
 * A request for another node goes past the sheaves (S13-04). A request for the thread's own node is
 * served from the sheaves; but they also hold objects of other nodes that this CPU freed, and such
 * an object goes back to its node. If the node has neither an object nor memory for a slab, any
 * node serves, unless the request is for @only that node (S12-05).
 */
void *percpu_alloc_on_node(struct kmem_cache *cache, int node, bool only)
{
        void *object = NULL;
        struct slot_cache *record;
        struct slot *slot;

        if (node == (int)system_current_node() && cache->engine->caching != CACHING_NONE)
                object = percpu_alloc(cache);
        /* A sample belongs to no node. */
        if (object && (in_sample_region(object) ||
                       cache->engine->node_of(cache, object_without_fresh(object)) == node))
                return object;
        slot = slot_current();
        record = slot_record(&slot, cache);
        percpu_after_fork();
        if (object)
                objects_give(cache, record, &object, 1);
        object = cache->engine->take_on_node(cache, &record->engine, node);
        return object || only ? object : percpu_alloc(cache);
}

static enum push_result push_again(struct kmem_cache *cache, void *object)
{
        return slots_are_rseq() ? rseq_push(sheaf_offset(cache), object)
                                : locked_slot_push(sheaf_offset(cache), object);
}

bool percpu_free_slow(struct kmem_cache *cache, void *object)
{
        struct slot *slot = slot_current();
        struct slot_cache *record = slot_record(&slot, cache);
        enum push_result pushed;
        struct sheaf *sheaf;
        struct pair pair;

        percpu_after_fork();
        marks_gate(slot);
        reclaim_ask();
        if (!load_relaxed(&cache->sheaf_capacity) || slot == &shared_slot ||
            (cache_is_of_pages(cache) && !rest_has_room(cache, slot, object))) {
                objects_give(cache, record, &object, 1);
                return true;
        }
        if (looks_at_nodes(cache) && object_is_remote(cache, object)) {
                objects_give(cache, record, &object, 1);
                return true;
        }
        pushed = push_again(cache, object);
        if (pushed == PUSH_DONE)
                count_sheaf_events(cache, FREE_FASTPATH, 1);
        if (pushed != PUSH_FULL)
                return pushed == PUSH_DONE;
        if (cache->engine->caching == CACHING_ARRAY) {
                array_free(cache, slot, record, &object, 1);
                return true;
        }
        pair = slot_read_pair(slot, sheaf_offset(cache));
        calls_count(cache, record, pair.main);
        if (load_relaxed(&spare_of(&pair)->size) < load_relaxed(&spare_of(&pair)->capacity)) {
                if (spare_is_marked(&pair)) {
                        if (marks_merge(cache, slot, record, &pair, object))
                                return true;
                } else if (percpu_take_turns(slot, cache, &pair) &&
                           push_again(cache, object) == PUSH_DONE) {
                        count_sheaf_events(cache, FREE_FASTPATH, 1);
                        calls_leave(record, spare_of(&pair), sheaf_peek(cache, spare_of(&pair)));
                        return true;
                }
        }
        sheaf = drain_spare(cache, slot, record, &pair);
        if (unlikely(!sheaf)) {
                objects_give(cache, record, &object, 1);
                return true;
        }
        sheaf->object[0] = object;
        sheaf_set_size(sheaf, 1);
        pair = slot_read_pair(slot, sheaf_offset(cache));
        if (install(cache, slot, record, &pair, sheaf, sheaf_is_cold(pair.main))) {
                count_sheaf_events(cache, FREE_FASTPATH, 1);
                return true;
        }
        sheaf_set_size(sheaf, 0);
        stock_put_empty(cache, record, sheaf);
        objects_give(cache, record, &object, 1);
        return true;
}

bool percpu_is_free(struct kmem_cache *cache, const void *object)
{
        percpu_flush(cache, false);
        /* Arrays that CPUs share are the back end's. */
        if (cache->engine->caching == CACHING_ARRAY)
                cache->engine->shrink(cache);
        return cache_of(object) != cache || cache->engine->is_free(cache, object);
}
