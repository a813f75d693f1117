/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The table of S3.5: orders and objects a slab of kmalloc's sizes, at the default bounds and 4 KiB
 * pages.
 */
#ifndef UNIT_ORDER_ROWS_H
#define UNIT_ORDER_ROWS_H

#include <stdint.h>

enum { ORDER_COLUMNS = 4 };

/* A column's CPUs, and the least number of objects that they make (S3-13). */
static const struct {
        unsigned int cpus;
        unsigned int min_objects;
} order_columns[ORDER_COLUMNS] = {{1, 8}, {8, 20}, {64, 32}, {256, 40}};

static const struct {
        uint32_t size;
        struct {
                unsigned int order, objects;
        } of[ORDER_COLUMNS];
} order_rows[] = {
        {8, {{0, 512}, {0, 512}, {0, 512}, {0, 512}}},
        {32, {{0, 128}, {0, 128}, {0, 128}, {0, 128}}},
        {64, {{0, 64}, {0, 64}, {0, 64}, {0, 64}}},
        {96, {{0, 42}, {0, 42}, {0, 42}, {0, 42}}},
        {128, {{0, 32}, {0, 32}, {0, 32}, {1, 64}}},
        {192, {{0, 21}, {0, 21}, {1, 42}, {1, 42}}},
        {256, {{0, 16}, {1, 32}, {1, 32}, {2, 64}}},
        {512, {{0, 8}, {2, 32}, {2, 32}, {3, 64}}},
        {1024, {{1, 8}, {3, 32}, {3, 32}, {3, 32}}},
        {2048, {{2, 8}, {3, 16}, {3, 16}, {3, 16}}},
        {4096, {{3, 8}, {3, 8}, {3, 8}, {3, 8}}},
        {8192, {{3, 4}, {3, 4}, {3, 4}, {3, 4}}},
};

#endif
