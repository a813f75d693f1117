/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The block function of ChaCha (random.h). */
#include "engines/hardened/random.h"

#include <string.h>

enum { ROUNDS = 8, BLOCK_WORDS = 16 };

static inline uint32_t rotate(uint32_t word, unsigned int bits)
{
        return word << bits | word >> (32 - bits);
}

static inline void quarter_round(uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d)
{
        *a += *b;
        *d = rotate(*d ^ *a, 16);
        *c += *d;
        *b = rotate(*b ^ *c, 12);
        *a += *b;
        *d = rotate(*d ^ *a, 8);
        *c += *d;
        *b = rotate(*b ^ *c, 7);
}

static void double_round(uint32_t x[BLOCK_WORDS])
{
        for (unsigned int i = 0; i < 4; i++)
                quarter_round(&x[i], &x[4 + i], &x[8 + i], &x[12 + i]);
        for (unsigned int i = 0; i < 4; i++)
                quarter_round(&x[i], &x[4 + (i + 1) % 4], &x[8 + (i + 2) % 4],
                              &x[12 + (i + 3) % 4]);
}

void stream_refill(struct random_stream *stream, const uint32_t key[RANDOM_KEY_WORDS])
{
        /* "expand 32-byte k", key, number of the block, nonce. */
        uint32_t input[BLOCK_WORDS] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
        uint32_t x[BLOCK_WORDS];

        memcpy(&input[4], key, RANDOM_KEY_WORDS * sizeof(*key));
        memcpy(&input[12], &stream->block, sizeof(stream->block));
        memcpy(&input[14], &stream->nonce, sizeof(stream->nonce));
        memcpy(x, input, sizeof(x));
        for (int round = 0; round < ROUNDS; round += 2)
                double_round(x);
        for (unsigned int i = 0; i < BLOCK_WORDS; i++)
                x[i] += input[i];
        _Static_assert(sizeof(x) == sizeof(stream->draws), "a block fills the draws");
        memcpy(stream->draws, x, sizeof(x));
        stream->block++;
        stream->left = RANDOM_DRAWS;
}
