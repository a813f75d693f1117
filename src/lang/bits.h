/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Arithmetic on powers of two and page orders (S3-01), and sets of numbers as bits.
 */
#ifndef KMEM_LANG_BITS_H
#define KMEM_LANG_BITS_H

#include "lang/compiler.h"

#include <limits.h> /* musl's has a PAGE_SIZE of its own, the system's */

/*
 * PAGE in every formula is 4 KiB, with every page size of the system. Only the simulator is built
 * with others, up to 64 KiB.
 */
#ifndef PAGE_SHIFT
#define PAGE_SHIFT 12u
#endif
#undef PAGE_SIZE
#define PAGE_SIZE ((size_t)1 << PAGE_SHIFT)

static inline size_t round_up(size_t value, size_t power_of_two)
{
        return (value + power_of_two - 1) & ~(power_of_two - 1);
}

static inline size_t round_down(size_t value, size_t power_of_two)
{
        return value & ~(power_of_two - 1);
}

static inline bool is_power_of_two(size_t value)
{
        return value != 0 && (value & (value - 1)) == 0;
}

/* Position of the highest set bit, counted from 1; 0 for 0. */
static inline unsigned int fls(size_t value)
{
        return value ? 64u - (unsigned int)__builtin_clzll(value) : 0;
}

static inline size_t pages_for(size_t bytes)
{
        return (bytes >> PAGE_SHIFT) + ((bytes & (PAGE_SIZE - 1)) != 0);
}

/* The smallest order o with PAGE_SIZE << o >= bytes. */
static inline unsigned int get_order(size_t bytes)
{
        size_t pages = pages_for(bytes);

        return pages <= 1 ? 0 : fls(pages - 1);
}

static inline size_t order_pages(unsigned int order)
{
        return (size_t)1 << order;
}

static inline size_t order_bytes(unsigned int order)
{
        return PAGE_SIZE << order;
}

/* Sets of numbers, 64 to a word; the caller's lock protects them. */
static inline bool bit_get(const uint64_t *bits, size_t number)
{
        return bits[number / 64] >> (number % 64) & 1;
}

static inline void bit_set(uint64_t *bits, size_t number)
{
        bits[number / 64] |= (uint64_t)1 << (number % 64);
}

static inline void bit_clear(uint64_t *bits, size_t number)
{
        bits[number / 64] &= ~((uint64_t)1 << (number % 64));
}

#endif
