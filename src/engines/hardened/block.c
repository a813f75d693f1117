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

enum { SMALL_BYTES = 256, CLASS_ALIGN = 16, NOT_DRAWN = 0xffff };

static const char *const title_free = "Object already free";
static const char *const title_form = "Wrong form of free";
static const char *const twice = "free already (double free)";

struct fault {
        const char *title; /* NULL: none */
        const char *text;
        uint32_t bad_offset;
};

/* The arena of the calling thread, and 1; 0: none chosen yet. Initial-exec: access must never allocate. */
static __thread uint32_t own_arena __attribute__((tls_model("initial-exec")));
static uint32_t arenas_chosen; /* cumulative */
bool hardened_forms_alike;

static KMEM_NOINLINE uint32_t choose_arena(void)
{
        own_arena = (add_relaxed(&arenas_chosen, 1) - 1) % hardened.arenas + 1;
        return own_arena - 1;
}

static uint32_t arena_here(void)
{
        return likely(own_arena) ? own_arena - 1 : choose_arena();
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
        typedef uint64_t pair __attribute__((vector_size(16), may_alias));

        if (unlikely(bytes > SMALL_BYTES)) {
                memset(object, 0, bytes);
                return;
        }
        for (uint32_t at = 0; at < bytes; at += sizeof(pair)) {
                *(pair *)(void *)(object + at) = (pair){0};
                /* Keeps the compiler from making a call of the loop. */
                __asm__ volatile("");
        }
}

static inline char *canary_of(char *object, const struct hardened_class *class)
{
        return object + class->size - CANARY_BYTES;
}

/* The first harmed byte of a canary, as offset in its object, or UINT32_MAX. */
static inline uint32_t harmed_canary(const struct slab_record *record,
                                     const struct hardened_class *class, char *object)
{
        const char *place = canary_of(object, class);
        uint64_t found;

        if (unlikely(!record->number))
                return UINT32_MAX;
        memcpy(&found, place, sizeof(found));
        if (likely(found == record->canary))
                return UINT32_MAX;
        return class->size - CANARY_BYTES + (uint32_t)__builtin_ctzll(found ^ record->canary) / 8;
}

/* The next object that can be handed out, from a drawn object on; there is one. */
static uint32_t draw_object(struct pool *pool, struct slab_record *record,
                            const struct hardened_class *class)
{
        uint32_t start = pool_random(pool, class->objects);
        uint32_t word = start / 64;
        uint64_t free = ~record_away(record)[word] & ~(uint64_t)0 << start % 64;

        while (!free) {
                word = word + 1 < class->words ? word + 1 : 0;
                free = ~record_away(record)[word];
        }
        return word * 64 + (uint32_t)__builtin_ctzll(free);
}

/*
 * Draws the object that the next call hands out, and has it fetched: its memory is in no cache, since it has waited.
 * Nobody else takes objects of the current slab, so it is free until then.
 */
static void draw_ahead(struct pool *pool, struct slab_record *record,
                       const struct hardened_class *class)
{
        const char *object;

        /* An object that comes back is drawn when it is wanted. */
        pool->next = NOT_DRAWN;
        if (unlikely(!record->free))
                return;
        pool->next = draw_object(pool, record, class);
        object = record->start + (size_t)pool->next * class->size;
        __builtin_prefetch(object, 1);
        __builtin_prefetch(object + class->size - 1, 1);
        if (class->size > 2 * CACHE_LINE)
                __builtin_prefetch(object + CACHE_LINE, 1);
}

