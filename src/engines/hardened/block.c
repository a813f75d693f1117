/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects are handed out, freed, kept waiting, and resized. Every fault is reported after the pool's lock is dropped,
 * since the end of the process may run the program's handler of SIGABRT.
 */
#include "engines/hardened/hardened.h"
#include "engines/hardened/large.h"

#include "lang/bits.h"
#include "machine/imports.h"
#include "machine/system.h"

#include <string.h>

enum { SMALL_BYTES = 256, CLASS_ALIGN = 16 };

static const char *const title_free = "Object already free";
static const char *const title_form = "Wrong form of free";
static const char *const twice = "free already (double free)";

struct fault {
        const char *title; /* NULL: none */
        const char *text;
        uint32_t bad_offset;
};

/* The pools of the calling thread's arena; NULL: none chosen yet. Initial-exec: access must never allocate. */
static __thread struct pool *own_pools __attribute__((tls_model("initial-exec")));
static uint32_t arenas_chosen; /* cumulative */
bool hardened_forms_alike;

static KMEM_NOINLINE struct pool *choose_pools(void)
{
        own_pools = pool_of((add_relaxed(&arenas_chosen, 1) - 1) % hardened.arenas, 0);
        return own_pools;
}

static inline struct pool *pool_here(uint32_t number)
{
        struct pool *pools = own_pools;

        return (likely(pools) ? pools : choose_pools()) + number;
}

KMEM_COLD uint32_t hardened_first_used(const char *object, uint32_t bytes)
{
        for (uint32_t at = 0; at < bytes; at++)
                if (object[at])
                        return at;
        return UINT32_MAX;
}

/* The program's content goes. Small objects are cleared here, as a call would take longer. */
static inline void clear_object(char *object, uint32_t bytes)
{
        hardened_pair *at = (hardened_pair *)(void *)object;
        hardened_pair *last = (hardened_pair *)(void *)(object + bytes) - 1;

        if (unlikely(bytes > SMALL_BYTES)) {
                memset(object, 0, bytes);
                return;
        }
        /* Steps of two, as in hardened_is_zero. */
        *last = (hardened_pair){0};
        for (; at < last; at += 2) {
                at[0] = (hardened_pair){0};
                at[1] = (hardened_pair){0};
                /* Keeps the compiler from making a call of the loop. */
                __asm__ volatile("");
        }
}

static inline char *canary_of(char *object, const struct hardened_class *class)
{
        return object + class->size - CANARY_BYTES;
}

/* HARD-5. Objects of size 0 have no canary. */
static inline bool canary_is_whole(const struct slab_record *record,
                                   const struct hardened_class *class, char *object)
{
        uint64_t found;

        memcpy(&found, canary_of(object, class), sizeof(found));
        return found == record->canary;
}

/* Has a number at least to be drawn. */
static inline void make_draws(struct pool *pool)
{
        if (unlikely(!pool->random.left))
                stream_refill(&pool->random, hardened.key);
}

/* Draws the object that is handed out next; there is one, and a number to be drawn. */
static inline void draw_object(struct pool *pool, struct slab_record *record,
                               const struct hardened_class *class)
{
        uint32_t place = stream_next(&pool->random, record->free);

        pool->next = place;
        pool->next_object =
                record->start + (size_t)record_loose(record, class)[place] * class->size;
}

/*
 * Draws the object that the next call hands out, and has it fetched: its memory is in no cache, since it has waited.
 * Nobody else takes objects of the current slab, and those that come back take places behind it.
 */
static inline void draw_ahead(struct pool *pool, struct slab_record *record,
                              const struct hardened_class *class)
{
        const char *object;

        /* An object that comes back is drawn when it is wanted. */
        if (unlikely(!record->free)) {
                pool->next_object = NULL;
                return;
        }
        draw_object(pool, record, class);
        object = pool->next_object;
        __builtin_prefetch(object, 1);
        __builtin_prefetch(object + class->size - 1, 1);
        if (class->size > 2 * CACHE_LINE)
                __builtin_prefetch(object + CACHE_LINE, 1);
}

