/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The SLOB back end: blocks of any size, side by side in pages that all caches share (S7).
 *
 * Nothing rests between a caller and its pages: no sheaves, no per-CPU state, no reserve. SLOB is
 * small because sizes are exact but for the unit of 2 bytes. It is slow because every operation
 * walks lists under a single lock.
 *
 * A SLOB page is a single page with descriptor kind PAGE_SLAB and the page map entry of
 * slob_shared. Its descriptor holds in `state` the amount and place of free units (block.h), in
 * `table` the marks of starts of blocks (marks.h), in `list` the number of its list, and in
 * `node_partial` whether it is on that list. An object of a page or more has a block of pages of
 * its own instead, with equal kind and entry but no table; `slot` is then the cache's index.
 *
 * Invariants, all under slob_lock:
 *  SLOB-1  Free blocks and handed-out blocks tile a SLOB page without gaps. Free blocks are
 *          linked in ascending order (S7-02). No two of them touch, unless slob_compat=2.6.24
 *          left them so (S7-22).
 *  SLOB-2  A handed-out block starts at a multiple of 8 bytes and has its start marked; a block of
 *          kmalloc has a mark of its own and begins with a header. Nothing else is marked.
 *  SLOB-3  A page with free units is on the list that its blocks' sizes choose (S7-30), a full page
 *          on no list, and a page without blocks does not exist (S7-20).
 *  SLOB-4  The kind and map entry of a page are set before any thread can have a pointer into it
 *          and cleared under the lock before it is given back. So an address is ours if both say so
 *          under the lock, regardless of an earlier look without it.
 *
 * Locks: slob_lock nests inside cache_mutex and drain_mutex, and nothing is taken inside it:
 * pages and marks come and go, and constructors run, while it is not held (S7-12).
 */
#ifndef KMEM_ENGINES_SLOB_SLOB_H
#define KMEM_ENGINES_SLOB_SLOB_H

#include "machine/message.h"
#include "base/options.h"
#include "engines/engine.h"
#include "kmem.h"

/* Sizes of free blocks and offsets in a page, as they stand in a unit (S7-01). */
#if PAGE_SHIFT < 16
typedef int16_t slob_unit;
#else
typedef int32_t slob_unit;
#endif

enum {
        SLOB_UNIT = sizeof(slob_unit),      /* bytes; block sizes and offsets count units */
        PAGE_UNITS = PAGE_SIZE / SLOB_UNIT, /* as an offset: none, or the end of a page's list */
        SLOB_ALIGN = 8,                     /* the slab minimum alignment (S4-21) */
        KMALLOC_HEADER = 8,                 /* bytes in front of a kmalloc block (S7-40) */
        SLOB_LISTS_MAX = 9,
};

/* SLOB's own record of a cache, beside struct kmem_cache. Under slob_lock. */
struct slob_cache {
        uint64_t taken;           /* objects handed out, cumulative */
        uint64_t given;           /* objects that came back, cumulative */
        struct kmem_cache *cache; /* the cache, for its figures */
        uint64_t bytes;           /* in its blocks, headers, rounding and idle objects included */
        void *idle;      /* SLAB_TYPESAFE_BY_RCU: freed objects, kept for this cache alone */
        uint16_t number; /* number in the headers of its blocks, if its size class has served; set
                            once */
};

/* Counters of S7.6. Sizes are in bytes, never in units (S7-52). Under slob_lock. */
struct slob_counts {
        uint64_t pages;       /* SLOB pages */
        uint64_t allocs;      /* blocks handed out from SLOB pages, cumulative */
        uint64_t frees;       /* blocks that came back to them, cumulative */
        uint64_t allocated;   /* bytes in handed-out blocks, headers and rounding included */
        uint64_t page_scans;  /* pages looked at that could not serve a request */
        uint64_t block_scans; /* free blocks looked at for a request */
        uint64_t kmallocs;    /* blocks of kmalloc from SLOB pages, cumulative */
        uint64_t kmalloc_frees;
        uint64_t kmalloc_allocated; /* bytes they were asked for, cumulative */
        uint64_t kmalloc_overhead;  /* bytes of header and rounding on top, cumulative */
        uint64_t big_objects;       /* objects with pages of their own, cumulative */
        uint64_t big_pages;         /* pages of big objects in use */
};
extern KMEM_HIDDEN struct slob_counts slob_counts;

