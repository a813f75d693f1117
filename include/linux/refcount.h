/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reference counts: never up from 0, never below 0; both are warned of and leave the count. A count
 * that would be too large is warned of too and stays REFCOUNT_SATURATED for good, so its object is
 * never freed.
 */
#ifndef KMEM_LINUX_REFCOUNT_H
#define KMEM_LINUX_REFCOUNT_H

#include <linux/atomic.h>
#include <linux/bug.h>
#include <linux/types.h>

#include <limits.h>

#define REFCOUNT_SATURATED (INT_MIN / 2)

typedef struct refcount_struct {
        atomic_t refs;
} refcount_t;

#define REFCOUNT_INIT(count)                                                                       \
        {                                                                                          \
                .refs = ATOMIC_INIT(count)                                                         \
        }

static inline void refcount_set(refcount_t *count, int value)
{
        atomic_set(&count->refs, value);
}

/*
 * Release: lock-free readers that find the object again see the writes before this call (acquire in
 * refcount_inc_not_zero_acquire).
 */
static inline void refcount_set_release(refcount_t *count, int value)
{
        atomic_set_release(&count->refs, value);
}

static inline unsigned int refcount_read(const refcount_t *count)
{
        return (unsigned int)atomic_read(&count->refs);
}

static inline __must_check bool refcount_add_not_zero(int value, refcount_t *count)
{
        int old = atomic_read(&count->refs);
        int sum;

        do {
                if (old == 0)
                        return false;
                if (WARN(old < 0 || __builtin_add_overflow(old, value, &sum),
                         "refcount_t: saturated; leaking memory\n"))
                        sum = REFCOUNT_SATURATED;
        } while (!atomic_try_cmpxchg(&count->refs, &old, sum));
        return true;
}

static inline __must_check bool refcount_inc_not_zero(refcount_t *count)
{
        return refcount_add_not_zero(1, count);
}

/* Acquire: the writes before refcount_set_release are seen afterwards. */
static inline __must_check bool refcount_inc_not_zero_acquire(refcount_t *count)
{
        return refcount_inc_not_zero(count); /* a full barrier anyway */
}

static inline void refcount_inc(refcount_t *count)
{
        WARN(!refcount_inc_not_zero(count), "refcount_t: increment from 0; use after free\n");
}

static inline __must_check bool refcount_sub_and_test(int value, refcount_t *count)
{
        int old = atomic_read(&count->refs);

        do {
                if (WARN(old < value, "refcount_t: underflow; use after free\n"))
                        return false;
        } while (!atomic_try_cmpxchg(&count->refs, &old, old - value));
        return old == value;
}

static inline __must_check bool refcount_dec_and_test(refcount_t *count)
{
        return refcount_sub_and_test(1, count);
}

static inline void refcount_dec(refcount_t *count)
{
        WARN(refcount_dec_and_test(count), "refcount_t: decrement to 0; leaks memory\n");
}

/* Decrements unless the count is 1. */
static inline __must_check bool refcount_dec_not_one(refcount_t *count)
{
        int old = atomic_read(&count->refs);

        do {
                if (old == 1)
                        return false;
                if (WARN(old < 1, "refcount_t: underflow; use after free\n"))
                        return true;
        } while (!atomic_try_cmpxchg(&count->refs, &old, old - 1));
        return true;
}

static inline __must_check bool refcount_dec_if_one(refcount_t *count)
{
        int one = 1;

        return atomic_try_cmpxchg(&count->refs, &one, 0);
}

#endif