static KMEM_NOINLINE struct slab_record *next_slab_locked(struct pool *pool, uint32_t class)
{
        uint32_t arena = (uint32_t)(pool - hardened.pools) / HARDENED_CLASSES;
        struct slab_record *record = slab_get_locked(pool, arena, class);

        if (!record)
                return NULL;
        if (pool->current)
                slab_place(pool->current, SLAB_LOOSE, hardened.classes[class].wanted);
        slab_place(record, SLAB_CURRENT, 0);
        pool->current = record;
        make_draws(pool);
        draw_ahead(pool, record, &hardened.classes[class]);
        return record;
}

/* Takes the drawn object out of record_loose; returns its index. */
static inline uint32_t take_index_locked(struct pool *pool, struct slab_record *record,
                                         const struct hardened_class *class)
{
        uint8_t *loose = record_loose(record, class);
        uint32_t index = loose[pool->next];

        record->free--;
        loose[pool->next] = loose[record->free];
        return index;
}

static KMEM_COLD KMEM_NOINLINE void report_written(const char *object, uint32_t bytes)
{
        hardened_report("malloc", object, "Object written after free",
                        "it was written to after it was freed", hardened_first_used(object, bytes));
}

/* HARD-4, and HARD-5 from now on. */
static inline void make_ready(char *object, uint64_t canary, const struct hardened_class *class,
                              uint8_t state)
{
        uint32_t bytes = class->size;
        char *place = canary_of(object, class);

        if (unlikely(state == OBJECT_FRESH))
                touch_fresh(place);
        /* A fresh object of a page or more would get memory that the program may never touch. */
        if (state != OBJECT_FRESH || bytes < PAGE_SIZE)
                if (unlikely(!hardened_is_zero(object, bytes)))
                        report_written(object, bytes);
        memcpy(place, &canary, sizeof(canary));
}

/* The drawn object is handed out, the next one drawn, and the lock left. */
static KMEM_ALWAYS_INLINE void *hand_out_locked(struct pool *pool,
                                                const struct hardened_class *class,
                                                enum block_form form, bool has_memory, bool locked)
{
        struct slab_record *record = pool->current;
        char *object = pool->next_object;
        uint32_t index = take_index_locked(pool, record, class);
        uint8_t state = record->states[index];
        uint64_t canary = record->canary;

        record->states[index] = (uint8_t)(OBJECT_OUT + form);
        add_owned(&pool->taken, 1);
        draw_ahead(pool, record, class);
        pool_drop(pool, locked);
        if (likely(has_memory))
                make_ready(object, canary, class, state);
        return object;
}

static void *object_take(uint32_t number, enum block_form form)
{
        const struct hardened_class *class = hide_address(&hardened.classes[number]);
        struct pool *pool = pool_here(number);
        struct slab_record *record;
        bool locked;

        pool_open(pool);
        locked = pool_take(pool);
        record = pool->current;
        if (!record || !record->free)
                record = next_slab_locked(pool, number);
        if (unlikely(!record)) {
                pool_drop(pool, locked);
                return NULL;
        }
        if (!pool->next_object) {
                make_draws(pool);
                draw_object(pool, record, class);
        }
        make_draws(pool);
        return hand_out_locked(pool, class, form, number, locked);
}

static KMEM_NOINLINE void *alloc_otherwise(size_t size, size_t align, enum block_form form)
{
        uint32_t number = hardened_class_for(size, align);
        void *object = NULL;

        if (likely(number < HARDENED_CLASSES))
                object = object_take(number, form);
        /* Without address space for the class a block may still find room elsewhere. */
        return likely(object) ? object : hardened_large_alloc(max_of(size, (size_t)1), align, form);
}

/*
 * Most blocks: an object is drawn already. Nothing is called here but in place of a return, so that no register has to be
 * kept; alloc_otherwise does all the rest.
 */
static KMEM_ALWAYS_INLINE void *alloc_often(size_t size, enum block_form form, bool locks)
{
        uint32_t number = hardened.small_class[(size + CANARY_BYTES + 15) / 16];
        const struct hardened_class *class = hide_address(&hardened.classes[number]);
        struct pool *pools = own_pools;
        struct pool *pool = pools + number;

        if (unlikely(!pools))
                return alloc_otherwise(size, 1, form);
        if (locks && (unlikely(!load_relaxed(&pool->opened)) || unlikely(!lock_try(&pool->lock))))
                return alloc_otherwise(size, 1, form);
        if (likely(pool->next_object) && likely(pool->random.left))
                return hand_out_locked(pool, class, form, true, locks);
        pool_drop(pool, locks);
        return alloc_otherwise(size, 1, form);
}

