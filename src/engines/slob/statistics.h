/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The figures that were printed with the patch that split SLOB's list (S7.6), all sizes in bytes.
 * The mail's own two blocks of figures use different units (S7-52).
 */
#ifndef KMEM_ENGINES_SLOB_STATISTICS_H
#define KMEM_ENGINES_SLOB_STATISTICS_H

#include "engines/slob/slob.h"

/* A list of pages with free units. */
struct slob_list_figures {
        uint64_t pages;
        uint64_t unused;    /* free bytes in them */
        uint64_t biggest;   /* bytes of the largest free block */
        uint64_t fragments; /* free blocks */
};

struct slob_statistics {
        unsigned int lists;
        struct slob_list_figures list[SLOB_LISTS_MAX];
        struct slob_counts counts;
        uint64_t full_pages; /* SLOB pages on no list */
        uint64_t big;        /* blocks of whole pages handed out, cumulative */
        uint64_t big_pages;  /* pages of the blocks of whole pages in use */
        uint64_t total;      /* pages: SLOB's and big_pages */
        uint64_t used;       /* pages that all handed-out bytes would fill without fragments */
};

/* Exact, at a single moment: walks all free blocks under slob_lock. */
KMEM_HIDDEN void slob_statistics(struct slob_statistics *statistics);

/* The figures of a list, under slob_lock; walks its free blocks. */
KMEM_HIDDEN void slob_list_figures_locked(unsigned int list, struct slob_list_figures *figures);

/*
 * Writes the figures to a file descriptor, as lines that begin with #: list lines first, then in
 * the mail's order. Nothing if no cache of this engine was ever made. Allocates nothing.
 */
KMEM_HIDDEN void slob_report(int file);

#endif
