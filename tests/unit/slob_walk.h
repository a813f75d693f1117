/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Walks every SLOB page and checks the invariants of engines/slob/slob.h.
 */
#ifndef KMEM_TESTS_SLOB_WALK_H
#define KMEM_TESTS_SLOB_WALK_H

#include "engines/slob/block.h"

struct slob_walk {
        size_t pages;
        size_t blocks;      /* handed out */
        size_t big_objects; /* with pages of their own */
        size_t big_pages;   /* pages of big_objects */
        size_t free_bytes;
        size_t fragments;
        size_t biggest;  /* bytes */
        size_t touching; /* free blocks that touch the next free block */
};

/* Dies with a message and the page's number if an invariant is broken. Nobody may allocate. */
void slob_walk(struct slob_walk *walk);

/* The page an address lies in. */
struct page *page_of(const void *address);

#endif