static KMEM_NOINLINE void *alloc_by_lock(size_t size, enum block_form form)
{
        return alloc_often(size, form, true);
}

void *hardened_alloc(size_t size, size_t align, enum block_form form)
{
        /* Size 0 has a class of its own. */
        if (unlikely(size - 1 >= HARDENED_SMALL_MOST - CANARY_BYTES || align > CLASS_ALIGN))
                return alloc_otherwise(size, align, form);
        /* Each way is a function of its own, so that the one of a single thread has nothing to keep for a lock. */
        return hardened_has_threads() ? alloc_by_lock(size, form) : alloc_often(size, form, false);
}

/* Enough of its objects came back: it is needed again, or empty. */
static KMEM_NOINLINE void slab_came_back_locked(struct pool *pool,
                                                const struct hardened_class *class,
                                                struct slab_record *record, bool locked)
{
        if (record->place == SLAB_LOOSE) {
                slab_place(record, SLAB_PARTIAL, class->objects);
                list_add_tail(&record->list, &pool->partial);
        }
        if (record->free == class->objects) {
                list_remove(&record->list);
                slab_put_empty_locked(pool, record);
        }
        pool_drop(pool, locked);
}

/* The object has waited: it can be handed out from now on. Leaves the lock. */
static KMEM_ALWAYS_INLINE void
end_wait_locked(struct pool *pool, const struct hardened_class *class, uint64_t wait, bool locked)
{
        struct slab_record *record = wait_record(wait);
        uint32_t free = record->free;

        record_loose(record, class)[free++] = (uint8_t)wait_index(wait);
        record->free = (uint16_t)free;
        if (unlikely(free == record->awaited))
                slab_came_back_locked(pool, class, record, locked);
        else
                pool_drop(pool, locked);
}

static KMEM_NOINLINE void count_waiting_locked(struct pool *pool,
                                               const struct hardened_class *class, bool locked)
{
        add_owned(&pool->waiting, 1);
        if (class != &hardened.classes[0]) {
                add_relaxed(&hardened_figures.waiting_bytes, (uint64_t) class->size);
                hardened_show();
        }
        pool_drop(pool, locked);
}

/* HARD-6: takes the place of an object that was drawn, which takes that of the oldest. Leaves the lock. */
static KMEM_ALWAYS_INLINE void wait_locked(struct pool *pool, const struct hardened_class *class,
                                           uint64_t wait, bool locked)
{
        uint64_t *drawn = &pool->drawn[stream_next(&pool->random, class->drawn)];
        uint64_t leaves = *drawn;

        *drawn = wait;
        if (leaves && class->aged) {
                uint64_t *aged = &pool->aged[pool->next_aged];
                uint64_t oldest = *aged;

                *aged = leaves;
                pool->next_aged = pool->next_aged + 1 < class->aged ? pool->next_aged + 1 : 0;
                /* The next call wants it. */
                __builtin_prefetch(wait_record(pool->aged[pool->next_aged]), 1);
                leaves = oldest;
        }
        if (likely(leaves))
                end_wait_locked(pool, class, leaves, locked);
        else
                count_waiting_locked(pool, class, locked);
}

/*
 * A shared library that has the C++ runtime inside calls its own operators, and these call malloc and free. So it frees
 * blocks of other objects' operator new rightly, and they delete its blocks. It takes no operator from elsewhere, which
 * tells it from code that frees wrongly: that made the block by an operator of ours, or is in C (0034).
 */
KMEM_COLD void hardened_wrong_form(const void *block, enum block_form form, const char *call,
                                   const void *site)
{
        if (site && !imports_operators(site)) {
                store_relaxed(&hardened_forms_alike, true);
                return;
        }
        hardened_report(call, block, title_form,
                        form == FORM_MALLOC
                                ? "from operator new, and must be freed by operator delete"
                                : "not from operator new, so operator delete cannot free it",
                        UINT32_MAX);
}

