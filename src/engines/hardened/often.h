/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The frequent cases of malloc and free on hardened blocks, for the slow halves of malloc and free to have inside of
 * them: an object is drawn already, a random number is left, the object is small. They call nothing but in place of
 * a return, so they keep no register. All other cases, and all reports, are block.c's, with the same checks.
 *
 * Threads: a pool is changed under its lock, or by the only thread of the process (HARD-8).
 */
#ifndef KMEM_ENGINES_HARDENED_OFTEN_H
#define KMEM_ENGINES_HARDENED_OFTEN_H

#include "engines/hardened/hardened.h"

#include "lang/bits.h"
#include "machine/system.h"

#include <string.h>

/* Bytes of objects that are cleared here; a call of memset is faster for larger ones. */
enum { CLEARED_LEAST = 32, CLEARED_MOST = 256 };

/* What a free has fetched of its slab for the next ones; a part of every page. */
enum { FETCHED_BYTES = 16 * CACHE_LINE };

/* The pools of the calling thread's arena; NULL: none chosen yet. Initial-exec: access must never allocate. */
extern KMEM_HIDDEN __thread struct pool *hardened_own_pools
        __attribute__((tls_model("initial-exec")));

/* Enough of a slab's objects came back: it is needed again, or empty. Leaves the lock. */
KMEM_HIDDEN void hardened_came_back_locked(struct pool *pool, const struct hardened_class *class,
                                           struct slab_record *record, bool locked);
/* An object waits that took no other's place. Leaves the lock. */
KMEM_HIDDEN void hardened_waits_locked(struct pool *pool, const struct hardened_class *class,
                                       bool locked);
/*
 * HARD-4: the object was written to after its free. Ends the process; the compiler is not told, as its callers would be no leaves
 * otherwise.
 */
KMEM_HIDDEN void *hardened_report_written(const char *object, uint32_t bytes)
        __attribute__((cold, returns_nonnull));

/* Adds 1 to a count that its pool's holder alone changes, and others read. */
static inline void count_owned(uint64_t *count)
{
#ifdef __x86_64__
        /* One instruction where add_owned has three; other threads see the old number or the new one. */
        __asm__("incq %0" : "+m"(*count) : : "cc");
#else
        add_owned(count, 1);
#endif
}

/* Whether there is memory for a request of @size in the classes of hardened_take_often; false without the option. */
static inline bool hardened_is_often(size_t size)
{
        return size - 1 < hardened.often_most;
}

static inline uint32_t class_number_often(size_t size)
{
        return hardened.small_class[(size + CANARY_BYTES + 15) / 16];
}

static inline char *canary_of(char *object, const struct hardened_class *class)
{
        return object + class->size - CANARY_BYTES;
}

/* HARD-5. Objects of size 0 have no canary. */
static inline bool canary_is_whole(const struct slab_record *record,
                                   const struct hardened_class *class, const char *object)
{
        uint64_t found;

        memcpy(&found, object + class->last_pair + 16 - CANARY_BYTES, sizeof(found));
        return found == record->canary;
}

/* Draws the object that is handed out next; there is one, and a number to be drawn. */
static inline void draw_object(struct pool *pool, struct slab_record *record,
                               const struct hardened_class *class)
{
        uint32_t free = record->free;
        uint32_t place = stream_next(&pool->random, free);
        uint8_t *loose = record_loose(record, class);
        uint32_t index = loose[place];

        record->free = --free;
        loose[place] = loose[free];
        pool->next_index = (uint16_t)index;
        pool->next_object = record->start + (size_t)index * class->size;
}

/*
 * Draws the object that the next call hands out, and has it fetched: its memory is in no cache, since it has waited.
 * Nobody else takes objects of the current slab.
 */
static KMEM_ALWAYS_INLINE void draw_ahead(struct pool *pool, struct slab_record *record,
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
        if (unlikely(class->size > 2 * CACHE_LINE))
                __builtin_prefetch(object + CACHE_LINE, 1);
}

