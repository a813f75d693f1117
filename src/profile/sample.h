/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Samples: objects whose allocation and free are both seen (docs/decisions/0016-profiles.md). They lie
 * in a region of their own outside the heap, so that every free of one leaves its fast path, that of
 * kmem_cache_free and of inlined code too, because all of them compare with the heap's range.
 *
 *  SAMPLE-1  An entry belongs to one place in the region, and is free or has one sample. Who takes it
 *            from the free list owns it until the sample is freed; its address is set last and cleared
 *            first, under sample_lock, so of two frees one finds nothing.
 *  SAMPLE-2  What a free subtracts is what the allocation added: both are kept in the entry. A forked
 *            child begins with counts of 0, and does not count frees of what its parent got.
 *
 * sample_lock is inside all other locks but metadata_lock. Samples are made and ended without any lock
 * held, because a stack is walked.
 */
#ifndef KMEM_PROFILE_SAMPLE_H
#define KMEM_PROFILE_SAMPLE_H

#include "engines/caches.h"

enum {
        PROFILE_SLICES_MOST = 50,           /* percent */
        PROFILE_INTERVAL_LEAST = 1024,      /* bytes; a finer one would make most objects samples */
        SAMPLE_BYTES_MAX = CLASS_BYTES_MAX, /* larger objects of caches are none */
        PROFILE_LEASE_MS = 15000,           /* of a profile from outside, since its last renewal */
};

/* Bytes between samples on average; 0: nothing is sampled. Who sees another sees the region. */
extern KMEM_HIDDEN uint64_t profile_interval;
/* Percent of the time in which slots have no sheaves while there are samples; 0: never. Relaxed. */
extern KMEM_HIDDEN uint64_t profile_slices;
/* Whether it is such a time: samples are counted twice then, the second time apart. Relaxed. */
extern KMEM_HIDDEN bool profile_in_slice;
/*
 * When what was set from outside goes back to what the program's options say, by system_time_ms; 0: nothing
 * is set from outside. Changes under cache_mutex; relaxed, since a reader that comes too early or too late
 * by a slow path only costs time.
 */
extern KMEM_HIDDEN uint64_t profile_lease_ends_ms;
/* Ends a lease that is over; called where registry_honour may be. NULL before the heap has started. */
extern KMEM_HIDDEN void (*profile_end_lease)(void);
extern KMEM_HIDDEN struct lock sample_lock;
/* The region; 0 bytes before the first use. Set once, base first. */
extern KMEM_HIDDEN uintptr_t sample_base;
extern KMEM_HIDDEN size_t sample_region_bytes;
/* Large blocks that are samples; relaxed. */
extern KMEM_HIDDEN uint64_t sample_large_blocks;

static inline bool is_profiling(void)
{
        return unlikely(load_acquire(&profile_interval) != 0);
}

/* Whether an address lies in the region. */
static inline bool in_sample_region(const void *address)
{
        /* Before the base is read. */
        size_t bytes = load_acquire(&sample_region_bytes);

        return unlikely((uintptr_t)address - sample_base < bytes);
}

/* Makes the region and its table; false without memory. Under cache_mutex. */
KMEM_HIDDEN bool samples_init(void);

/* An object of the cache that is a sample; NULL without memory, or room for another one. */
KMEM_HIDDEN void *sample_alloc(struct kmem_cache *cache);
/* Usable bytes of the sample that begins at an address in the region; 0: none does. */
KMEM_HIDDEN size_t sample_bytes(const void *address);
/*
 * Ends the sample that begins at an address in the region; false if none does. *cache is its cache, for a
 * mark in its place; NULL if that is gone, or the interval is another now, as the next one in this place
 * would stand for more or fewer objects than the coin of this one was for.
 */
KMEM_HIDDEN bool sample_free(void *address, struct kmem_cache **cache);

/* A large block was handed out, of so many bytes: it may become a sample. */
KMEM_HIDDEN void sample_large(const void *block, size_t bytes);
/*
 * Takes a large block's sample out of the table, before the block can be somebody else's; 0: it is none.
 * Then either ends it or, if the block was not freed after all, puts it back.
 */
KMEM_HIDDEN uint32_t sample_large_take(const void *block);
KMEM_HIDDEN void sample_large_end(uint32_t entry, const void *block);
KMEM_HIDDEN void sample_large_put_back(uint32_t entry, const void *block);

#endif
