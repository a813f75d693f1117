/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Hashing of numbers and pointers: multiplication by the golden ratio, the high bits count. */
#ifndef KMEM_LINUX_HASH_H
#define KMEM_LINUX_HASH_H

#include <linux/compiler.h>
#include <linux/types.h>

#define GOLDEN_RATIO_32 0x61c88647u
#define GOLDEN_RATIO_64 0x61c8864680b583ebull

/* The highest @bits bits, 1 to 32. */
static inline u32 hash_32(u32 value, unsigned int bits)
{
        return (value * GOLDEN_RATIO_32) >> (32 - bits);
}

static inline u32 hash_64(u64 value, unsigned int bits)
{
        return (u32)((value * GOLDEN_RATIO_64) >> (64 - bits));
}

static inline u32 hash_long(unsigned long value, unsigned int bits)
{
        return hash_64(value, bits);
}

static inline u32 hash_ptr(const void *pointer, unsigned int bits)
{
        return hash_long((unsigned long)pointer, bits);
}

#endif
