/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * All pools one by one: the checks at the end of the process, memory given back, and figures.
 */
#include "engines/hardened/hardened.h"
#include "engines/hardened/large.h"

#include "lang/bits.h"
#include "machine/system.h"
#include "registry/registry.h"

#include <string.h>

/* A harmed object that a sweep found. */
struct found {
        char *object; /* NULL: none */
        uint32_t bad_offset;
        bool written_after_free;
};

struct lock hardened_open_lock;

enum { SPIN_ROUNDS = 64, WAIT_NS = 50000 };

void pool_lock_wait(struct lock *lock)
{
        for (unsigned int round = 1;; round++) {
                cpu_relax();
                if (!lock_is_held(lock) && lock_try(lock))
                        return;
                if (round % SPIN_ROUNDS == 0)
                        system_sleep_ns(WAIT_NS);
        }
}

static bool pool_is_used(const struct pool *pool)
{
        return load_relaxed(&pool->opened);
}

/* HARD-4 */
static void check_waiting_locked(const uint64_t *waits, uint32_t count, uint32_t bytes,
                                 struct found *found)
{
        for (uint32_t i = 0; i < count && !found->object; i++) {
                char *object;

                if (!waits[i])
                        continue;
                object = wait_record(waits[i])->start + (size_t)wait_index(waits[i]) * bytes;
                if (!hardened_is_zero(object, bytes))
                        *found = (struct found){object, hardened_first_used(object, bytes), true};
        }
}

/* The pool, without waiting: a thread that was in the middle of a call when the process ends never leaves it. */
static void sweep_pool(struct pool *pool, const struct hardened_class *class, struct found *found)
{
        if (!pool_is_used(pool) || !lock_try(&pool->lock))
                return;
        check_waiting_locked(pool->drawn, class->drawn, class->size, found);
        check_waiting_locked(pool->aged, class->aged, class->size, found);
        lock_drop_unslept(&pool->lock);
}

/* HARD-5. Objects that are taken or freed meanwhile would look harmed, so other threads' pools are left out. */
static void check_canaries(struct slab_record *record, const struct hardened_class *class,
                           struct found *found)
{
        for (uint32_t index = 0; index < class->objects && !found->object; index++) {
                char *object = record->start + (size_t)index * class->size;
                uint64_t canary;

                /* Acquire: pairs with hand_out_locked. */
                if (!object_is_out(load_acquire(&record->states[index])))
                        continue;
                memcpy(&canary, object + class->size - CANARY_BYTES, sizeof(canary));
                if (canary != record->canary)
                        *found = (struct found){
                                object,
                                class->size - CANARY_BYTES +
                                        (uint32_t)__builtin_ctzll(canary ^ record->canary) / 8,
                                false};
        }
}

static void sweep_chunk(uint32_t number, struct found *found)
{
        uint64_t entry = load_acquire(&hardened.chunks[number]);
        const struct hardened_class *class;
        uint32_t unused = 0;
        char *records;

        if (!entry)
                return;
        class = class_of_chunk(entry);
        /* It has neither canaries nor anything else to be read. */
        if (class == &hardened.classes[0])
                return;
        records = records_of_chunk(entry);
        /* Behind so many places without a slab there is none: records of the rest were never touched. */
        for (uint32_t slab = 0; slab < class->slabs && unused < HARDENED_PLACES && !found->object;
             slab++) {
                struct slab_record *record =
                        (struct slab_record *)(void *)(records + slab * class->record_bytes);
                struct pool *pool;

                if (!load_acquire(&record->start)) {
                        unused++;
                        continue;
                }
                unused = 0;
                pool = pool_of(record->arena, record->number);
                if (!lock_try(&pool->lock))
                        continue;
                if (record->place != SLAB_RELEASED && record->free < class->objects)
                        check_canaries(record, class, found);
                lock_drop_unslept(&pool->lock);
        }
}

void hardened_sweep(void)
{
        uint32_t end = hardened_chunks_end();
        struct found found = {0};

        for (uint32_t arena = 0; arena < hardened.arenas; arena++)
                for (uint32_t number = 1; number < HARDENED_CLASSES && !found.object; number++)
                        sweep_pool(pool_of(arena, number), &hardened.classes[number], &found);
        /* A thread that runs on writes canaries without a lock. */
        if (!hardened_has_threads())
                for (uint32_t number = 0; number < end && !found.object; number++)
                        sweep_chunk(number, &found);
        if (found.object && found.written_after_free)
                hardened_report("exit", found.object, "Object written after free",
                                "it was written to after it was freed", found.bad_offset);
        if (found.object)
                hardened_report("exit", found.object, "Canary overwritten",
                                "written to behind its end", found.bad_offset);
        hardened_large_sweep();
}

size_t hardened_trim(void)
{
        size_t bytes = 0;

        for (uint32_t number = 0; number < hardened.arenas * HARDENED_CLASSES; number++) {
                struct pool *pool = &hardened.pools[number];
                bool locked;

                if (!pool_is_used(pool) || number % HARDENED_CLASSES == 0)
                        continue;
                locked = pool_take(pool);
                bytes += slabs_release_locked(pool);
                pool_drop(pool, locked);
        }
        hardened_large_trim();
        return bytes;
}

void hardened_each_lock(void (*pool)(struct lock *lock), void (*act)(struct lock *lock))
{
        if (!hardened.bytes)
                return;
        for (uint32_t number = 0; number < hardened.arenas * HARDENED_CLASSES; number++)
                if (pool_is_used(&hardened.pools[number]))
                        pool(&hardened.pools[number].lock);
        act(&hardened_large_lock);
        act(&hardened_grow_lock);
}

static void count_pool(const struct pool *pool, const struct hardened_class *class,
                       struct hardened_counts *counts)
{
        uint64_t taken = load_relaxed(&pool->taken);
        uint64_t out = taken - min_of(load_relaxed(&pool->given), taken);
        uint64_t waiting = load_relaxed(&pool->waiting);

        counts->taken += taken;
        counts->blocks += out;
        if (class == &hardened.classes[0])
                return;
        counts->bytes += out * class->size;
        counts->waiting += waiting;
        counts->waiting_bytes += waiting * class->size;
        counts->slab_bytes += load_relaxed(&pool->slabs) * class->slab_bytes;
}

struct hardened_figures hardened_figures;

void hardened_show(void)
{
        struct registry_head *head;

        fence_behind_change();
        head = registry_head_shown();
        if (!head)
                return;
        store_relaxed(&head->hardened.level, (uint64_t)1);
        registry_show(&head->hardened.slab_bytes, &hardened_figures.slab_bytes);
        registry_show(&head->hardened.large_bytes, &hardened_figures.large_bytes);
        registry_show(&head->hardened.waiting_bytes, &hardened_figures.waiting_bytes);
        registry_show(&head->hardened.closed_bytes, &hardened_figures.closed_bytes);
}

void hardened_count(struct hardened_counts *counts)
{
        *counts = (struct hardened_counts){0};
        for (uint32_t arena = 0; arena < hardened.arenas; arena++)
                for (uint32_t number = 0; number < HARDENED_CLASSES; number++) {
                        const struct hardened_class *class = &hardened.classes[number];

                        count_pool(pool_of(arena, number), class, counts);
                        if (number)
                                counts->waiting_bytes_max +=
                                        (uint64_t)(class->drawn + class->aged) * class->size;
                }
        hardened_large_count(counts);
}