static struct fault fault_of_state(uint8_t state)
{
        struct fault fault = {.bad_offset = UINT32_MAX};

        if (object_is_out(state))
                return fault;
        fault.title = state == OBJECT_FREED ? title_free : "Invalid object pointer";
        fault.text = state == OBJECT_FREED ? twice : "it was never handed out";
        return fault;
}

static struct fault fault_of_canary(const struct slab_record *record,
                                    const struct hardened_class *class, char *object)
{
        struct fault fault = {.bad_offset = UINT32_MAX};
        uint64_t found;

        if (likely(!record->number || canary_is_whole(record, class, object)))
                return fault;
        memcpy(&found, canary_of(object, class), sizeof(found));
        fault.bad_offset =
                class->size - CANARY_BYTES + (uint32_t)__builtin_ctzll(found ^ record->canary) / 8;
        fault.title = "Canary overwritten";
        fault.text = "written to behind its end";
        return fault;
}

/* The fault of a free that free_is_right refused, by the order in which it would mislead least. */
static struct fault fault_of_free(struct hardened_place place, char *block, enum block_form form)
{
        uint8_t state = place.record->states[place.index];
        struct fault fault = fault_of_state(state);

        if (!fault.title)
                fault = fault_of_canary(place.record, place.class, block);
        if (fault.title)
                return fault;
        if (hardened_is_wrong_form((enum block_form)(state - OBJECT_OUT), form)) {
                fault.title = title_form;
        } else {
                fault.title = "Wrong size of free";
                fault.text = "freed with the size of another class";
        }
        return fault;
}

static inline bool size_is_right(struct hardened_place place, size_t size)
{
        uint32_t number = size - 1 < HARDENED_SMALL_MOST - CANARY_BYTES
                                  ? hardened.small_class[(size + CANARY_BYTES + 15) / 16]
                                  : hardened_class_for(size, 1);

        return number == class_number_of(place.class);
}

/* HARD-3, HARD-5: the object is out, in the form and size that the call is for, and its canary is whole. */
static KMEM_ALWAYS_INLINE bool free_is_right(struct hardened_place place, char *block, size_t size,
                                             enum block_form form, bool has_memory)
{
        uint8_t state = place.record->states[place.index];

        if (unlikely(state != OBJECT_OUT + form) &&
            !(object_is_out(state) && load_relaxed(&hardened_forms_alike)))
                return false;
        if (likely(has_memory) && unlikely(!canary_is_whole(place.record, place.class, block)))
                return false;
        return likely(size == SIZE_MAX) || size_is_right(place, size);
}

static inline bool is_start(struct hardened_place place)
{
        return likely(place.offset == 0) && likely(load_acquire(&place.record->start) != NULL);
}

/* The place of an object, at whose start the block must point. */
static struct hardened_place start_of(const void *block, const char *call)
{
        struct hardened_place place = hardened_place_of(block);

        if (unlikely(!is_start(place)))
                hardened_report(call, block, "Invalid object pointer",
                                place.record && place.offset && place.offset != UINT32_MAX
                                        ? "inside an object, not at its start"
                                        : "not the start of a block of this heap",
                                UINT32_MAX);
        return place;
}

/* Ends the process, or frees the block after all: forms are alike then. */
static KMEM_COLD void wrong_free(void *block, size_t size, enum block_form form, const char *call,
                                 const void *site)
{
        struct fault fault = fault_of_free(hardened_place_of(block), block, form);

        if (fault.title != title_form)
                hardened_report(call, block, fault.title, fault.text, fault.bad_offset);
        hardened_wrong_form(block, form, call, site);
        hardened_free_object(block, size, form, call, site);
}

/* A free that is right. Leaves the lock. */
static KMEM_ALWAYS_INLINE void take_back_locked(struct pool *pool, struct hardened_place place,
                                                char *block, bool has_memory, bool locked)
{
        if (likely(has_memory))
                clear_object(block, place.class->size);
        place.record->states[place.index] = OBJECT_FREED;
        add_owned(&pool->given, 1);
        wait_locked(pool, place.class, wait_of(place.record, place.index), locked);
}

