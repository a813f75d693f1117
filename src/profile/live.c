/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The places of samples in the registry, and the threads that they are of. live.h has the
 * invariants.
 */
#include "profile/live.h"

#include "lang/bits.h"
#include "machine/system.h"
#include "profile/sample.h"

#include <string.h>

enum {
        THREADS = 1 << 10, /* that are told apart; samples of others have a number and no name */
        BUCKETS = 1 << 8,
        TRIES = 16, /* threads that are looked at for one without samples */
};

struct thread {
        struct registry_thread *record; /* NULL: the entry was never used in this generation */
        uint32_t id;
        uint32_t next;    /* in its bucket */
        uint32_t samples; /* in use */
        uint32_t taken;   /* so far */
};

static KMEM_SPARSE struct registry_samples *records[LIVE_ENTRIES / REGISTRY_SAMPLES];
/* The table of threads; all of it under sample_lock. Entry 0 is none. */
static KMEM_SPARSE struct thread threads[THREADS];
static KMEM_SPARSE uint32_t buckets[BUCKETS];
static uint32_t used_threads = 1;
static uint32_t hand; /* where the search for a thread without samples goes on */
static uint32_t generation;

/* NULL if the entry has no place. */
static struct registry_sample *place_if_made(uint32_t entry)
{
        struct registry_samples *record = load_acquire(&records[entry / REGISTRY_SAMPLES]);

        return record && registry_head_shown() ? &record->sample[entry % REGISTRY_SAMPLES] : NULL;
}

/* NULL without room. */
static struct registry_sample *place_of(uint32_t entry)
{
        struct registry_samples **place = &records[entry / REGISTRY_SAMPLES];
        struct registry_samples *record = load_acquire(place);

        if (!registry_head_shown())
                return NULL;
        if (!record) {
                struct registry_samples *none = NULL;

                record = registry_alloc(sizeof(*record));
                if (!record)
                        return NULL;
                if (!compare_swap(place, &none, record)) {
                        registry_free(record, sizeof(*record));
                        record = none;
                }
        }
        /* The record is new, or its place is empty in a child's registry. */
        if (load_acquire(&record->head.kind) != RECORD_SAMPLES)
                registry_publish(record, RECORD_SAMPLES, sizeof(*record));
        return &record->sample[entry % REGISTRY_SAMPLES];
}

static uint32_t *bucket_of(uint32_t id)
{
        return &buckets[id % BUCKETS];
}

static void forget_parent_locked(void)
{
        if (generation == load_relaxed(&registry_generation))
                return;
        memset(threads, 0, sizeof(threads));
        memset(buckets, 0, sizeof(buckets));
        used_threads = 1;
        generation = load_relaxed(&registry_generation);
}

/* An entry that is in no bucket; 0 if there is none. */
static uint32_t take_thread_locked(void)
{
        if (used_threads < THREADS)
                return used_threads++;
        for (unsigned int i = 0; i < TRIES; i++) {
                uint32_t found = 1 + hand++ % (THREADS - 1);
                uint32_t *link = bucket_of(threads[found].id);

                if (threads[found].samples)
                        continue;
                while (*link != found)
                        link = &threads[*link].next;
                *link = threads[found].next;
                return found;
        }
        return 0;
}

static uint32_t make_thread_locked(uint32_t id)
{
        uint32_t made = take_thread_locked();
        struct thread *thread = &threads[made];

        if (!made)
                return 0;
        if (!thread->record)
                thread->record = registry_alloc(sizeof(*thread->record));
        /* An entry without a record has a number of its own all the same: it is searched again. */
        thread->id = id;
        thread->taken = 0;
        thread->next = *bucket_of(id);
        *bucket_of(id) = made;
        return made;
}

/* The entry of the calling thread, with another sample; *is_due: its name is to be read. */
static uint32_t enter_thread(uint32_t id, bool *is_due)
{
        uint32_t found;

        lock_take(&sample_lock);
        forget_parent_locked();
        found = *bucket_of(id);
        while (found && threads[found].id != id)
                found = threads[found].next;
        if (!found)
                found = make_thread_locked(id);
        if (found) {
                threads[found].samples++;
                threads[found].taken++;
                /* A thread may get its name after its first samples. */
                *is_due = !(threads[found].taken & (threads[found].taken - 1));
        }
        lock_drop(&sample_lock);
        return found;
}

/* No other thread writes the record, as the caller has a sample that nobody can free yet. */
static void show_name(uint32_t id, struct registry_thread *record)
{
        char name[SYSTEM_NAME_BYTES] = "";
        uint64_t words[sizeof(record->name) / sizeof(uint64_t)];

        if (!record)
                return;
        /* A sandbox might end the process for the call. */
        if (!system_entered_sandbox())
                system_thread_name(name);
        memcpy(words, name, sizeof(words));
        if (record->thread != id)
                store_relaxed(&record->thread, (uint64_t)0);
        for (unsigned int i = 0; i < array_size(words); i++)
                store_relaxed(&record->name[i], words[i]);
        store_relaxed(&record->thread, (uint64_t)id);
        if (load_relaxed(&record->head.kind) != RECORD_THREAD)
                registry_publish(record, RECORD_THREAD, sizeof(*record));
}

void live_show(uint32_t entry, struct live *live, const struct registry_stack *figures,
               uint64_t objects, uint64_t bytes)
{
        struct registry_sample *place = place_of(entry);
        uint32_t id = system_sandbox_was_told() ? 0 : system_thread_id();
        bool is_due = false;

        live->time_ms = system_time_ms();
        live->thread = 0;
        if (!place)
                return;
        if (id)
                live->thread = enter_thread(id, &is_due);
        if (is_due)
                show_name(id, threads[live->thread].record);
        store_relaxed(&place->time_ms, live->time_ms);
        store_relaxed(&place->thread, id);
        store_relaxed(&place->objects, objects);
        store_relaxed(&place->bytes, bytes);
        /* Release: readers in other processes take a place with a stack for a whole one. */
        store_release(&place->stack, registry_place_of(figures));
}

void live_hide(uint32_t entry, const struct live *live)
{
        struct registry_sample *place = place_if_made(entry);

        if (place)
                store_relaxed(&place->stack, (uint32_t)0);
        if (!live->thread)
                return;
        lock_take(&sample_lock);
        if (generation == load_relaxed(&registry_generation))
                threads[live->thread].samples--;
        lock_drop(&sample_lock);
}
