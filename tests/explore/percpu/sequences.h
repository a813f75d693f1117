/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of percpu/sequences.h: the same reads, writes and single commits in C, each a scheduling
 * point behind which the sequence may find itself aborted. Stores are plain, the commit too: they go
 * through the explorer's memory as others do. An aborted sequence begins anew, and
 * leaves by its slow path when it is aborted for the second time. The real sequences document their
 * results (kmem-sequence.h, percpu/rseq_x86_64.h).
 */
#ifndef KMEM_PERCPU_SEQUENCES_H
#define KMEM_PERCPU_SEQUENCES_H

#include "lang/atomic.h"

#include <string.h>

/* Goes to label aborted if the sequence was aborted in front of the access. */
#define SEQUENCE_LOAD(to, pointer)                                                                 \
        do {                                                                                       \
                const struct place *place_of_ = THIS_PLACE("sequence: load " #pointer);            \
                                                                                                   \
                if (!sequence_point(place_of_, pointer, ACCESS_READ))                              \
                        goto aborted;                                                              \
                explore_load_bytes(place_of_, pointer, &(to), sizeof(to), __ATOMIC_RELAXED);       \
        } while (0)
#define SEQUENCE_STORE(pointer, value)                                                             \
        do {                                                                                       \
                const struct place *place_of_ = THIS_PLACE("sequence: store " #pointer);           \
                const __typeof__(*(pointer)) stored_ = (value);                                    \
                                                                                                   \
                if (!sequence_point(place_of_, pointer, ACCESS_WRITE))                             \
                        goto aborted;                                                              \
                explore_store_bytes(place_of_, pointer, &stored_, sizeof(stored_),                 \
                                    __ATOMIC_RELAXED);                                             \
        } while (0)

/* slot_source.c: where the table of slots has the pairs of the thread's CPU. */
struct pair *const *sequence_slot(void);

static inline struct pair *sequence_pair(struct pair *pairs, uint64_t pair_offset)
{
        return (struct pair *)(void *)((char *)pairs + pair_offset);
}

static inline void *rseq_pop(uint64_t pair_offset)
{
        void *object = NULL;
        struct pair *pairs;
        struct sheaf *main;
        uint32_t size;

        while (sequence_begin()) {
                SEQUENCE_LOAD(pairs, sequence_slot());
                SEQUENCE_LOAD(main, &sequence_pair(pairs, pair_offset)->main);
                SEQUENCE_LOAD(size, &main->size);
                object = NULL;
                if (!size)
                        break;
                SEQUENCE_LOAD(object, &main->object[size - 1]);
                SEQUENCE_STORE(&main->size, size - 1);
                break;
aborted:
                object = NULL;
        }
        sequence_end();
        return object;
}

static inline enum push_result sequence_push(uint64_t pair_offset, void *object, bool look)
{
        enum push_result result = PUSH_FULL;
        struct pair *pairs;
        struct sheaf *main;
        uint32_t size;
        uint32_t capacity;
        const void *newest;

        while (sequence_begin()) {
                SEQUENCE_LOAD(pairs, sequence_slot());
                SEQUENCE_LOAD(main, &sequence_pair(pairs, pair_offset)->main);
                SEQUENCE_LOAD(size, &main->size);
                SEQUENCE_LOAD(capacity, &main->capacity);
                if (size >= capacity)
                        break;
                if (look && size) {
                        SEQUENCE_LOAD(newest, &main->object[size - 1]);
                        if (newest == object) {
                                result = PUSH_ON_TOP;
                                break;
                        }
                }
                SEQUENCE_STORE(&main->object[size], object);
                SEQUENCE_STORE(&main->size, size + 1);
                result = PUSH_DONE;
                break;
aborted:;
        }
        sequence_end();
        return result;
}

static inline enum push_result rseq_push(uint64_t pair_offset, void *object)
{
        return sequence_push(pair_offset, object, true);
}

static inline bool rseq_push_marked(uint64_t pair_offset, void *object)
{
        return sequence_push(pair_offset, object, false) == PUSH_DONE;
}

static inline unsigned int rseq_pop_bulk(uint64_t pair_offset, void **objects, uint64_t count)
{
        unsigned int taken = 0;
        struct pair *pairs;
        struct sheaf *main;
        uint32_t size;

        while (sequence_begin()) {
                uint32_t wanted;

                SEQUENCE_LOAD(pairs, sequence_slot());
                SEQUENCE_LOAD(main, &sequence_pair(pairs, pair_offset)->main);
                SEQUENCE_LOAD(size, &main->size);
                wanted = (uint32_t)min_of((uint64_t)size, count);
                if (!wanted)
                        break;
                for (uint32_t i = 0; i < wanted; i++)
                        SEQUENCE_LOAD(objects[i], &main->object[size - wanted + i]);
                SEQUENCE_STORE(&main->size, size - wanted);
                taken = wanted;
                break;
aborted:;
        }
        sequence_end();
        return taken;
}

static inline unsigned int rseq_push_bulk(uint64_t pair_offset, void **objects, uint64_t count)
{
        unsigned int taken = 0;
        struct pair *pairs;
        struct sheaf *main;
        uint32_t size;
        uint32_t capacity;

        while (sequence_begin()) {
                uintptr_t distances = 0;
                uint32_t wanted;

                SEQUENCE_LOAD(pairs, sequence_slot());
                SEQUENCE_LOAD(main, &sequence_pair(pairs, pair_offset)->main);
                SEQUENCE_LOAD(size, &main->size);
                SEQUENCE_LOAD(capacity, &main->capacity);
                if (size >= capacity)
                        break;
                wanted = (uint32_t)min_of((uint64_t)(capacity - size), count);
                for (uint32_t i = 0; i < wanted; i++) {
                        distances |= (uintptr_t)objects[i] - heap.base;
                        SEQUENCE_STORE(&main->object[size + i], objects[i]);
                }
                if (distances & heap.outside)
                        break;
                SEQUENCE_STORE(&main->size, size + wanted);
                taken = wanted;
                break;
aborted:;
        }
        sequence_end();
        return taken;
}

/* The slot is the one that the caller read; the commit stores both pointers at once. */
static inline bool rseq_replace(struct slot *slot, uint64_t pair_offset,
                                const struct pair *expected, const struct pair *new_pair)
{
        bool replaced = false;
        struct pair *pairs;
        struct pair *pair;
        struct pair found;
        uint32_t stopped;

        while (sequence_begin()) {
                SEQUENCE_LOAD(pairs, sequence_slot());
                if (pairs != slot->pairs)
                        break;
                SEQUENCE_LOAD(stopped, &slot->stopped);
                if (stopped)
                        break;
                pair = sequence_pair(pairs, pair_offset);
                SEQUENCE_LOAD(found.main, &pair->main);
                if (found.main != expected->main)
                        break;
                SEQUENCE_LOAD(found.spare, &pair->spare);
                if (found.spare != expected->spare)
                        break;
                SEQUENCE_STORE(pair, *new_pair);
                replaced = true;
                break;
aborted:;
        }
        sequence_end();
        return replaced;
}

#endif
