/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The interface between the per-CPU layer and the back ends, and the record of a cache.
 *
 * A back end keeps slabs. The per-CPU layer asks it for a sheaf's worth of objects at a time
 * and gives objects back in like amounts; neither side knows the other's structures.
 */
#ifndef KMEM_ENGINES_ENGINE_H
#define KMEM_ENGINES_ENGINE_H

/* In angle brackets, so that the simulator's header is found where its folder comes first. */
#include <machine/lock.h>

#include "lang/list.h"
#include "registry/registry.h"
#include "machine/system.h"
#include "page/page.h"

enum {
        CACHES_MAX = 4096, /* indexes 1..4095; index 0 is "no cache" */
        PAIR_SHIFT = 4,    /* a pair of sheaf pointers is 16 bytes */
        CACHE_NAME_BYTES = 48,
        REMOTE_NODE_DEFRAG_RATIO = 1000, /* the default (S12-07) */
        ENGINE_NO_OBJECT = 0xffff,       /* an empty CPU freelist */
        ENGINE_HOMES = 255,              /* slots whose numbers differ by so much are alike */
};

#define FREE_POINTER_ANYWHERE UINT32_MAX

/*
 * The record that a back end keeps for each slot of a cache (the kernel's per-CPU record, S1-03).
 * The lock is the slot cache lock; it replaces the kernel's local lock and is contended only when a
 * thread migrates in the middle of a slow path.
 */
struct engine_slot {
        struct lock lock;
        uint32_t freelist; /* index of the first object on the CPU freelist, or
                                ENGINE_NO_OBJECT */
        uint32_t carved;   /* objects of the CPU slab below this index have been handed out or
                                linked; room from here on exists only in a CPU slab */
        uint32_t partial;  /* CPU partial list, page number of its head, 0 empty; stored atomically,
                              as percpu_activity reads it and the next without the lock */
        uint32_t home; /* slub: 1 to ENGINE_HOMES, by the slot's number: node_partial of the slabs
                              that the slot puts on a node's list */
        struct page *slab; /* CPU slab or NULL */
        uint64_t taken;    /* objects that left the back end through this slot, cumulative */
        uint64_t given;    /* objects that came back through it, cumulative */
        struct slub_counters *counters; /* slub: the slot's statistics; NULL: not counted */
        struct registry_slot *figures;  /* taken and given for other processes to see, or NULL */
};

/* A cache's slabs on a NUMA node (S1-05). */
struct engine_node {
        struct lock list_lock;
        struct page_list partial;      /* NODE partial slabs, head first; under list_lock */
        struct page_list full;         /* slub: FULL slabs of debug caches; under list_lock */
        uint64_t disabled;             /* slub: slabs that debugging took out; under list_lock */
        uint64_t slabs;                /* all slabs of the node; atomic adds */
        uint64_t objects;              /* capacity of all slabs; atomic adds */
        struct registry_node *figures; /* slabs, objects and lists for other processes to see, or
                                          NULL */
        uint64_t shrinks;    /* slub: list_lock acquisitions by shrink, by no slot (T20) */
        uint32_t purge_next; /* slub: partial slab that purging goes on with, page number, 0:
                                       none; under list_lock */
};

/* Slub: after a slab of the node has come or gone. */
static inline void node_show_slabs(struct engine_node *node)
{
        struct registry_node *figures;

        fence_behind_change();
        figures = load_acquire(&node->figures);
        while (figures) {
                uint64_t slabs = load_relaxed(&node->slabs);
                uint64_t objects = load_relaxed(&node->objects);

                /* As registry_show, for two values with a single fence. */
                store_relaxed(&figures->objects, objects);
                __atomic_exchange_n(&figures->slabs, slabs, __ATOMIC_SEQ_CST);
                fence_behind_change();
                if (load_relaxed(&node->slabs) == slabs && load_relaxed(&node->objects) == objects)
                        break;
        }
}

static inline void node_show_partial_locked(struct engine_node *node)
{
        struct registry_node *figures = load_acquire(&node->figures);

        if (figures)
                store_relaxed(&figures->partial, (uint64_t)node->partial.length);
}

