/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* How much of a range is resident, by a look that touches no page. */
#ifndef KMEM_TESTS_RESIDENT_H
#define KMEM_TESTS_RESIDENT_H

#include "lang/compiler.h"
#include "machine/system.h"

#include <sys/mman.h>

/* Bytes of the resident pages of a range that begins with a page of the system; SIZE_MAX if part of it is not mapped. */
static inline size_t resident_bytes(const void *start, size_t bytes)
{
        unsigned char resident[256];
        size_t page = system_page_bytes();
        size_t pages = bytes / page;
        size_t count = 0;

        for (size_t at = 0; at < pages; at += sizeof(resident)) {
                size_t part = min_of(pages - at, sizeof(resident));

                if (mincore((char *)(uintptr_t)start + at * page, part * page, resident))
                        return SIZE_MAX;
                for (size_t i = 0; i < part; i++)
                        count += resident[i] & 1;
        }
        return count * page;
}

#endif
