/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Samples: objects with an allocation and a free that are both seen
 * (docs/decisions/0016-profiles.md). They lie in a region of their own outside the heap. So every
 * free of a sample leaves its fast path, also that of kmem_cache_free and of inlined code, because
 * all fast paths compare with the heap's range.
 *
 *  SAMPLE-1  An entry belongs to a place in the region, and is free or has a sample. The thread
 *            that takes it from the free list owns it until the sample is freed. Its address is set
 *            last and cleared first, under sample_lock, so of two frees the second finds nothing.
 *  SAMPLE-2  A free subtracts exactly the figures that the allocation added: both are kept in the
 *            entry. A forked child begins with counts of 0, and does not count frees of objects
 *            from its parent's time.
 *
 * sample_lock is inside all other locks but metadata_lock. Samples are made and ended without any
 * lock held, because a stack is walked.
 */
#ifndef KMEM_PROFILE_SAMPLE_H
#define KMEM_PROFILE_SAMPLE_H

#include "engines/caches.h"
#include "profile/guard.h"

enum {
        PROFILE_SLICES_MOST = 50,           /* percent */
        PROFILE_INTERVAL_LEAST = 1024,      /* bytes; a smaller interval would make most objects
                                               samples */
        SAMPLE_BYTES_MAX = CLASS_BYTES_MAX, /* larger objects of named caches are no samples */
        SAMPLE_BUCKETS = 1 << 12,           /* of blocks of pages that are samples */
        PROFILE_LEASE_MS = 15000,           /* of a profile from outside, since its last renewal */
};

/*
 * Bytes between samples on average; 0: nothing is sampled. A thread that sees it change sees the
 * region.
 */
extern KMEM_HIDDEN uint64_t profile_interval;
/* When sampling began, by system_time_ms; 0: there is none. Changes under cache_mutex. */
extern KMEM_HIDDEN uint64_t profile_since_ms;
/* Percent of the time in which slots have no sheaves while there are samples; 0: never. Relaxed. */
extern KMEM_HIDDEN uint64_t profile_slices;
/*
 * Whether a slice without sheaves runs: samples are then counted a second time, separately.
 * Relaxed.
 */
extern KMEM_HIDDEN bool profile_in_slice;
/*
 * The time, by system_time_ms, when values from outside end and the program's options apply again;
 * 0: no value is from outside. Changes under cache_mutex. Relaxed, since a reader that comes a slow
 * path too early or too late only costs time.
 */
extern KMEM_HIDDEN uint64_t profile_lease_ends_ms;
/*
 * Ends a lease that is over; called wherever registry_honour may be called. NULL before the heap
 * has started.
 */
extern KMEM_HIDDEN void (*profile_end_lease)(void);
extern KMEM_HIDDEN struct lock sample_lock;
/* The region; 0 bytes before the first use. Set once, base first. */
extern KMEM_HIDDEN uintptr_t sample_base;
extern KMEM_HIDDEN size_t sample_region_bytes;
/* Large blocks and objects of classes of pages that are samples where they lie; relaxed. */
extern KMEM_HIDDEN uint64_t sample_large_blocks;
/* The first entry of each bucket of these blocks, 0: none. Written under sample_lock. */
extern KMEM_HIDDEN uint32_t sample_buckets[SAMPLE_BUCKETS];

static inline bool is_profiling(void)
{
        return unlikely(load_acquire(&profile_interval) != 0);
}

/* Whether an address lies in the region, or in the region of guards, whose objects are freed alike. */
static inline bool in_sample_region(const void *address)
{
        /* Acquire: read before the base. */
        size_t bytes = load_acquire(&sample_region_bytes);

        return unlikely((uintptr_t)address - sample_base < bytes) || in_guard_region(address);
}

/*
 * Address space that heap.outside tells from the heap; NULL without memory.
 */
KMEM_HIDDEN void *samples_reserve(size_t bytes);
/* Makes the region and its table; false without memory. Under cache_mutex. */
KMEM_HIDDEN bool samples_init(void);

/* Makes a sample of the cache; NULL without memory, or without room for another sample. */
KMEM_HIDDEN void *sample_alloc(struct kmem_cache *cache);
/* Usable bytes of the sample or guard that begins at an address in a region; 0 if none does. */
KMEM_HIDDEN size_t sample_bytes(const void *address);
/* The cache of the sample or guard that begins at an address in a region; NULL if none does, or the cache is gone. */
KMEM_HIDDEN struct kmem_cache *sample_cache(const void *address);
/*
 * Ends the sample or guard that begins at an address in a region; false if none does. *cache becomes its
 * cache, for a mark in its place. It is NULL if the cache is gone, or if the interval has changed:
 * the next sample in this place would stand for another number of objects than this sample was
 * drawn for.
 */
KMEM_HIDDEN bool sample_free(void *address, struct kmem_cache **cache);

/*
 * Throws the coin of a large block or object of a class of pages, whose @bytes count as whole pages. A block
 * that it chooses becomes a sample where it lies, if there is room. Whether it was chosen.
 */
KMEM_HIDDEN bool sample_throw(const void *block, size_t bytes);

static inline uint32_t *sample_bucket(const void *block)
{
        uint64_t hash = ((uintptr_t)block >> PAGE_SHIFT) * 0x9e3779b97f4a7c15u;

        return &sample_buckets[hash >> 32 & (SAMPLE_BUCKETS - 1)];
}

/*
 * Whether a block that its owner frees may be a sample where it lies. Without a lock: the owner has the
 * block from the thread that made it a sample, so it sees at least that entry in the bucket.
 */
static inline bool may_be_sample(const void *block)
{
        return unlikely(load_relaxed(&sample_large_blocks)) &&
               ((uintptr_t)block & (PAGE_SIZE - 1)) == 0 && load_relaxed(sample_bucket(block));
}

KMEM_HIDDEN uint32_t sample_large_take(const void *block);
KMEM_HIDDEN void sample_large_end(uint32_t entry, const void *block, bool freed);

/* Takes such a block's sample out of the table, before another thread can get the block; 0 if it is no sample. */
static inline uint32_t sample_take(const void *block)
{
        return likely(!may_be_sample(block)) ? 0 : sample_large_take(block);
}

/* Ends what sample_take returned, or puts it back if the block was not freed after all. */
static inline void sample_end(uint32_t entry, const void *block, bool freed)
{
        if (unlikely(entry))
                sample_large_end(entry, block, freed);
}

#endif