/* Counts objects that leave a back end; the slot cache lock is held. */
static inline void slot_count_taken(struct engine_slot *slot, uint64_t objects)
{
        struct registry_slot *figures = load_acquire(&slot->figures);

        add_owned(&slot->taken, objects);
        if (figures)
                store_relaxed(&figures->taken, slot->taken);
}

/* As slot_count_taken, without the lock. */
static inline void slot_count_taken_unlocked(struct engine_slot *slot, uint64_t objects)
{
        struct registry_slot *figures;

        add_relaxed(&slot->taken, objects);
        fence_behind_change();
        figures = load_acquire(&slot->figures);
        if (figures)
                registry_show(&figures->taken, &slot->taken);
}

/* Counts objects that come back; without a lock. */
static inline void slot_count_given(struct engine_slot *slot, uint64_t objects)
{
        struct registry_slot *figures;

        add_relaxed(&slot->given, objects);
        fence_behind_change();
        figures = load_acquire(&slot->figures);
        if (figures)
                registry_show(&figures->given, &slot->given);
}

/* How far reclaim has come with a cache that no thread uses (heap/reclaim.c); under cache_mutex. */
enum quiet_stage { QUIET_NEW, QUIET_SHRUNK, QUIET_PURGED };
struct cache_quiet {
        uint64_t activity; /* percpu_activity at its last change */
        uint64_t since_ms; /* time at which that was seen */
        enum quiet_stage stage;
        unsigned int node; /* QUIET_SHRUNK: the node that is being purged */
};

struct engine;
struct barn;
struct slub_counters;

struct kmem_cache {
        uint32_t fast_offset;  /* the pair that calls with the cache use, inlined ones too:
                                  pair_offset, or another pair if frees by address are looked at
                                  (cache_looks_at_frees, percpu.c) */
        uint32_t pair_offset;  /* index << PAIR_SHIFT; the page map's value, for frees by address */
        uint32_t sheaf_offset; /* the pair with the sheaves: fast_offset, or in a closed cache the
                                  pair that only slow paths know; relaxed */
        uint32_t object_size;  /* bytes that the user asked for; grows with aliases */
        uint32_t usable_bytes; /* bytes of each object, as malloc_usable_size returns them; 0: ask
                                  the engine, debugging or marks (percpu/handed.h). Lies beside
                                  pair_offset, which finds the cache */
        const struct engine *engine;
        uint32_t size; /* stride: object size with alignment (S4-08) */
        uint32_t align;
        uint32_t flags;            /* SLAB_* */
        uint32_t sheaf_capacity;   /* objects a new sheaf holds; 0: no sheaves. May change at any
                                      time, relaxed; a sheaf keeps the capacity it was made with */
        uint32_t sheaf_asked;      /* objects that the creator wants a sheaf to hold at least */
        uint32_t sheaf_room;       /* objects that each sheaf's memory has room for, which is the
                                      most that the capacity may become; 0 with CACHING_ARRAY, where
                                      each array has room for its own capacity */
        uint32_t stock_max;        /* full sheaves a slot may keep of this cache */
        uint32_t stock_empty_max;  /* and empty ones */
        uint32_t start_step;       /* least distance of the starts of two objects, bytes */
        uint32_t start_reciprocal; /* to divide an offset in a page by start_step */
        void (*ctor)(void *object);
        uint32_t useroffset;
        uint32_t usersize;

        /* slub (S1-06) */
        uint64_t reciprocal; /* to divide an offset in a slab by size */
        uint32_t slab_mask;  /* bits of an address, which the page map knows, that say where in its
                                   slab it lies; 0: not all slabs are alike, or aligned to their
                                   size, or begin with an object, so that only the engine knows; relaxed, and 0 for good
                                   before the first slab that is different is made */
        uint32_t order;      /* preferred order */
        uint32_t objects;    /* objects of a slab of that order */
        uint32_t min_order;  /* fallback when memory is short */
        uint32_t min_order_objects;
        uint32_t slab_pages;  /* pages of each slab; 0: as many as its order says, aligned to its
                                 size */
        bool no_cpu_slabs;    /* option cpu_slabs=0 */
        bool has_cpu_partial; /* decided when the cache is made; the limits may still be 0 */
        bool count_objects;   /* CPU partial lists are limited by objects, not by slabs */
        bool freeze_eagerly;  /* slabs on them are frozen */
        uint32_t cpu_partial; /* limit in objects, as the user sets it (S2-11) */
        uint32_t cpu_partial_slabs;
        uint32_t counters_bytes; /* size of a slot's statistics; 0: not counted */
        size_t min_partial;      /* empty slabs kept while fewer partial slabs exist (S1-35) */
        uint32_t inuse;          /* end of an object and of its right red zone (S4-04) */
        uint32_t red_left_pad;   /* bytes in front of each object (S4-07) */
        uint32_t free_pointer;   /* debug caches: its offset in an object (S4-05); until setup the
                                    offset that the creator asks for, or FREE_POINTER_ANYWHERE */
        uint64_t debug_errors;   /* reports and repairs so far (S10.5) */

