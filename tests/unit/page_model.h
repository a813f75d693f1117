/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A model of the page layer: the owner of each page, beside the real thing, and a walk of all
 * lists, bits and descriptors that compares the two.
 */
#ifndef KMEM_TESTS_PAGE_MODEL_H
#define KMEM_TESTS_PAGE_MODEL_H

#include "page/zone.h"

/* Owner of each page, 0 for none; large enough for the heaps that tests reserve. */
enum { MODEL_PAGES = 1 << 17 };
extern uint32_t model_owner[MODEL_PAGES];

/* An empty heap; the address space of the heap before is given back. */
bool heap_renew(size_t reserve);
/*
 * For cases that count resident pages: where the system makes huge pages of all memory, a touched
 * page makes 2 MiB resident, and the system may fill holes that a purge has left.
 */
void heap_keep_pages_small(void);

static inline bool page_is_touched(uint32_t number)
{
        return frontier.touched_bits[number / 64].touched >> number % 64 & 1;
}

static inline bool page_was_begun(uint32_t number)
{
        return frontier.touched_bits[number / 64].begun >> number % 64 & 1;
}

static inline bool page_was_packed(uint32_t number)
{
        return frontier.touched_bits[number / 64].packed >> number % 64 & 1;
}

/* Writes the owner into each page, and checks that it is still there. */
void model_take(struct page *page, size_t count, uint32_t owner);
void model_check(struct page *page, size_t count, uint32_t owner);
/* Checks, and forgets the pages. */
void model_drop(struct page *page, size_t count, uint32_t owner);

bool range_is_zero(const void *start, size_t bytes);

/*
 * PAGE-1 to PAGE-4, ZONE-1, RUN-1 to RUN-3 and the counters of each zone; pages of no owner must be
 * free.
 */
void model_check_all(void);

/* Mappings that the process has. */
size_t mappings_count(void);

#endif
