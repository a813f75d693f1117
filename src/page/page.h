/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Pages: the process's only reservation of address space, the page map, page descriptors and the
 * runs of free pages. Pages are 4 KiB (PAGE) and are named by page number, counted from the start
 * of the heap. Page 0 is never handed out, so page number 0 means "none" in links.
 *
 * Three tables run beside the heap and become accessible in step with it at the frontier:
 * page map (16 bits a page), descriptors (32 bytes a page), and the touched bitmap.
 *
 * Invariants:
 *  PAGE-1  A page belongs to a single owner: a run of free pages, a freed block that is kept
 *          (KEPT-1), a block handed out, the room beyond the frontier. Its NUMA node follows from
 *          its place (zone.h).
 *  PAGE-2  The descriptor of a block's first page tells the kind of the block. Descriptors of the
 *          other pages of a block never say PAGE_SLAB or PAGE_LARGE, so an address is the start of
 *          a large block if and only if its own descriptor says PAGE_LARGE.
 *  PAGE-3  A page map entry is non-zero only while the page belongs to a slab, and is so in each page
 *          in which an object starts.
 *  PAGE-4  A free page with a clear touched bit reads as zero.
 */
#ifndef KMEM_PAGE_PAGE_H
#define KMEM_PAGE_PAGE_H

#include "lang/atomic.h"
#include "lang/bits.h"
#include "machine/lock.h"

enum {
        ORDER_MAX = 10, /* the largest order of a slab, 4 MiB; the heap grows by as much */
        CHUNK_PAGES = 1 << ORDER_MAX,
        /*
         * Accessible zeroed memory directly in front of the page map, from pages_init on. The
         * per-CPU layer keeps its tables there, so that a single register reaches them and the map.
         */
        HEAP_FRONT_BYTES = 128 << 10,
};

enum page_kind {
        PAGE_UNUSED = 0, /* not the first page of anything */
        PAGE_FREE,       /* first page of a run of free pages */
        PAGE_FREE_END,   /* last page of a run of several */
        PAGE_SLAB,       /* first page of a slab; the fields belong to the engine */
        PAGE_LARGE,      /* first page of a block of exactly `state` pages */
};

/*
 * Descriptor of a page. Slabs use it as their slab descriptor: engines/slub/slab.h and
 * engines/slab/slab.h say which thread may touch which field of their engine's slabs.
 */
struct page {
        uint64_t state; /* slub: head, inuse, objects, frozen, tag, and behind the first page of
                               exact pages the distance from it; slab: which objects are in use,
                               or where that is kept; large: pages; free: how many of the run's
                               were touched */
        void *table;    /* slub, slab: index table, of exact pages perhaps the second page's
                               table itself; free: time freed, ms */
        uint32_t next;  /* link of the only list the block is on, page number */
        uint32_t prev;  /* link backwards; slabs on a CPU partial list: list length from here on */
        union {
                struct {
                        uint8_t kind;  /* enum page_kind; written under the zone lock or by the
                                          block's owner */
                        uint8_t order; /* order of the block, rounded up; slub: ORDER_EXACT of a
                                          slab of exact pages */
                };
                uint16_t kind_and_order; /* for readers that must see both as of a single moment */
        };
        uint8_t node;         /* NUMA node of a block handed out, by its place */
        uint8_t node_partial; /* slub: on its node's partial list, and then the home of the slot
                                 that put it there; slob: 1 on its list */
        union {
                uint32_t length; /* free: pages of the run, in its first and its last page */
                uint32_t slot;   /* slob: index of the cache that the block's object is of */
                uint32_t growth; /* large: enum large_growth */
                struct {
                        uint32_t list_objects : 24; /* slub: free objects counted when slabs joined
                                                       a CPU partial list, from here on; on a node
                                                       partial list see engines/slub/purge.c */
                        uint32_t fresh : 1; /* slub: no page was touched when the slab was made */
                        uint32_t stage : 7; /* slub: enum slab_stage, debug builds only */
                };
                struct {
                        uint16_t active; /* slab: objects handed out; under list_lock */
                        uint16_t colour; /* slab: cache lines in front of the first object */
                };
                struct {
                        uint16_t list;        /* slob: number of the page's list */
                        uint16_t malloc_room; /* slob: see engines/slob/block.h */
                };
        };
};
_Static_assert(sizeof(struct page) == 32, "descriptors are 32 bytes: 0.8% of the heap");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "page_kind_and_order");