        /* slab (S6-04); objects, order and reciprocal serve it too */
        uint32_t batchcount; /* objects that a refill or a flush of an array moves; relaxed */
        uint32_t shared;     /* capacity of a node's shared array, in batchcounts; under
                                      cache_mutex */

        uint32_t remote_node_defrag_ratio; /* in tenths of a percent (S12-07); relaxed */
        uint64_t defrag_random;            /* state of the random numbers that decide by it;
                                              relaxed */

        /* Attributes that are kept for parts that do not exist yet; under cache_mutex. */
        bool failslab;    /* its requests fail by option failslab; relaxed */
        bool skip_kfence; /* its objects are no samples of the profile; relaxed */
        /* One in how many allocations is guarded (profile/guard.h); 0: none; relaxed. */
        uint32_t guard_rate;
        /* Bytes of a block at rest that are taken to have no pages (REST-3, percpu/rest.h); relaxed. */
        uint32_t untouched;
        uint32_t rest_counts; /* that one of its blocks began; relaxed */
        /* sheaf_capacity is the library's choice for the blocks of now (REST-4); under cache_mutex. */
        bool capacity_follows;

        bool sheaves_as_7_0; /* option sheaf_rule: the kernel's numbers and ways of sheaves and barns
                                (S13) */
        bool is_class;       /* of malloc and kmalloc, whatever flags other caches have */
        bool marks_freed; /* free objects are marked (percpu/freed.h): classes of kmalloc and malloc */
        bool looks_at_nodes; /* option remote_frees: objects of other nodes pass the sheaves */
        bool counts_sheaves; /* its sheaves have statistics, so all its calls take slow paths */

        void *engine_data; /* the back end's own record, NULL at first */
        struct barn *barn; /* an array: a barn for each node */
        struct cache_quiet quiet;
        uint64_t birth;                 /* the count of caches made so far; a newer cache has a
                                           greater number */
        uint32_t references;            /* 1 + aliases; under cache_mutex */
        struct registry_cache *figures; /* for other processes to see, or NULL */
        struct list list;               /* all caches, newest first; under cache_mutex */
        char name[CACHE_NAME_BYTES];

        /* Last, because a record that is allocated has room for the first system_nodes() only. */
        struct engine_node node[NODES_MAX];
};

static inline size_t cache_record_bytes(void)
{
        return offsetof(struct kmem_cache, node) + system_nodes() * sizeof(struct engine_node);
}

/* Pages of a slab with that order. */
static inline size_t pages_of_slab(const struct kmem_cache *cache, unsigned int order)
{
        return cache->slab_pages ? cache->slab_pages : order_pages(order);
}

static inline uint32_t cache_index(const struct kmem_cache *cache)
{
        return cache->pair_offset >> PAIR_SHIFT;
}

/*
 * A closed cache's own pair is cold for good in every slot. So each of its operations takes a slow
 * path, which can handle an object before it goes to a sheaf or after it has left it. Caches are
 * closed when they are made or later, never opened.
 */
static inline bool cache_is_closed(const struct kmem_cache *cache)
{
        return load_relaxed(&cache->sheaf_offset) != cache->fast_offset;
}

/* A cache's slabs on a node. */
struct engine_node_report {
        uint64_t slabs;
        uint64_t objects;       /* capacity of all slabs */
        uint64_t partial_slabs; /* on the node partial list */
        uint64_t partial_inuse; /* objects in use in partial_slabs */
        uint64_t listed_free;   /* free objects in slabs on lists of the node, but not in CPU slabs
                                   and on CPU partial lists */
        uint64_t cpu_slabs;     /* CPU slabs, and the CPU partial slabs of slots that have a CPU
                                   slab */
};

