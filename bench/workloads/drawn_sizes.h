/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The sizes of `drawn`: a table of 4,096 that is drawn once from a distribution, which every thread
 * then reads at random places. So a size takes equally long with each distribution, and the mean is
 * known before the first block.
 */
#ifndef KMEM_BENCH_DRAWN_SIZES_H
#define KMEM_BENCH_DRAWN_SIZES_H

#include "size_tables.h"
#include "workload.h"

enum { DRAWN_SIZES = 4096 };

/* In the order of the words of `sizes=`; the recorded programs follow, as in size_tables. */
enum size_kind { SIZES_CONSTANT, SIZES_UNIFORM, SIZES_POWER, SIZES_DOUBLINGS, SIZES_RECORDED };

/* Bounded Pareto with shape 1: about half of the sizes are below twice the least. */
static inline size_t size_power(uint64_t *random, size_t least, size_t most)
{
        double u = (double)(random_next(random) >> 11) * 0x1p-53;

        return (size_t)((double)least / (1 - u * (1 - (double)least / (double)most)));
}

/* From least on, each doubling as likely as the next; the last one may be cut at most. */
static inline size_t size_doublings(uint64_t *random, size_t least, size_t most)
{
        unsigned int doublings = 1;
        size_t low;

        while (least << doublings < most)
                doublings++;
        low = least << random_below(random, doublings);
        return low + random_below(random, (low < most - low ? low : most - low) + 1);
}

static inline size_t size_recorded(uint64_t *random, const struct size_share *shares)
{
        size_t place = random_below(random, SIZE_SHARES);

        while (place >= shares->share) {
                place -= shares->share;
                shares++;
        }
        return shares->bytes;
}

static inline size_t size_of_kind(uint64_t *random, unsigned int kind, size_t least, size_t most)
{
        size_t bytes;

        switch (kind) {
        case SIZES_CONSTANT:
                return least;
        case SIZES_UNIFORM:
                return least + random_below(random, most - least + 1);
        case SIZES_POWER:
                return size_power(random, least, most);
        case SIZES_DOUBLINGS:
                return size_doublings(random, least, most);
        default:
                bytes = size_recorded(random, size_tables[kind - SIZES_RECORDED]);
                return bytes < least ? least : bytes > most ? most : bytes;
        }
}

/* Fills the table and returns the mean size in bytes. */
static inline size_t sizes_draw(uint32_t *sizes, uint64_t seed, unsigned int kind, size_t least,
                                size_t most)
{
        uint64_t sum = 0;

        for (size_t i = 0; i < DRAWN_SIZES; i++) {
                sizes[i] = (uint32_t)size_of_kind(&seed, kind, least, most);
                sum += sizes[i];
        }
        return (size_t)(sum / DRAWN_SIZES);
}

#endif
