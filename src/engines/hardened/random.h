/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Random numbers that nobody can foretell from numbers before: the stream of ChaCha with 8 rounds, by a
 * key of the kernel's. Each pool has a stream of its own (the nonce), so that a draw needs no lock but
 * the pool's. Source: RFC 8439 for the block function; 8 rounds as in Aumasson, "Too Much Crypto".
 */
#ifndef KMEM_ENGINES_HARDENED_RANDOM_H
#define KMEM_ENGINES_HARDENED_RANDOM_H

#include "lang/compiler.h"

enum { RANDOM_KEY_WORDS = 8, RANDOM_BLOCKS = 2, RANDOM_DRAWS = 32 * RANDOM_BLOCKS };

struct random_stream {
        uint64_t left; /* numbers in draws that are still to be used, the first ones */
        uint16_t draws[RANDOM_DRAWS]; /* of the last blocks */
        uint64_t block;               /* number of the next block */
        uint64_t nonce;               /* number of the stream */
};

/* Makes the next blocks of the stream. */
KMEM_HIDDEN void stream_refill(struct random_stream *stream, const uint32_t key[RANDOM_KEY_WORDS]);

/* As stream_below, where something is `left`. */
static inline uint32_t stream_next(struct random_stream *stream, uint32_t end)
{
        return ((uint32_t)stream->draws[--stream->left] * end) >> 16;
}

/* A number below @end, which is 1 to 65536. The lowest numbers are likelier by up to @end in 65536. */
static inline uint32_t stream_below(struct random_stream *stream,
                                    const uint32_t key[RANDOM_KEY_WORDS], uint32_t end)
{
        if (unlikely(!stream->left))
                stream_refill(stream, key);
        return stream_next(stream, end);
}

/* 64 random bits. */
static inline uint64_t stream_word(struct random_stream *stream,
                                   const uint32_t key[RANDOM_KEY_WORDS])
{
        uint64_t word = 0;

        for (int i = 0; i < 4; i++)
                word = word << 16 | stream_below(stream, key, 65536);
        return word;
}

#endif