/* Figures of a cache; exact at rest, never torn while running. */
struct engine_report {
        struct engine_node_report node[NODES_MAX];
        uint64_t taken; /* objects handed to the per-CPU layer, cumulative */
        uint64_t given; /* objects that the per-CPU layer gave back, cumulative */
        /*
         * Bytes are counted only if a cache's objects differ in size; else they are objects times
         * stride.
         */
        bool has_bytes;
        uint64_t bytes_inuse;
        uint64_t bytes_free;
        uint64_t free_slabs;     /* slab: slabs without an object in use, kept on a list */
        uint64_t shared_objects; /* slab: free objects in shared arrays */
        uint32_t limit;          /* slab: the tunables; 0 in other engines */
        uint32_t batchcount;
        uint32_t shared;
};

/* The sum of the nodes. */
static inline struct engine_node_report engine_report_total(const struct engine_report *report)
{
        struct engine_node_report total = {0};

        for (unsigned int number = 0; number < NODES_MAX; number++) {
                const struct engine_node_report *node = &report->node[number];

                total.slabs += node->slabs;
                total.objects += node->objects;
                total.partial_slabs += node->partial_slabs;
                total.partial_inuse += node->partial_inuse;
                total.listed_free += node->listed_free;
                total.cpu_slabs += node->cpu_slabs;
        }
        return total;
}

/* Which parts of slabs count as free, for free_parts. */
struct parts_wanted {
        size_t bytes;  /* of a part: a power of two from a page of the system to 4 MiB */
        bool due_only; /* those that shrink and purge would give back now */
        /*
         * NULL, or whether an object that left its slab rests in a sheaf: then it is not in use.
         * Asked only of objects that decide whether a part is used.
         */
        bool (*rests)(const void *object);
};

/* The objects that a slot keeps in front of a back end. */
enum engine_caching {
        CACHING_SHEAVES, /* two sheaves, a stock and a barn */
        CACHING_ARRAY,   /* a single array, refilled and flushed in part (S6-01) */
        CACHING_NONE,    /* nothing: every call goes to the back end */
};

/* The engines that users choose from, in the order of option engine's values. */
enum engine_number { ENGINE_SLUB, ENGINE_SLOB, ENGINE_SLAB };

/*
 * Operations of a back end. @slot belongs to the cache; NULL is not allowed. All may take and
 * drop the slot cache lock and the locks below it; none may be called with one of these locks held.
 */