/* Stands in the page map for all pages of the back end. */
extern KMEM_HIDDEN struct kmem_cache slob_shared;

/* A block that is wanted. */
struct slob_request {
        uint32_t bytes;           /* header included; chooses the list */
        uint32_t align;           /* alignment of the address behind the header; at least
                                     SLOB_ALIGN */
        uint32_t header;          /* bytes: KMALLOC_HEADER or 0 */
        struct slob_cache *owner; /* the cache with the counters that change */
};

/* Whether it is kmalloc's with the alignment of malloc, or more. */
static inline bool slob_is_of_malloc(const struct slob_request *request)
{
        return request->header && request->align >= 16;
}

static inline uint32_t slob_units(size_t bytes)
{
        return (uint32_t)((bytes + SLOB_UNIT - 1) / SLOB_UNIT);
}

/* Shows the figures to other processes; under slob_lock, as the functions below. */
static inline void slob_show(struct slob_cache *own)
{
        struct registry_cache *figures = load_acquire(&own->cache->figures);

        if (figures) {
                store_relaxed(&figures->taken, own->taken);
                store_relaxed(&figures->given, own->given);
        }
}

static inline void slob_count_taken(struct slob_cache *own)
{
        own->taken++;
        slob_show(own);
}

static inline void slob_count_given(struct slob_cache *own)
{
        own->given++;
        slob_show(own);
}

/* Counts a page more or less. */
static inline void slob_count_pages(int change)
{
        struct registry_node *figures = load_acquire(&slob_shared.node[0].figures);

        slob_counts.pages += (uint64_t)(int64_t)change;
        if (figures)
                store_relaxed(&figures->slabs, slob_counts.pages);
}

static inline struct slob_cache *slob_cache(const struct kmem_cache *cache)
{
        return cache->engine_data;
}

/* lists.c: the lists of pages with free units */

extern KMEM_HIDDEN struct page_list slob_lists[SLOB_LISTS_MAX];
extern KMEM_HIDDEN unsigned int slob_list_count; /* 0 before slob_lists_init */
/* Sets the lists up from option slob_breaks; there must be no SLOB page yet. */
KMEM_HIDDEN void slob_lists_init(void);
/* The list that blocks of this size live on (S7.4). */
KMEM_HIDDEN unsigned int slob_list_of(uint32_t bytes);
KMEM_HIDDEN void slob_list_add_locked(struct page *page);
KMEM_HIDDEN void slob_list_remove_locked(struct page *page);
/* Makes a page of the list its first; the pages before it move behind the last (S7-11). */
KMEM_HIDDEN void slob_list_rotate_locked(struct page_list *list, struct page *page);

/* Takes a page out of its list's figures before its state changes, or back into them afterwards. */
KMEM_HIDDEN void slob_list_count_locked(const struct page *page, int change);
/* False: no page of the list has a block that is large enough. */
KMEM_HIDDEN bool slob_list_may_serve_locked(unsigned int list, const struct slob_request *request);
/* How many free blocks there are in pages with @units free units or more. */
KMEM_HIDDEN uint64_t slob_list_fragments_locked(unsigned int list, uint32_t units);

/* tree.c: the pages of lists, to be found by their number of free units */

KMEM_HIDDEN void slob_trees_init(void);
/* Adds the page in front of @next, the list's first page; NULL: the list was empty. */
KMEM_HIDDEN void slob_tree_add_locked(struct page *page, const struct page *next);
KMEM_HIDDEN void slob_tree_remove_locked(struct page *page);
/* After a page of a list got more free units. */
KMEM_HIDDEN void slob_tree_raise_locked(struct page *page);
/*
 * The tree's first page, or the first behind @page, with @units free units; NULL: none up to its
 * end.
 */