static KMEM_NOINLINE void free_otherwise(void *block, size_t size, enum block_form form,
                                         const char *call, const void *site)
{
        struct hardened_place place = start_of(block, call);
        struct pool *pool = place.record->pool;
        bool has_memory = place.record->number;
        bool locked = pool_take(pool);

        if (unlikely(!free_is_right(place, block, size, form, has_memory))) {
                pool_drop(pool, locked);
                wrong_free(block, size, form, call, site);
                return;
        }
        make_draws(pool);
        take_back_locked(pool, place, block, has_memory, locked);
}

/*
 * Most frees: of a small object, and a number is drawn already. Nothing is called here but in place
 * of a return, as in alloc_often.
 */
static KMEM_ALWAYS_INLINE void free_often(void *block, size_t size, enum block_form form,
                                          const char *call, const void *site, bool locks)
{
        struct hardened_place place = hardened_place_of(block);
        struct pool *pool;

        if (unlikely(!is_start(place)) || unlikely(!place.record->number) ||
            unlikely(place.class->size > SMALL_BYTES)) {
                free_otherwise(block, size, form, call, site);
                return;
        }
        pool = place.record->pool;
        if (locks && unlikely(!lock_try(&pool->lock))) {
                free_otherwise(block, size, form, call, site);
                return;
        }
        if (likely(free_is_right(place, block, size, form, true)) && likely(pool->random.left)) {
                take_back_locked(pool, place, block, true, locks);
                return;
        }
        pool_drop(pool, locks);
        free_otherwise(block, size, form, call, site);
}

static KMEM_NOINLINE void free_by_lock(void *block, size_t size, enum block_form form,
                                       const char *call, const void *site)
{
        free_often(block, size, form, call, site, true);
}

void hardened_free_object(void *block, size_t size, enum block_form form, const char *call,
                          const void *site)
{
        /* Each way is a function of its own, so that the one of a single thread has nothing to keep for a lock. */
        if (hardened_has_threads())
                free_by_lock(block, size, form, call, site);
        else
                free_often(block, size, form, call, site, false);
}

bool hardened_free(void *block, size_t size, enum block_form form, const char *call,
                   const void *site)
{
        if (unlikely(!hardened_contains(block)))
                return hardened_large_free(block, size, form, call, site);
        hardened_free_object(block, size, form, call, site);
        return true;
}

size_t hardened_bytes(const void *block, bool *known)
{
        struct hardened_place place;

        if (!hardened_contains(block))
                return hardened_large_bytes(block, known);
        place = hardened_place_of(block);
        *known = place.offset == 0 && load_acquire(&place.record->start) &&
                 object_is_out(place.record->states[place.index]);
        return *known && place.record->number ? place.class->size - CANARY_BYTES : 0;
}

/* Checks an object that is to be resized, and stays out. */
static struct hardened_place check_object(void *block, const char *call)
{
        struct hardened_place place = start_of(block, call);
        struct pool *pool = place.record->pool;
        bool locked = pool_take(pool);
        uint8_t state = place.record->states[place.index];
        struct fault fault = fault_of_state(state);

        if (!fault.title)
                fault = fault_of_canary(place.record, place.class, block);
        if (!fault.title && state == OBJECT_OUT + FORM_NEW) {
                fault.title = title_form;
                fault.text = "from operator new, and cannot be resized";
        }
        pool_drop(pool, locked);
        if (unlikely(fault.title))
                hardened_report(call, block, fault.title, fault.text, fault.bad_offset);
        return place;
}

void *hardened_resize(void *block, size_t size, const char *call)
{
        struct hardened_place place;
        size_t old;
        void *moved;

        if (!hardened_contains(block))
                return hardened_large_resize(block, size, call);
        place = check_object(block, call);
        if (hardened_class_for(size, 1) == place.record->number)
                return block;
        moved = hardened_alloc(size, 1, FORM_MALLOC);
        if (!moved)
                return NULL;
        old = place.record->number ? place.class->size - CANARY_BYTES : 0;
        memcpy(moved, block, min_of(old, size));
        hardened_free_object(block, SIZE_MAX, FORM_MALLOC, call, NULL);
        return moved;
}