struct engine {
        const char *name;
        const char *title; /* the name as the kernel's messages have it */
        /*
         * The engine as users know it, and as merging compares it: debug caches are caches of slub.
         */
        enum engine_number number;
        enum engine_caching caching;
        /* Samples of a heap profile may be handed out in place of its objects (percpu/marks.h). */
        bool samples;
        /* The end of a slab may write a report, and the reclaim thread cannot do that. */
        bool checks_at_end;
        /*
         * NULL if each cache has pages of its own. Else the caches of the back end share their
         * pages: this record stands in the page map for all of them, and as an argument of `give`
         * it means that the caller does not know the cache. Caches that share pages have
         * CACHING_NONE.
         */
        struct kmem_cache *shared;
        /*
         * Computes layout and defaults from object_size, align and flags; with CACHING_ARRAY also
         * sheaf_capacity. It may hand the cache to another back end, which becomes the cache's
         * engine. Returns 0 or an errno.
         */
        int (*setup)(struct kmem_cache *cache);
        /*
         * Hands out up to @count objects; returns how many, 0 only without memory. The objects fill
         * the front of @objects in an order in which a sheaf, popped from its end, hands them out
         * in the back end's order.
         */
        unsigned int (*take)(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                             unsigned int count);
        /*
         * Whether take would make a slab for @count objects: a hint, since other threads may take
         * and free meanwhile. CACHING_SHEAVES only.
         */
        bool (*would_grow)(struct kmem_cache *cache, struct engine_slot *slot, unsigned int count);
        /* Whether the slot has slabs of its own for them; NULL with would_grow. */
        bool (*has_slabs)(struct engine_slot *slot, unsigned int count);
        /*
         * An object of a slab of node @node, which is below system_nodes(); NULL without memory
         * there. A back end that knows no nodes has neither take_on_node nor node_of.
         */
        void *(*take_on_node)(struct kmem_cache *cache, struct engine_slot *slot, int node);
        /* The node of an object that the caller holds. */
        int (*node_of)(const struct kmem_cache *cache, const void *object);
        /*
         * Takes objects back. A wrong object is reported and left out. With finds_foreign, objects
         * of other caches may be among them: the function moves these to the end of @objects and
         * returns their number; else it returns 0. The rest of @objects is clobbered.
         */
        unsigned int (*give)(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                             unsigned int count);
        bool finds_foreign;
        /*
         * Only where kmalloc and malloc get blocks of exact sizes, else NULL: memory for @size
         * bytes (not 0), counted as an object of @cache, the cache of a size class. @align is a
         * power of two up to a page, or 0 for the back end's own rule for kmalloc.
         */
        void *(*alloc_bytes)(struct kmem_cache *cache, size_t size, size_t align, bool zero);
        /*
         * With alloc_bytes: usable bytes of the block that a request of @size gets; from a page on
         * it is a large block.
         */
        size_t (*usable_bytes)(size_t size, size_t align);
        /*
         * With alloc_bytes: usable bytes of the block that starts at the address, 0 if none does.
         */
        size_t (*block_bytes)(const void *address);
        /* With alloc_bytes: takes a block back, and returns NULL, or the reason why it cannot. */
        const char *(*free_bytes)(void *block);
        /*
         * CACHING_ARRAY only. flush_count: how many objects leave an array of @size objects, which
         * is full, to make room for @wanted others: as many flushes as needed, but no further flush
         * when all of the array will leave. The number may be more than the array has. flush: takes
         * these objects back; unlike give, it may keep them in a shared array. reap: the work that
         * is due at times on the caller's node (S6-60). take, give and flush of an engine with
         * arrays leave the slot cache lock alone, so they may be called with it held, except take
         * of a cache with a constructor.
         */
        unsigned int (*flush_count)(struct kmem_cache *cache, unsigned int size,
                                    unsigned int wanted);
        void (*flush)(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                      unsigned int count);
        void (*reap)(struct kmem_cache *cache, uint64_t now_ms);
        /* Calls a function on locks of the cache beside the locks declared here; may be NULL. */
        void (*each_lock)(struct kmem_cache *cache, void (*act)(struct lock *));
        /* Puts the slabs that the slot holds (CPU slab, CPU partial list) on the node lists. */
        void (*flush_slot)(struct kmem_cache *cache, struct engine_slot *slot);
        /* Frees empty slabs and sorts the node lists; returns true if slabs remain. */
        bool (*shrink)(struct kmem_cache *cache);
        /*
         * Goes on giving back free pages inside slabs of a node that also hold objects, for up to
         * @slabs slabs. Adds to @bytes; true when it has come to the end. NULL: the engine has no
         * purge.
         */
        bool (*purge)(struct kmem_cache *cache, unsigned int node, unsigned int slabs,
                      size_t *bytes);
        /*
         * Only with purge, else NULL: bytes of whole parts of slabs in which no object is in use:
         * on the list of node @number, and in the slabs that a slot holds. A slab on the list
         * without an object counts whole. Costs a look at each object of these slabs, with the
         * list's lock held.
         */
        size_t (*free_parts)(struct kmem_cache *cache, unsigned int number,
                             const struct parts_wanted *wanted);
        size_t (*free_parts_of_slot)(struct kmem_cache *cache, struct engine_slot *slot,
                                     const struct parts_wanted *wanted);
        /*
         * Last call for a cache: frees empty slabs and all that setup made, and reports objects
         * that are left; true if slabs remain, and then everything stays for frees that may still
         * come.
         */
        bool (*teardown)(struct kmem_cache *cache);
        /* Adds the cache's node figures to @report. */
        void (*report)(struct kmem_cache *cache, struct engine_report *report);
        /* Adds a slot's figures. */
        void (*report_slot)(struct kmem_cache *cache, struct engine_slot *slot,
                            struct engine_report *report);
        /* Whether @address is the start of an object of this cache. */
        bool (*is_object)(const struct kmem_cache *cache, const void *address);
        /*
         * Whether an object, at whose start @object points, is free in its slab; exact for one that
         * nobody takes meanwhile. NULL in engine slob.
         */
        bool (*is_free)(const struct kmem_cache *cache, const void *object);
        /*
         * Only where objects are checked, else NULL. request: the size that was asked for of an
         * object, if it is kept, else object_size. set_request: the holder of an object tells a new
         * size; the first bytes stay.
         */
        uint32_t (*request)(const struct kmem_cache *cache, const void *object);
        void (*set_request)(struct kmem_cache *cache, void *object, size_t bytes);
        /*
         * With request: reports, if it is known, the caller that took an object which is freed to
         * another cache (S8-42).
         */
        void (*report_stranger)(struct kmem_cache *cache, void *object);
        /* With request: checks all slabs that are on lists (S10-30); returns their number. */
        uint64_t (*validate)(struct kmem_cache *cache);
        /* With request: reports and repairs so far (10.5). */
        uint64_t (*errors)(const struct kmem_cache *cache);
        /*
         * With request: the callers that took the objects in use, or with @of_free that gave them
         * back before (S9-01), of a cache with SLAB_STORE_USER. The text has marks in the places of
         * function names (machine/stack.h); it is as much as fits into @bytes once they are named.
         * Returns its length.
         */
        size_t (*traces)(struct kmem_cache *cache, bool of_free, char *text, size_t bytes);
};

