/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The library's own records, as tests count them. */
#ifndef TESTS_UNIT_RECORD_BYTES_H
#define TESTS_UNIT_RECORD_BYTES_H

#include "base/metadata.h"
#include "engines/engine.h"
#include "heap/heap.h"

/* Bytes in use, but for the records of destroyed caches, which wait for caches to come (heap/cache.c). */
static inline size_t record_bytes(void)
{
        return metadata_used_bytes() - caches_retired * metadata_round(cache_record_bytes());
}

#endif