static inline uint16_t page_kind_and_order(enum page_kind kind, unsigned int order)
{
        return (uint16_t)((unsigned int)kind | order << 8);
}

/*
 * The heap as all threads see it. base, map and pages never change after init. reserved_bytes may
 * become less, with outside to match. accessible_bytes only grows (release; free reads it relaxed,
 * which is enough because a pointer it is asked about was handed out after the growth).
 */
struct heap {
        uintptr_t base;          /* address of page 0, aligned to a chunk (4 MiB) */
        size_t accessible_bytes; /* heap memory that may be touched, from base */
        uint16_t *map;           /* page map: cache index << 4, or 0 */
        struct page *pages;      /* descriptors */
        size_t reserved_bytes;   /* address space of the heap itself */
        uintptr_t outside;       /* bits that are 0 in every distance from base in the
                                    reservation */
};
extern KMEM_HIDDEN struct heap heap;

static inline struct page *page_at(uint32_t number)
{
        return &heap.pages[number];
}

static inline uint32_t page_number(const struct page *page)
{
        return (uint32_t)(page - heap.pages);
}

static inline void *page_address(const struct page *page)
{
        return (void *)(heap.base + ((uintptr_t)page_number(page) << PAGE_SHIFT));
}

/* Whether the address lies in accessible heap memory. */
static inline bool heap_contains(const void *address)
{
        return (uintptr_t)address - heap.base < load_relaxed(&heap.accessible_bytes);
}

/* Page number of an address that heap_contains. */
static inline uint32_t address_page(const void *address)
{
        return (uint32_t)(((uintptr_t)address - heap.base) >> PAGE_SHIFT);
}

/*
 * Doubly linked list of blocks through their descriptors' next and prev (page numbers). All
 * zero is an empty list. The list's owner says which lock protects it.
 */
struct page_list {
        uint32_t first;
        uint32_t last;
        size_t length;
};

KMEM_HIDDEN void page_list_add_head(struct page_list *list, struct page *page);
KMEM_HIDDEN void page_list_add_tail(struct page_list *list, struct page *page);
KMEM_HIDDEN void page_list_remove(struct page_list *list, struct page *page);

static inline struct page *page_list_first(const struct page_list *list)
{
        return list->first ? page_at(list->first) : NULL;
}

static inline struct page *page_list_next(const struct page *page)
{
        return page->next ? page_at(page->next) : NULL;
}

/* Reserves the heap; false if not even the least reservation is granted. */
KMEM_HIDDEN bool pages_init(void);
/*
 * Gives back the part of the reservation that would not have been made under a limit of @limit
 * bytes for the address space (RLIMIT_AS), as far as the heap has not grown there. The heap does
 * not get it back.
 */
KMEM_HIDDEN void pages_fit_limit(size_t limit);
/*
 * Whether that limit is below the reservation now, because the program lowered it since: then the
 * system maps nothing more, but the heap may grow up to the limit.
 */
KMEM_HIDDEN bool pages_limit_was_lowered(void);

/*
 * Gives back the part of the reservation that is too much if the process may map @room bytes for
 * other things beside its present use, as a process that is to lock all it has mapped. False, and
 * nothing is given back, if the heap in use needs more.
 */
KMEM_HIDDEN bool pages_fit_room(size_t room);
/* All address space that is kept for the heap. */
KMEM_HIDDEN size_t pages_reserved_bytes(void);
/*
 * The part of that address space without access no longer counts as locked memory; a part that
 * becomes accessible may count.
 */
KMEM_HIDDEN void pages_unlock(void);

/*
 * A block of 2^order pages of NUMA node @node, or with NODE_ANY of the node of the calling CPU or
 * else, in the order of distance, of another node. Aligned to its size; NULL without memory there.
 * Its descriptor comes with kind PAGE_UNUSED and the other fields zero but order and node. *zero
 * tells whether the whole block is known to read as zero; zero may be NULL.
 */
KMEM_HIDDEN struct page *pages_alloc(unsigned int order, int node, bool *zero);
/*
 * Up to @count blocks of @pages each, at most a chunk's, aligned to @align_pages (a power of two),
 * linked through next. All are of a single node, and there are as many as it has; NULL only if no
 * node has any. The state of each tells how many of its pages were never touched. @one_object: each is for a single object, and perhaps only its beginning is written
 * (RUN-4).
 */
