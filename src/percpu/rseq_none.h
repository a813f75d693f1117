/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of sequences on processors for which there are none: each call takes its slow path, which
 * finds a locked slot (area_use never agrees).
 */
#ifndef KMEM_PERCPU_RSEQ_NONE_H
#define KMEM_PERCPU_RSEQ_NONE_H

#define RSEQ_SIGNATURE_VALUE 0

static KMEM_ALWAYS_INLINE void *rseq_pop(uint64_t pair_offset)
{
        (void)pair_offset;
        return NULL;
}

static KMEM_ALWAYS_INLINE enum push_result rseq_push(uint64_t pair_offset, void *object)
{
        (void)pair_offset;
        (void)object;
        return PUSH_FULL;
}

static KMEM_ALWAYS_INLINE bool rseq_push_marked(uint64_t pair_offset, void *object)
{
        (void)pair_offset;
        (void)object;
        return false;
}

static inline unsigned int rseq_pop_bulk(uint64_t pair_offset, void **objects, uint64_t count)
{
        (void)pair_offset;
        (void)objects;
        (void)count;
        return 0;
}

static inline unsigned int rseq_push_bulk(uint64_t pair_offset, void **objects, uint64_t count)
{
        (void)pair_offset;
        (void)objects;
        (void)count;
        return 0;
}

static inline bool rseq_replace(struct slot *slot, uint64_t pair_offset,
                                const struct pair *expected, const struct pair *new_pair)
{
        (void)slot;
        (void)pair_offset;
        (void)expected;
        (void)new_pair;
        return false;
}

#endif
