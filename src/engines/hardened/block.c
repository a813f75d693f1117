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

/* Draws the object that is handed out next; there is one. */
static inline void draw_object(struct pool *pool, struct slab_record *record,
                               const struct hardened_class *class)
{
        uint32_t place = pool_random(pool, record->free);

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
                pool->current->place = SLAB_LOOSE;
        record->place = SLAB_CURRENT;
        pool->current = record;
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

/*
 * A page that the program never touched is mapped by a write at once, which changes nothing. A read would map the page
 * of zeroes, and the canary would be a second fault.
 */
static inline void touch_fresh(char *byte)
{
#ifdef __x86_64__
        __asm__ volatile("orb $0, %0" : "+m"(*byte) : : "cc");
#else
        /* Relaxed: the object is this thread's. */
        __atomic_fetch_or((unsigned char *)byte, 0, __ATOMIC_RELAXED);
#endif
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
                        hardened_report("malloc", object, "Object written after free",
                                        "it was written to after it was freed",
                                        hardened_first_used(object, bytes));
        memcpy(place, &canary, sizeof(canary));
}

static KMEM_ALWAYS_INLINE void *object_take(uint32_t number, enum block_form form, bool locks)
{
        const struct hardened_class *class = hide_address(&hardened.classes[number]);
        struct pool *pool = pool_here(number);
        struct slab_record *record;
        uint32_t index;
        uint64_t canary;
        uint8_t state;
        char *object;

        if (locks) {
                pool_open(pool);
                pool_lock_take(&pool->lock);
        }
        record = pool->current;
        if (unlikely(!record || !record->free)) {
                if (!locks)
                        pool_open(pool);
                record = next_slab_locked(pool, number);
        }
        if (unlikely(!record)) {
                pool_drop(pool, locks);
                return NULL;
        }
        if (unlikely(!pool->next_object))
                draw_object(pool, record, class);
        object = pool->next_object;
        index = take_index_locked(pool, record, class);
        state = record->states[index];
        record->states[index] = (uint8_t)(OBJECT_OUT + form);
        add_owned(&pool->taken, 1);
        canary = record->canary;
        draw_ahead(pool, record, class);
        pool_drop(pool, locks);
        if (likely(number))
                make_ready(object, canary, class, state);
        return object;
}

static KMEM_NOINLINE void *object_take_by_lock(uint32_t number, enum block_form form)
{
        return object_take(number, form, true);
}

static KMEM_NOINLINE void *object_take_alone(uint32_t number, enum block_form form)
{
        return object_take(number, form, false);
}

static KMEM_NOINLINE void *alloc_otherwise(size_t size, size_t align, enum block_form form)
{
        uint32_t number = hardened_class_for(size, align);
        void *object = NULL;

        if (likely(number < HARDENED_CLASSES))
                object = hardened_has_threads() ? object_take_by_lock(number, form)
                                                : object_take_alone(number, form);
        /* Without address space for the class a block may still find room elsewhere. */
        return likely(object) ? object : hardened_large_alloc(max_of(size, (size_t)1), align, form);
}

void *hardened_alloc(size_t size, size_t align, enum block_form form)
{
        uint32_t number;
        void *object;

        if (unlikely(size - 1 >= HARDENED_SMALL_MOST - CANARY_BYTES || align > CLASS_ALIGN))
                return alloc_otherwise(size, align, form);
        number = hardened.small_class[(size + CANARY_BYTES + 15) / 16];
        /* Each way is a function of its own, so that the one of a single thread has nothing to keep for a lock. */
        object = hardened_has_threads() ? object_take_by_lock(number, form)
                                        : object_take(number, form, false);
        return likely(object) ? object : alloc_otherwise(size, align, form);
}

/* Its objects are of no slab that has them handed out: it may be needed, or be empty. */
static KMEM_NOINLINE void slab_came_back_locked(struct pool *pool,
                                                const struct hardened_class *class,
                                                struct slab_record *record)
{
        if (record->place == SLAB_LOOSE) {
                record->place = SLAB_PARTIAL;
                list_add_tail(&record->list, &pool->partial);
        }
        if (record->free == class->objects) {
                list_remove(&record->list);
                slab_put_empty_locked(pool, record);
        }
}

/* The object has waited: it can be handed out from now on. */
static inline void end_wait_locked(struct pool *pool, const struct hardened_class *class,
                                   uint64_t wait)
{
        struct slab_record *record = wait_record(wait);

        record_loose(record, class)[record->free++] = (uint8_t)wait_index(wait);
        if (record->place == SLAB_CURRENT)
                return;
        if (unlikely(record->place == SLAB_LOOSE || record->free == class->objects))
                slab_came_back_locked(pool, class, record);
}

static KMEM_NOINLINE void count_waiting_locked(struct pool *pool,
                                               const struct hardened_class *class)
{
        add_owned(&pool->waiting, 1);
        if (class == &hardened.classes[0])
                return;
        add_relaxed(&hardened_figures.waiting_bytes, (uint64_t) class->size);
        hardened_show();
}

/* HARD-6: takes the place of an object that was drawn, which takes that of the oldest. */
static inline void wait_locked(struct pool *pool, const struct hardened_class *class, uint64_t wait)
{
        uint64_t *drawn = &pool->drawn[pool_random(pool, class->drawn)];
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
                end_wait_locked(pool, class, leaves);
        else
                count_waiting_locked(pool, class);
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
        return likely(size == SIZE_MAX) ||
               hardened_class_for(size, 1) == class_number_of(place.class);
}

/* The place of an object, at whose start the block must point. */
static KMEM_ALWAYS_INLINE struct hardened_place start_of(const void *block, const char *call)
{
        struct hardened_place place = hardened_place_of(block);

        if (unlikely(place.offset != 0 || !load_acquire(&place.record->start)))
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

static KMEM_ALWAYS_INLINE void object_free(void *block, size_t size, enum block_form form,
                                           const char *call, const void *site, bool locks)
{
        struct hardened_place place = start_of(block, call);
        struct slab_record *record = place.record;
        struct pool *pool = record->pool;
        bool has_memory = record->number;

        if (locks)
                pool_lock_take(&pool->lock);
        if (unlikely(!free_is_right(place, block, size, form, has_memory))) {
                pool_drop(pool, locks);
                wrong_free(block, size, form, call, site);
                return;
        }
        if (likely(has_memory))
                clear_object(block, place.class->size);
        record->states[place.index] = OBJECT_FREED;
        add_owned(&pool->given, 1);
        wait_locked(pool, place.class, wait_of(record, place.index));
        pool_drop(pool, locks);
}

static KMEM_NOINLINE void object_free_by_lock(void *block, size_t size, enum block_form form,
                                              const char *call, const void *site)
{
        object_free(block, size, form, call, site, true);
}

void hardened_free_object(void *block, size_t size, enum block_form form, const char *call,
                          const void *site)
{
        /* Each way is a function of its own, so that the one of a single thread has nothing to keep for a lock. */
        if (hardened_has_threads())
                object_free_by_lock(block, size, form, call, site);
        else
                object_free(block, size, form, call, site, false);
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
