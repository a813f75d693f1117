/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Bits of words and of arrays of unsigned long. Names that begin with two underscores are not
 * atomic; the others are, and functions that return something are full barriers.
 */
#ifndef KMEM_LINUX_BITOPS_H
#define KMEM_LINUX_BITOPS_H

#include <linux/compiler.h>
#include <linux/math.h>
#include <linux/types.h>

#define BITS_PER_BYTE 8
#define BITS_PER_LONG (8 * (int)sizeof(long))
#define BITS_PER_LONG_LONG 64
#define BIT(number) (1ul << (number))
#define BIT_ULL(number) (1ull << (number))
#define BIT_MASK(number) (1ul << ((unsigned long)(number) % (unsigned int)BITS_PER_LONG))
#define BIT_WORD(number) ((unsigned long)(number) / (unsigned int)BITS_PER_LONG)
#define BITS_TO_LONGS(count) DIV_ROUND_UP(count, BITS_PER_LONG)
#define GENMASK(high, low) ((~0ul << (low)) & (~0ul >> (BITS_PER_LONG - 1 - (high))))
#define DECLARE_BITMAP(name, bits) unsigned long name[BITS_TO_LONGS(bits)]

static inline void set_bit(long number, volatile unsigned long *words)
{
        __atomic_fetch_or(&words[BIT_WORD(number)], BIT_MASK(number), __ATOMIC_RELAXED);
}

static inline void clear_bit(long number, volatile unsigned long *words)
{
        __atomic_fetch_and(&words[BIT_WORD(number)], ~BIT_MASK(number), __ATOMIC_RELAXED);
}

static inline void change_bit(long number, volatile unsigned long *words)
{
        __atomic_fetch_xor(&words[BIT_WORD(number)], BIT_MASK(number), __ATOMIC_RELAXED);
}

static inline bool test_bit(long number, const volatile unsigned long *words)
{
        return (words[BIT_WORD(number)] & BIT_MASK(number)) != 0;
}

static inline bool test_and_set_bit(long number, volatile unsigned long *words)
{
        return (__atomic_fetch_or(&words[BIT_WORD(number)], BIT_MASK(number), __ATOMIC_SEQ_CST) &
                BIT_MASK(number)) != 0;
}

static inline bool test_and_clear_bit(long number, volatile unsigned long *words)
{
        return (__atomic_fetch_and(&words[BIT_WORD(number)], ~BIT_MASK(number), __ATOMIC_SEQ_CST) &
                BIT_MASK(number)) != 0;
}

static inline void __set_bit(long number, volatile unsigned long *words)
{
        words[BIT_WORD(number)] |= BIT_MASK(number);
}

static inline void __clear_bit(long number, volatile unsigned long *words)
{
        words[BIT_WORD(number)] &= ~BIT_MASK(number);
}

static inline bool __test_and_set_bit(long number, volatile unsigned long *words)
{
        bool was_set = test_bit(number, words);

        __set_bit(number, words);
        return was_set;
}

static inline bool __test_and_clear_bit(long number, volatile unsigned long *words)
{
        bool was_set = test_bit(number, words);

        __clear_bit(number, words);
        return was_set;
}

/* Number of the lowest and of the highest bit that is set; undefined for 0. */
static inline unsigned long __ffs(unsigned long word)
{
        return (unsigned long)__builtin_ctzl(word);
}

static inline unsigned long __fls(unsigned long word)
{
        return (unsigned long)(BITS_PER_LONG - 1 - __builtin_clzl(word));
}

#define ffz(word) __ffs(~(word))

/* The bit's number counted from 1; 0 for 0. */
static inline int fls(unsigned int word)
{
        return word ? 32 - __builtin_clz(word) : 0;
}

static inline int fls64(u64 word)
{
        return word ? 64 - __builtin_clzll(word) : 0;
}

static inline int fls_long(unsigned long word)
{
        return fls64(word);
}

static inline unsigned int hweight32(u32 word)
{
        return (unsigned int)__builtin_popcount(word);
}

static inline unsigned int hweight64(u64 word)
{
        return (unsigned int)__builtin_popcountll(word);
}

static inline unsigned int hweight_long(unsigned long word)
{
        return (unsigned int)__builtin_popcountl(word);
}

/* The first bit from @start on that is set, or clear with @invert ~0; @bits if there is none. */
static inline unsigned long kmem_find_bit(const unsigned long *words, unsigned long bits,
                                          unsigned long start, unsigned long invert)
{
        while (start < bits) {
                unsigned long rest =
                        (words[BIT_WORD(start)] ^ invert) >> (start % (unsigned int)BITS_PER_LONG);

                if (rest) {
                        start += __ffs(rest);
                        return start < bits ? start : bits;
                }
                start = (BIT_WORD(start) + 1) * (unsigned int)BITS_PER_LONG;
        }
        return bits;
}

#define find_first_bit(words, bits) kmem_find_bit(words, bits, 0, 0)
#define find_next_bit(words, bits, start) kmem_find_bit(words, bits, start, 0)
#define find_first_zero_bit(words, bits) kmem_find_bit(words, bits, 0, ~0ul)
#define find_next_zero_bit(words, bits, start) kmem_find_bit(words, bits, start, ~0ul)
#define for_each_set_bit(bit, words, bits)                                                         \
        for ((bit) = find_first_bit(words, bits); (bit) < (bits);                                  \
             (bit) = find_next_bit(words, bits, (bit) + 1))

static inline u32 rol32(u32 word, unsigned int count)
{
        return (word << (count & 31)) | (word >> (-count & 31));
}

static inline u32 ror32(u32 word, unsigned int count)
{
        return (word >> (count & 31)) | (word << (-count & 31));
}

#endif