KMEM_HIDDEN struct page *pages_alloc_many(size_t pages, size_t align_pages, int node,
                                          unsigned int count, bool one_object);
/*
 * As with NODE_ANY, but exactly @count pages (1 or more, beyond a chunk too), aligned to
 * @align_pages (a power of two, at most CHUNK_PAGES). NULL also where only the last quarter of the
 * reservation is left, which is kept for slabs. *fresh receives how many were never touched; it may be NULL. Counted as
 * large blocks, until pages_free_exact.
 */
KMEM_HIDDEN struct page *pages_alloc_exact(size_t count, size_t align_pages, size_t *fresh);
/* As pages_alloc_exact, but the block reads as zero: only pages touched before are cleared. */
KMEM_HIDDEN struct page *pages_alloc_zeroed(size_t count, size_t align_pages);
/*
 * Free pages of all nodes that were touched since they were last given back; a page that changes
 * meanwhile may be counted or not.
 */
KMEM_HIDDEN size_t pages_free_touched(void);
/* Free pages of all nodes; read without locks. */
KMEM_HIDDEN size_t pages_free_count(void);
/*
 * Pages in blocks that are handed out, and free pages that were touched. Read without locks, so pages
 * that move meanwhile may be counted twice or not at all.
 */
KMEM_HIDDEN size_t pages_held(void);
/* Gives back @count pages from @page on. The page map entries must be 0 already (PAGE-3). */
KMEM_HIDDEN void pages_free(struct page *page, size_t count);
/* Gives back a whole block of pages_alloc_exact or pages_alloc_zeroed. */
KMEM_HIDDEN void pages_free_exact(struct page *page, size_t count);
/*
 * As pages_free, of blocks of @count pages each, linked through next, from page @chain on; 0: none.
 */
KMEM_HIDDEN void pages_free_chain(uint32_t chain, size_t count);
/*
 * Changes a block of pages_alloc_exact or pages_alloc_zeroed from @count pages to @new_count in
 * place. Shrinking always works; growing works if the pages behind are free. The content of added
 * pages is undefined.
 */
KMEM_HIDDEN bool pages_resize(struct page *page, size_t count, size_t new_count);

/*
 * Sets the map of @count pages from @page on: offset of the cache's pair, or 0. With 0 the words of
 * page/extra.h about the pages go too.
 */
KMEM_HIDDEN void page_map_set(const struct page *page, size_t count, uint16_t pair_offset);

/*
 * How long pages are free before they go back to the system unasked: option purge_delay, or longer
 * while pages that went back are soon wanted again.
 */
KMEM_HIDDEN uint64_t pages_delay_ms(void);
/* Gives back to the system the pages that have been free that long; called on slow paths. */
KMEM_HIDDEN void pages_purge_due(void);
/*
 * Gives back all free pages that are due, in runs of every length. The reclaim thread calls it,
 * because for it a system call for a few pages is not too dear. Returns bytes given back.
 */
KMEM_HIDDEN size_t pages_purge_idle(void);
/* Gives back every free page at once, except for @keep_bytes. Returns bytes given back. */
KMEM_HIDDEN size_t pages_purge_all(size_t keep_bytes);

struct page_counts {
        size_t accessible_pages;   /* below the frontier */
        size_t free_pages;         /* in runs */
        size_t free_touched_pages; /* free pages that are not known to be given back */
        size_t purged_pages;       /* cumulative */
        size_t used_pages;         /* accessible less free */
        size_t large_handed_out;   /* blocks of exact pages, cumulative */
        size_t large_blocks;       /* blocks of exact pages that are not freed */
        size_t large_pages;        /* pages of large_blocks */
};
KMEM_HIDDEN void pages_count(struct page_counts *counts);
/* The figures of a node's zone; @node is below system_nodes(). */
KMEM_HIDDEN void pages_count_node(unsigned int node, struct page_counts *counts);

/* Shows all figures of pages and large blocks to other processes; once the registry is made. */
KMEM_HIDDEN void pages_show(void);

/* For fork handlers: all locks of the zones, outermost first. */
KMEM_HIDDEN void pages_each_lock(void (*act)(struct lock *lock));

#endif