KMEM_HIDDEN struct page *slob_tree_first_locked(unsigned int list, uint32_t units);
KMEM_HIDDEN struct page *slob_tree_next_locked(const struct page *page, uint32_t units);
/* How many pages of the tree come before @page. */
KMEM_HIDDEN uint32_t slob_tree_place_locked(const struct page *page);

/* fit.c: blocks in and out of a page */

/* The free blocks on both sides of a place in a page. */
struct slob_gap {
        uint32_t before; /* offset of the last free block that starts at or before it */
        uint32_t next;   /* offset of the first free block that starts behind; PAGE_UNITS: none */
};

/* Takes the first block that fits (S7-10); its offset, or PAGE_UNITS. */
KMEM_HIDDEN uint32_t slob_take_locked(struct page *page, const struct slob_request *request);
KMEM_HIDDEN struct slob_gap slob_gap_locked(const struct page *page, uint32_t at);
/* Puts a handed-out block back and merges it with its neighbours (S7-22). */
KMEM_HIDDEN void slob_put_locked(struct page *page, struct slob_gap gap, uint32_t at,
                                 uint32_t units);

/* alloc.c: blocks of SLOB pages */

/* The start of a block, marked, its header not yet written; NULL without memory. */
KMEM_HIDDEN void *slob_alloc(const struct slob_request *request);
/* The SLOB page or big object's first page that holds the address, or NULL. */
KMEM_HIDDEN struct page *slob_page_locked(const void *address);
/*
 * Takes back the block of exactly @bytes that starts at @start in @page. False if the block there
 * has another size; then nothing happened. *empty becomes the page if it has to go to
 * slob_page_free once the lock is dropped, else NULL.
 */
KMEM_HIDDEN bool slob_free_locked(struct page *page, void *start, uint32_t bytes,
                                  struct slob_cache *owner, struct page **empty);
KMEM_HIDDEN void slob_page_free(struct page *page);
/* Whether the handed-out block that starts at @start in @page has exactly @bytes. */
KMEM_HIDDEN bool slob_has_size_locked(const struct page *page, const void *start, uint32_t bytes);

enum slob_start {
        SLOB_OBJECT,  /* an object of a cache starts there */
        SLOB_KMALLOC, /* the memory behind a kmalloc header starts there */
        SLOB_FREE,    /* a free block covers it */
        SLOB_INSIDE,  /* a handed-out block covers it, but does not start there */
};
/* The kind of start at an address that slob_page_locked found @page for. */
KMEM_HIDDEN enum slob_start slob_start_locked(const struct page *page, const void *address);

/* object.c: objects of caches */

KMEM_HIDDEN unsigned int slob_take(struct kmem_cache *cache, struct engine_slot *slot,
                                   void **objects, unsigned int count);
/*
 * Whether an object starts at an address of @page that may be the cache's: it has the cache's size.
 */
KMEM_HIDDEN bool slob_is_own_locked(const struct kmem_cache *cache, const struct page *page,
                                    const void *address);
/* Frees the object to this cache: NULL, or the reason why it cannot. */
KMEM_HIDDEN const char *slob_free_object(struct kmem_cache *cache, void *object);
/* Gives back the freed objects that a SLAB_TYPESAFE_BY_RCU cache kept. */
KMEM_HIDDEN void slob_free_idle(struct kmem_cache *cache);
/* Bytes behind the object that a SLAB_TYPESAFE_BY_RCU cache needs. */
KMEM_HIDDEN uint32_t slob_footer_bytes(void);

/* kmalloc.c */

/* The engine's alloc_bytes, usable_bytes and block_bytes. */
KMEM_HIDDEN void *slob_alloc_bytes(struct kmem_cache *cache, size_t size, size_t align, bool zero);
KMEM_HIDDEN size_t slob_usable_bytes(size_t size, size_t align);
KMEM_HIDDEN size_t slob_block_bytes(const void *address);
/* Frees the block: NULL, or the reason why it cannot. */
KMEM_HIDDEN const char *slob_kfree(void *block);

#endif