/* HARD-4, and HARD-5 from now on; false: it was written to. */
static KMEM_ALWAYS_INLINE bool make_ready(char *object, uint64_t canary,
                                          const struct hardened_class *class, uint8_t state)
{
        uint32_t bytes = class->size;
        char *place = canary_of(object, class);

        if (unlikely(state == OBJECT_FRESH))
                touch_fresh(place);
        /* A fresh object of a page or more would get memory that the program may never touch. */
        if (likely(state != OBJECT_FRESH) || bytes < PAGE_SIZE)
                if (unlikely(!hardened_is_zero(object, bytes)))
                        return false;
        memcpy(place, &canary, sizeof(canary));
        return true;
}

/* The next object is drawn, the lock left, and the drawn one handed out, which nobody else knows in between. */
static KMEM_ALWAYS_INLINE void *hand_out_locked(struct pool *pool,
                                                const struct hardened_class *class,
                                                enum block_form form, bool has_memory, bool locked)
{
        struct slab_record *record = pool->current;
        char *object = pool->next_object;
        uint8_t *state = &record->states[pool->next_index];

        count_owned(&pool->taken);
        draw_ahead(pool, record, class);
        pool_drop(pool, locked);
        if (likely(has_memory) && unlikely(!make_ready(object, record->canary, class, *state)))
                return hardened_report_written(object, class->size);
        /* HARD-9. Release: pairs with the acquire in check_canaries. */
        store_release(state, (uint8_t)state_out(form));
        return object;
}

/* An object for a request that hardened_is_often; NULL: another way has to be gone, and nothing happened. */
static KMEM_ALWAYS_INLINE void *hardened_take_often(size_t size, enum block_form form, bool locks)
{
        uint32_t number = class_number_often(size);
        const struct hardened_class *class = hide_address(&hardened.classes[number]);
        struct pool *pools = hardened_own_pools;
        struct pool *pool = pools + number;

        if (unlikely(!pools))
                return NULL;
        if (locks && (unlikely(!load_relaxed(&pool->opened)) || unlikely(!lock_try(&pool->lock))))
                return NULL;
        if (likely(pool->next_object) && likely(pool->random.left))
                return hand_out_locked(pool, class, form, true, locks);
        pool_drop(pool, locks);
        return NULL;
}

/* The object has waited: it can be handed out from now on. Leaves the lock. */
static KMEM_ALWAYS_INLINE void
end_wait_locked(struct pool *pool, const struct hardened_class *class, uint64_t wait, bool locked)
{
        struct slab_record *record = wait_record(wait);
        uint32_t free = record->free;

        record_loose(record, class)[free++] = (uint8_t)wait_index(wait);
        record->free = free;
        if (unlikely(free == record->awaited))
                hardened_came_back_locked(pool, class, record, locked);
        else
                pool_drop(pool, locked);
}

/*
 * HARD-6: takes the place of an object that was drawn, which takes that of the oldest. @ages: objects of the class grow
 * old. Leaves the lock.
 */
static KMEM_ALWAYS_INLINE void wait_locked(struct pool *pool, const struct hardened_class *class,
                                           uint64_t wait, bool ages, bool locked)
{
        uint64_t *drawn = &pool->drawn[stream_next(&pool->random, class->drawn)];
        uint64_t leaves = *drawn;

        *drawn = wait;
        if (likely(leaves) && ages) {
                uint32_t oldest = pool->next_aged;
                uint32_t next = (oldest ? oldest : class->aged) - 1;
                uint64_t aged = pool->aged[oldest];

                pool->aged[oldest] = leaves;
                pool->next_aged = next;
                /* The next call wants it. */
                __builtin_prefetch(wait_record(pool->aged[next]), 1);
                leaves = aged;
        }
        if (likely(leaves))
                end_wait_locked(pool, class, leaves, locked);
        else
                hardened_waits_locked(pool, class, locked);
}

static inline bool size_is_right(struct hardened_place place, size_t size)
{
        uint32_t number =
                hardened_is_often(size) ? class_number_often(size) : hardened_class_for(size, 1);

        return number == class_number_of(place.class);
}

