/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The block function of ChaCha (random.h). */
#include "engines/hardened/random.h"

#include <string.h>

enum { ROUNDS = 8 };

/* A row of the block's square; its four columns are computed at once. */
typedef uint32_t row __attribute__((vector_size(16)));

static inline row rotate(row words, unsigned int bits)
{
        return words << bits | words >> (32 - bits);
}

static inline void quarter_rounds(row x[4])
{
        x[0] += x[1];
        x[3] = rotate(x[3] ^ x[0], 16);
        x[2] += x[3];
        x[1] = rotate(x[1] ^ x[2], 12);
        x[0] += x[1];
        x[3] = rotate(x[3] ^ x[0], 8);
        x[2] += x[3];
        x[1] = rotate(x[1] ^ x[2], 7);
}

/* Columns, and then diagonals: rows are turned so that these are columns, and back. */
static inline void double_round(row x[4])
{
        quarter_rounds(x);
        x[1] = __builtin_shufflevector(x[1], x[1], 1, 2, 3, 0);
        x[2] = __builtin_shufflevector(x[2], x[2], 2, 3, 0, 1);
        x[3] = __builtin_shufflevector(x[3], x[3], 3, 0, 1, 2);
        quarter_rounds(x);
        x[1] = __builtin_shufflevector(x[1], x[1], 3, 0, 1, 2);
        x[2] = __builtin_shufflevector(x[2], x[2], 2, 3, 0, 1);
        x[3] = __builtin_shufflevector(x[3], x[3], 1, 2, 3, 0);
}

void stream_refill(struct random_stream *stream, const uint32_t key[RANDOM_KEY_WORDS])
{
        /* "expand 32-byte k", key, number of the block, nonce. */
        row input[4] = {{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}};
        row x[RANDOM_BLOCKS][4];

        memcpy(&input[1], key, RANDOM_KEY_WORDS * sizeof(*key));
        input[3] = (row){(uint32_t)stream->block, (uint32_t)(stream->block >> 32),
                         (uint32_t)stream->nonce, (uint32_t)(stream->nonce >> 32)};
        memcpy(x[0], input, sizeof(x[0]));
        memcpy(x[1], input, sizeof(x[1]));
        /* An even number and the next: there is no carry. */
        x[1][3][0]++;
        /* Each step of a block waits for the step before, so a second block is almost free. */
        for (int round = 0; round < ROUNDS; round += 2) {
                double_round(x[0]);
                double_round(x[1]);
        }
        for (unsigned int i = 0; i < 4; i++) {
                x[0][i] += input[i];
                x[1][i] += input[i];
        }
        x[1][3][0]++;
        _Static_assert(sizeof(x) == sizeof(stream->draws), "blocks fill the draws");
        memcpy(stream->draws, x, sizeof(x));
        stream->block += RANDOM_BLOCKS;
        stream->left = RANDOM_DRAWS;
}
