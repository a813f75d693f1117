/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The figures that were printed with the patch that split SLOB's list (S7.6), one unit for
 * all: bytes. The mail's own two blocks differ in it (S7-52).
 */
#ifndef KMEM_ENGINES_SLOB_STATISTICS_H
#define KMEM_ENGINES_SLOB_STATISTICS_H

#include "engines/slob/slob.h"

/* One list of pages with free units. */
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
        uint64_t big_pages;  /* pages of those that live */
        uint64_t total;      /* pages: SLOB's and big ones */
        uint64_t used;       /* pages the same bytes would fill without fragments */
};

/* Exact, at one moment: walks all free blocks under slob_lock. */
KMEM_HIDDEN void slob_statistics(struct slob_statistics *statistics);

/* Those of one list, under slob_lock; walks its free blocks. */
KMEM_HIDDEN void slob_list_figures_locked(unsigned int list, struct slob_list_figures *figures);

/*
 * Writes them to a file descriptor, as lines that begin with #: list lines first, then in the
 * mail's order. Nothing if no cache of this engine was ever made. Allocates nothing.
 */
KMEM_HIDDEN void slob_report(int file);

#endif
