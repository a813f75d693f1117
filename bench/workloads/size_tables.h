/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef KMEM_BENCH_SIZE_TABLES_H
#define KMEM_BENCH_SIZE_TABLES_H
#include <stdint.h>
enum { SIZE_SHARES = 1024 };
struct size_share { uint32_t bytes; uint16_t share; };
static const struct size_share size_tables[5][2] = {{{32,1024}},{{48,1024}},{{64,1024}},{{64,1024}},{{64,1024}}};
#endif