extern KMEM_HIDDEN const struct engine slub_engine;
/* As slub_engine, without CPU slabs and CPU partial lists (option cpu_slabs=0). */
extern KMEM_HIDDEN const struct engine slub_node_engine;
/* The back end of slub's caches with any of F, Z, P, U, T (S10-01). */
extern KMEM_HIDDEN const struct engine debug_engine;
extern KMEM_HIDDEN const struct engine slob_engine;

/* The only lock of the slob back end (S7-03), here for fork. */
extern KMEM_HIDDEN struct lock slob_lock;
extern KMEM_HIDDEN const struct engine slab_engine;

static inline const struct engine *engine_by_number(uint64_t number)
{
        static const struct engine *const engines[] = {
                [ENGINE_SLUB] = &slub_engine,
                [ENGINE_SLOB] = &slob_engine,
                [ENGINE_SLAB] = &slab_engine,
        };

        return engines[number];
}

/* engines/engine.c: parts that back ends share */

/*
 * Alignment of a cache's objects: the largest of the wanted alignment, HWCACHE_ALIGN's and the
 * word's (S4-20).
 */
KMEM_HIDDEN uint32_t engine_align(const struct kmem_cache *cache);
/* Reports an object that cannot be given back, as option bad_free says. */
KMEM_HIDDEN void engine_bad_free(const struct kmem_cache *cache, const void *object,
                                 const char *wrong);
/* Says at the end of a cache how many objects are still in use, in slabs that stay (S8-08). */
KMEM_HIDDEN void engine_report_leaked(const struct kmem_cache *cache, uint64_t inuse,
                                      uint64_t slabs);

enum { RECIPROCAL_SHIFT = 40 };

static inline bool object_starts(const struct kmem_cache *cache, const void *address, uint32_t mask)
{
        uint64_t offset = (uintptr_t)address & mask;
        uint64_t index = (offset * cache->reciprocal) >> RECIPROCAL_SHIFT;

        return index * cache->size == offset && index < cache->objects;
}

/*
 * Whether an object of the cache starts at an address in its pages, in use or not. The mask is read once, as another
 * thread may set it to 0 at any time.
 */
static inline bool cache_is_object(const struct kmem_cache *cache, const void *address)
{
        uint32_t mask = load_relaxed(&cache->slab_mask);

        if (unlikely(!mask))
                return cache->engine->is_object(cache, address);
        return object_starts(cache, address, mask);
}

/* As cache_is_object, but false where the engine would have to be asked, so that there is no call. */
static inline bool cache_is_known_object(const struct kmem_cache *cache, const void *address)
{
        uint32_t mask = load_relaxed(&cache->slab_mask);

        return likely(mask) && object_starts(cache, address, mask);
}

#endif