/* HARD-3, HARD-5: the object is out, in the form and size that the call is for, and its canary is whole. */
static KMEM_ALWAYS_INLINE bool free_is_right(struct hardened_place place, char *block, size_t size,
                                             enum block_form form, bool has_memory)
{
        uint8_t state = place.record->states[place.index];

        if (unlikely(state != state_out(form)) &&
            !(object_is_out(state) && load_relaxed(&hardened_forms_alike)))
                return false;
        if (likely(has_memory) && unlikely(!canary_is_whole(place.record, place.class, block)))
                return false;
        return likely(size == SIZE_MAX) || size_is_right(place, size);
}

/* The program's content goes from an object of CLEARED_LEAST to CLEARED_MOST bytes. */
static KMEM_ALWAYS_INLINE void clear_small(char *object, size_t last_pair)
{
        hardened_pair *at = (hardened_pair *)(void *)object;
        hardened_pair *last = (hardened_pair *)(void *)(object + last_pair);

        /* Steps of two, as in hardened_is_zero. */
        *last = (hardened_pair){0};
        do {
                at[0] = (hardened_pair){0};
                at[1] = (hardened_pair){0};
                /* Keeps the compiler from making a call of the loop. */
                __asm__ volatile("");
                at += 2;
        } while (at < last);
}

/*
 * A program often frees objects in the order in which it took them, and reads each before. Their places were drawn, so no
 * processor fetches them ahead. From the second free in a row on that hits a slab, each has the next part of it fetched.
 */
static KMEM_ALWAYS_INLINE void fetch_neighbours(struct pool *pool, struct hardened_place place)
{
        const char *start = place.record->start;
        const char *next = pool->fetched;
        size_t done = (uintptr_t)next - (uintptr_t)start;

        if (done >= place.class->slab_bytes) {
                /* Another slab was hit before, or all of this one is fetched. */
                if (done != place.class->slab_bytes)
                        pool->fetched = start;
                return;
        }
        for (uint32_t at = 0; at < FETCHED_BYTES; at += CACHE_LINE)
                __builtin_prefetch(next + at, 1);
        pool->fetched = next + FETCHED_BYTES;
}

/* HARD-9: an object that was found right to be freed is out no more, and has to be cleared. */
static KMEM_ALWAYS_INLINE void put_locked(struct hardened_place place)
{
        place.record->states[place.index] = OBJECT_FREED;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* And then it waits. Leaves the lock. */
static KMEM_ALWAYS_INLINE void put_cleared_locked(struct pool *pool, struct hardened_place place,
                                                  bool ages, bool locked)
{
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        count_owned(&pool->given);
        wait_locked(pool, place.class, wait_of(place.record, place.index), ages, locked);
}

/*
 * Frees a block that hardened_contains; @size: SIZE_MAX if it is not known. False: another way has to be gone, and
 * nothing happened.
 */
static KMEM_ALWAYS_INLINE bool hardened_free_often(void *block, size_t size, enum block_form form,
                                                   bool locks)
{
        struct hardened_place place = hardened_place_of(block);
        size_t last_pair;
        struct pool *pool;

        if (unlikely(place.offset))
                return false;
        /* Class 0 wraps around: it has no memory to be cleared. */
        last_pair = place.class->last_pair;
        if (unlikely(last_pair - (CLEARED_LEAST - 16u) > CLEARED_MOST - CLEARED_LEAST))
                return false;
        /*
         * Acquire: pairs with slab_new. A slab that was never used has fresh objects alone and no pool, so a single
         * thread need not ask.
         */
        if (locks && unlikely(!load_acquire(&place.record->start)))
                return false;
        pool = place.record->pool;
        if (locks && unlikely(!lock_try(&pool->lock)))
                return false;
        if (unlikely(!free_is_right(place, block, size, form, true)) ||
            unlikely(!pool->random.left)) {
                pool_drop(pool, locks);
                return false;
        }
        fetch_neighbours(pool, place);
        put_locked(place);
        clear_small(block, last_pair);
        put_cleared_locked(pool, place, true, locks);
        return true;
}

#endif