static struct slab_record *next_slab_locked(struct pool *pool, uint32_t arena, uint32_t class)
{
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

static void *object_take(uint32_t arena, uint32_t number, enum block_form form)
{
        const struct hardened_class *class = &hardened.classes[number];
        struct pool *pool = pool_of(arena, number);
        struct slab_record *record;
        uint32_t index;
        uint64_t canary;
        char *object;
        bool locked, used, bad = false;

        pool_open(pool);
        locked = pool_take(pool);
        record = pool->current;
        if (unlikely(!record || !record->free))
                record = next_slab_locked(pool, arena, number);
        if (unlikely(!record)) {
                pool_drop(pool, locked);
                return NULL;
        }
        index = likely(pool->next != NOT_DRAWN) ? pool->next : draw_object(pool, record, class);
        object = record->start + (size_t)index * class->size;
        used = bit_get(record_waiting(record, class), index);
        bit_set(record_away(record), index);
        bit_clear(record_waiting(record, class), index);
        if (form == FORM_NEW)
                bit_set(record_new(record, class), index);
        record->free--;
        add_owned(&pool->taken, 1);
        canary = record->canary;
        draw_ahead(pool, record, class);
        pool_drop(pool, locked);
        if (unlikely(!number))
                return object;
        /* A fresh object of a page or more would get memory that the program may never touch. */
        if (used || class->size < PAGE_SIZE)
                bad = !hardened_is_zero(object, class->size);
        if (unlikely(bad))
                hardened_report("malloc", object, "Object written after free",
                                "it was written to after it was freed",
                                hardened_first_used(object, class->size));
        memcpy(canary_of(object, class), &canary, sizeof(canary));
        return object;
}

void *hardened_alloc(size_t size, size_t align, enum block_form form)
{
        uint32_t number;
        void *object = NULL;

        if (likely(size - 1 < HARDENED_SMALL_MOST - CANARY_BYTES && align <= CLASS_ALIGN))
                number = hardened.small_class[(size + CANARY_BYTES + 15) / 16];
        else
                number = hardened_class_for(size, align);
        if (likely(number < HARDENED_CLASSES))
                object = object_take(arena_here(), number, form);
        /* Without address space for the class a block may still find room elsewhere. */
        return likely(object) ? object : hardened_large_alloc(max_of(size, (size_t)1), align, form);
}

/* The object has waited: it can be handed out from now on. */
static void end_wait_locked(struct pool *pool, const struct hardened_class *class, uint64_t wait)
{
        struct slab_record *record = wait_record(wait);

        bit_clear(record_away(record), wait_index(wait));
        record->free++;
        if (record->place == SLAB_CURRENT)
                return;
        if (record->place == SLAB_LOOSE) {
                record->place = SLAB_PARTIAL;
                list_add_tail(&record->list, &pool->partial);
        }
        if (record->free == class->objects) {
                list_remove(&record->list);
                slab_put_empty_locked(pool, record);
        }
}

/* HARD-6: takes the place of an object that was drawn, which takes that of the oldest. */
static void wait_locked(struct pool *pool, const struct hardened_class *class, uint64_t wait)
{
        uint64_t *drawn = &pool->drawn[pool_random(pool, class->drawn)];
        uint64_t leaves = *drawn;

        *drawn = wait;
        if (leaves && class->aged) {
                uint64_t *aged = &pool->aged[pool->next_aged];
                uint64_t oldest = *aged;

                *aged = leaves;
                pool->next_aged = pool->next_aged + 1 < class->aged ? pool->next_aged + 1 : 0;
                leaves = oldest;
        }
        if (likely(leaves)) {
                end_wait_locked(pool, class, leaves);
                return;
        }
        add_owned(&pool->waiting, 1);
        if (class != &hardened.classes[0]) {
                add_relaxed(&hardened_figures.waiting_bytes, (uint64_t) class->size);
                hardened_show();
        }
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

static struct fault fault_of_state(struct slab_record *record, const struct hardened_class *class,
                                   uint32_t index)
{
        struct fault fault = {.bad_offset = UINT32_MAX};
        bool away = bit_get(record_away(record), index);
        bool waiting = bit_get(record_waiting(record, class), index);

        if (away && !waiting)
                return fault;
        fault.title = waiting ? title_free : "Invalid object pointer";
        fault.text = waiting ? twice : "it was never handed out";
        return fault;
}

static struct fault fault_of_canary(const struct slab_record *record,
                                    const struct hardened_class *class, char *object)
{
        struct fault fault = {.bad_offset = harmed_canary(record, class, object)};

        if (unlikely(fault.bad_offset != UINT32_MAX)) {
                fault.title = "Canary overwritten";
                fault.text = "written to behind its end";
        }
        return fault;
}

/* The fault of a free, by the order in which it would mislead least. */
static struct fault fault_of_free(struct slab_record *record, const struct hardened_class *class,
                                  uint32_t index, size_t size, enum block_form form)
{
        struct fault fault = fault_of_state(record, class, index);
        enum block_form own;

        if (unlikely(fault.title))
                return fault;
        fault = fault_of_canary(record, class, record->start + (size_t)index * class->size);
        if (unlikely(fault.title))
                return fault;
        own = bit_get(record_new(record, class), index) ? FORM_NEW : FORM_MALLOC;
        if (hardened_is_wrong_form(own, form)) {
                fault.title = title_form;
        } else if (unlikely(size != SIZE_MAX &&
                            hardened_class_for(size, 1) != class_number_of(class))) {
                fault.title = "Wrong size of free";
                fault.text = "freed with the size of another class";
        }
        return fault;
}

/* The place of an object, at whose start the block must point. */
static struct hardened_place start_of(const void *block, const char *call)
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

static void object_free(void *block, size_t size, enum block_form form, const char *call,
                        const void *site)
{
        struct hardened_place place = start_of(block, call);
        struct slab_record *record = place.record;
        struct pool *pool = pool_of(record->arena, record->number);
        bool locked = pool_take(pool);
        struct fault fault = fault_of_free(record, place.class, place.index, size, form);

        if (unlikely(fault.title)) {
                pool_drop(pool, locked);
                if (fault.title != title_form)
                        hardened_report(call, block, fault.title, fault.text, fault.bad_offset);
                hardened_wrong_form(block, form, call, site);
                object_free(block, size, form, call, site);
                return;
        }
        if (likely(record->number))
                clear_object(block, place.class->size);
        bit_set(record_waiting(record, place.class), place.index);
        bit_clear(record_new(record, place.class), place.index);
        add_owned(&pool->given, 1);
        wait_locked(pool, place.class, wait_of(record, place.index));
        pool_drop(pool, locked);
}

bool hardened_free(void *block, size_t size, enum block_form form, const char *call,
                   const void *site)
{
        if (unlikely(!hardened_contains(block)))
                return hardened_large_free(block, size, form, call, site);
        object_free(block, size, form, call, site);
        return true;
}

size_t hardened_bytes(const void *block, bool *known)
{
        struct hardened_place place;

        if (!hardened_contains(block))
                return hardened_large_bytes(block, known);
        place = hardened_place_of(block);
        *known = place.offset == 0 && load_acquire(&place.record->start) &&
                 !fault_of_state(place.record, place.class, place.index).title;
        return *known && place.record->number ? place.class->size - CANARY_BYTES : 0;
}

/* Checks an object that is to be resized, and stays out. */
static struct hardened_place check_object(void *block, const char *call)
{
        struct hardened_place place = start_of(block, call);
        struct pool *pool = pool_of(place.record->arena, place.record->number);
        bool locked = pool_take(pool);
        struct fault fault = fault_of_state(place.record, place.class, place.index);

        if (!fault.title)
                fault = fault_of_canary(place.record, place.class, block);
        if (!fault.title && bit_get(record_new(place.record, place.class), place.index)) {
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
        object_free(block, SIZE_MAX, FORM_MALLOC, call, NULL);
        return moved;
}
