/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects are handed out, freed, kept waiting, and resized. Every fault is reported after the pool's lock is dropped,
 * since the end of the process may run the program's handler of SIGABRT.
 */
#include "engines/hardened/hardened.h"
#include "engines/hardened/large.h"
#include "engines/hardened/often.h"

#include "lang/bits.h"
#include "machine/imports.h"
#include "machine/system.h"

#include <string.h>

enum { CLASS_ALIGN = 16 };

static const char *const title_free = "Object already free";
static const char *const title_form = "Wrong form of free";
static const char *const twice = "free already (double free)";

struct fault {
        const char *title; /* NULL: none */
        const char *text;
        uint32_t bad_offset;
};

__thread struct pool *hardened_own_pools __attribute__((tls_model("initial-exec")));
static uint32_t arenas_chosen; /* cumulative */
bool hardened_forms_alike;

static KMEM_NOINLINE struct pool *choose_pools(void)
{
        hardened_own_pools = pool_of((add_relaxed(&arenas_chosen, 1) - 1) % hardened.arenas, 0);
        return hardened_own_pools;
}

static inline struct pool *pool_here(uint32_t number)
{
        struct pool *pools = hardened_own_pools;

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
static inline void clear_object(char *object, const struct hardened_class *class)
{
        if (class->size > CLEARED_MOST)
                memset(object, 0, class->size);
        else
                clear_small(object, class->last_pair);
}

/* Has a number at least to be drawn. */
static inline void make_draws(struct pool *pool)
{
        if (unlikely(!pool->random.left))
                stream_refill(&pool->random, hardened.key);
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

void *hardened_report_written(const char *object, uint32_t bytes)
{
        hardened_report("malloc", object, "Object written after free",
                        "it was written to after it was freed", hardened_first_used(object, bytes));
}

static void *object_take(uint32_t number, enum block_form form)
{
        const struct hardened_class *class = hide_address(&hardened.classes[number]);
        struct pool *pool = pool_here(number);
        struct slab_record *record;
        bool locked;

        pool_open(pool);
        locked = pool_take(pool);
        make_draws(pool);
        record = pool->current;
        if (!pool->next_object && record && record->free)
                draw_object(pool, record, class);
        else if (!pool->next_object && !next_slab_locked(pool, number)) {
                pool_drop(pool, locked);
                return NULL;
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

static KMEM_NOINLINE void *alloc_by_lock(size_t size, enum block_form form)
{
        void *object = hardened_take_often(size, form, true);

        return likely(object) ? object : alloc_otherwise(size, 1, form);
}

void *hardened_alloc(size_t size, size_t align, enum block_form form)
{
        void *object;

        /* Size 0 has a class of its own. */
        if (unlikely(!hardened_is_often(size) || align > CLASS_ALIGN))
                return alloc_otherwise(size, align, form);
        /* Each way is a function of its own, so that the one of a single thread has nothing to keep for a lock. */
        if (hardened_has_threads())
                return alloc_by_lock(size, form);
        object = hardened_take_often(size, form, false);
        return likely(object) ? object : alloc_otherwise(size, 1, form);
}

KMEM_NOINLINE void hardened_came_back_locked(struct pool *pool, const struct hardened_class *class,
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

KMEM_NOINLINE void hardened_waits_locked(struct pool *pool, const struct hardened_class *class,
                                         bool locked)
{
        add_owned(&pool->waiting, 1);
        if (class != &hardened.classes[0]) {
                add_relaxed(&hardened_figures.waiting_bytes, (uint64_t) class->size);
                hardened_show();
        }
        pool_drop(pool, locked);
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
        put_locked(place);
        if (has_memory)
                clear_object(block, place.class);
        put_cleared_locked(pool, place, place.class->aged, locked);
}

static KMEM_NOINLINE void free_by_lock(void *block, size_t size, enum block_form form,
                                       const char *call, const void *site)
{
        if (unlikely(!hardened_free_often(block, size, form, true)))
                free_otherwise(block, size, form, call, site);
}

void hardened_free_object(void *block, size_t size, enum block_form form, const char *call,
                          const void *site)
{
        if (hardened_has_threads())
                free_by_lock(block, size, form, call, site);
        else if (unlikely(!hardened_free_often(block, size, form, false)))
                free_otherwise(block, size, form, call, site);
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

void hardened_check(const void *block, const char *call)
{
        struct hardened_place place = start_of(block, call);
        struct fault fault = fault_of_state(place.record->states[place.index]);

        if (unlikely(fault.title))
                hardened_report(call, block, fault.title, fault.text, fault.bad_offset);
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
        if (!fault.title && state == state_out(FORM_NEW)) {
                fault.title = title_form;
                fault.text = "from operator new, and cannot be resized";
        }
        pool_drop(pool, locked);
        if (unlikely(fault.title))
                hardened_report(call, block, fault.title, fault.text, fault.bad_offset);
        return place;
}

void *hardened_resize(void *block, size_t size, size_t align, const char *call)
{
        struct hardened_place place;
        size_t old;
        void *moved;

        if (!hardened_contains(block))
                return hardened_large_resize(block, size, align, call);
        place = check_object(block, call);
        if (hardened_class_for(size, align) == place.record->number)
                return block;
        moved = hardened_alloc(size, align, FORM_MALLOC);
        if (!moved)
                return NULL;
        old = place.record->number ? place.class->size - CANARY_BYTES : 0;
        memcpy(moved, block, min_of(old, size));
        hardened_free_object(block, SIZE_MAX, FORM_MALLOC, call, NULL);
        return moved;
}
