/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Slots, sheaves, and the sequences that work on them.
 *
 * A slot is to a cache as a CPU is in the kernel: at any moment at most one running thread uses it.
 * Slots come from restartable sequences (a slot per concurrency id or CPU) or, without rseq, from a
 * fixed set of records behind locks.
 *
 * Invariants:
 *  INV-1  A sheaf has a single owner: a pair of a slot, a stock, a barn, or the slow path of a
 *         thread. Only pop and push work on a sheaf in a pair, and only on main.
 *  INV-2  pop, push and replace act on the slot of the CPU they run on and commit with a single
 *         store. A sequence that is aborted before the store has changed nothing that anybody
 *         reads, and is tried once more before it gives up; after the store it is done.
 *  INV-3  A thread that replaces a sheaf of a pair owns the old sheaf from the commit on. replace
 *         compares the whole pair, so of two threads that try, the second fails.
 *  INV-4  Another CPU takes sheaves only by the drain protocol (percpu/drain.c): stop mark, fence,
 *         exchange for cold, fence. No pair is replaced in a slot while its stop mark is set.
 *  INV-5  The cold sheaf is empty and full at once and never written. A pair is cold in every slot
 *         before its index can be seen; pair 0 is always cold.
 *  INV-6  A pair that holds the closed sheaf is never replaced, in no slot: the cache's sheaves are
 *         at another index, and a slow path that still looks here is served without installing.
 */
#ifndef KMEM_PERCPU_SLOT_H
#define KMEM_PERCPU_SLOT_H

#include "engines/caches.h"
#include "kmem-sequence.h"
#include "percpu/freed.h"

enum {
        SLOTS_MAX = 8192,     /* concurrency ids or CPU numbers 0..8191 */
        CLASS_STEP_SHIFT = 3, /* size class tables have an entry per 8 bytes */
};

/*
 * The link comes first because the metadata arena keeps its own link there when a sheaf is freed.
 * So a slow path that peeks at a sheaf after its free still reads a size that was true once
 * (sheaf_free leaves 0).
 */
struct sheaf {
        struct sheaf *next; /* in a stock or barn */
        uint32_t size;      /* objects present: object[0 .. size) */
        uint32_t capacity;  /* fixed while the sheaf is in a pair */
        void *object[];
};

/*
 * Both pointers are always valid. The pair is 16-byte aligned so that a single store may commit
 * both. The lowest bit of spare is set while there are marks among its objects (marks.h).
 */
struct pair {
        struct sheaf *main;
        struct sheaf *spare;
} __attribute__((aligned(16)));
_Static_assert(sizeof(struct pair) == 1 << PAIR_SHIFT, "page map values are pair offsets");

static inline bool spare_is_marked(const struct pair *pair)
{
        return unlikely((uintptr_t)pair->spare & 1);
}

static inline struct sheaf *spare_of(const struct pair *pair)
{
        return (struct sheaf *)((uintptr_t)pair->spare & ~(uintptr_t)1);
}

/* A slot's part of a cache besides the pair; made at the first slow path. */
struct slot_cache {
        struct engine_slot engine; /* its lock, the slot cache lock, protects stock and rcu too */
        struct sheaf *stock;       /* sheaves with objects */
        uint32_t stock_size;       /* number of them */
        uint32_t empty_size;       /* number of the next */
        struct sheaf *empty;       /* sheaves without objects, for the stock's to come and go */
        struct rcu_sheaf *rcu;     /* collects objects for kfree_rcu, or NULL (rcu_sheaf.h) */
        uint32_t array_seen;       /* CACHING_ARRAY: see array.c; under the slot cache lock */
        uint32_t left_size;        /* size of `left` when it was left (calls.h) */
        uint32_t guard_gap;  /* 1 + objects up to the next guard (marks.c), 0: not drawn; relaxed */
        uint32_t sample_gap; /* objects up to the next sample (marks.c); relaxed */
        uint64_t gap_interval; /* of the profile that sample_gap was drawn for; 0: none; relaxed */
        const struct sheaf *left;
        struct pair drained; /* scratch of the drainer, under drain_mutex */
        uint64_t seen;       /* sum of the figures at the last look (percpu/quiet.c); under
                                cache_mutex */
        uint64_t grown_seen; /* as seen, at the last look of a heap that grows or of a full slot;
                                under cache_mutex */
        bool quiet;          /* it holds something and has not changed since; under cache_mutex */
} __attribute__((aligned(64)));

/* A record has the back end's counters, if there are any, behind it. */
static inline size_t slot_record_bytes(const struct kmem_cache *cache)
{
        return sizeof(struct slot_cache) + cache->counters_bytes;
}

/*
 * The table of slots and the sequences know a slot by its pairs. The fields that few caches need
 * lie around the start of the pairs, with the records backwards in front, so that they share a page
 * if the slot begins with a page.
 */
struct slot {
        char apart[2048];
        struct slot_cache *records[CACHES_MAX]; /* slot_place() */
        struct lock lock; /* locked slots only: the thread that uses the pairs holds it */
        uint32_t id;
        uint32_t stopped;                /* the stop mark of INV-4; written under drain_mutex */
        uint64_t stock_bytes;            /* of stocks with objects of up to a page; atomic adds */
        uint64_t stock_bytes_above_page; /* of the other stocks */
        int64_t rest_budget;             /* bytes, see REST-1 (rest.h); relaxed */
        int64_t rest_most;               /* bytes, the bound at the last count; relaxed */
        uint32_t rest_full;              /* blocks of pages that came to the full slot; relaxed */
        uint64_t guard_time;             /* ms, when the gate opens next (marks_gate); relaxed */
        uint64_t reap_time;              /* ms, when its arrays are looked at next; written under
                                      cache_mutex, read without it */
        struct pair pairs[CACHES_MAX];
};

/* The place of the slot's record for the cache with an index; NULL is there until it is made. */
static inline struct slot_cache **slot_place(struct slot *slot, uint32_t index)
{
        return &slot->records[CACHES_MAX - 1 - index];
}

/* The record, or NULL if there is none. */
static inline struct slot_cache *slot_peek(const struct slot *slot, uint32_t index)
{
        return load_acquire(&slot->records[CACHES_MAX - 1 - index]);
}

/* Tables in front of the page map: reached with the same base register as the map. */
struct front {
        uint16_t malloc_class[CLASS_BYTES_MAX >> CLASS_STEP_SHIFT]; /* pair offset by size */
        uint16_t kmalloc_class[CLASS_BYTES_MAX >> CLASS_STEP_SHIFT];
        struct pair *slots[SLOTS_MAX]; /* pairs of the slots; shared_slot where none was made yet */
};
_Static_assert(sizeof(struct front) <= HEAP_FRONT_BYTES, "the tables fit in front of the map");

/*
 * The words that fast paths read besides, here and in programs. All are zero before initialisation,
 * which sends every malloc and free to the slow path.
 */
extern KMEM_HIDDEN struct kmem_inline_layout fast;

/*
 * Loads the words of `fast` that a pop or a push reads. Call it in front of the first branch: the
 * compiler would leave the loads behind it. The statements are empty. Pairs of malloc and free take
 * 0.92 of the time with it.
 */
static KMEM_ALWAYS_INLINE void load_for_pop(void)
{
        __asm__ volatile("" : : "r"(fast.map), "r"(fast.rseq));
}

static KMEM_ALWAYS_INLINE void load_for_push(void)
{
        __asm__ volatile("" : : "r"(fast.map), "r"(fast.rseq), "r"(fast.slot_field));
}

static KMEM_ALWAYS_INLINE struct front *front(void)
{
        return (struct front *)(uintptr_t)fast.map - 1;
}

extern KMEM_HIDDEN struct sheaf cold_sheaf;
/* A second cold sheaf, for the pairs of indexes that are closed for good (INV-6). */
extern KMEM_HIDDEN struct sheaf closed_sheaf;
/* For threads that have no slot, or none yet: records only, its pairs stay cold. */
extern KMEM_HIDDEN struct slot shared_slot;

static inline bool sheaf_is_cold(const struct sheaf *sheaf)
{
        return sheaf == &cold_sheaf || sheaf == &closed_sheaf;
}

enum push_result {
        PUSH_DONE = KMEM_PUSH_DONE,
        PUSH_FULL = KMEM_PUSH_FULL,
        PUSH_ON_TOP = KMEM_PUSH_ON_TOP,
};

/* Layout 1, which compiled programs rely on (kmem-sequence.h): a change makes it layout 2. */
_Static_assert(offsetof(struct kmem_cache, fast_offset) == 0, "layout 1");
_Static_assert(sizeof(((struct kmem_cache *)0)->fast_offset) == 4, "layout 1");
_Static_assert(offsetof(struct pair, main) == 0, "layout 1");
_Static_assert(offsetof(struct sheaf, size) == KMEM_SHEAF_SIZE, "layout 1");
_Static_assert(offsetof(struct sheaf, capacity) == KMEM_SHEAF_SIZE + 4, "layout 1");
_Static_assert(offsetof(struct sheaf, object) == KMEM_SHEAF_OBJECTS, "layout 1");
_Static_assert((long)offsetof(struct front, slots) - (long)sizeof(struct front) ==
                       KMEM_SLOT_POINTERS,
               "layout 1");
_Static_assert(offsetof(struct kmem_inline_layout, map) == 0, "layout 1");
_Static_assert(offsetof(struct kmem_inline_layout, rseq) == sizeof(void *), "layout 1");
_Static_assert(offsetof(struct kmem_inline_layout, slot_field) == 2 * sizeof(void *), "layout 1");
_Static_assert(offsetof(struct kmem_inline_layout, heap_base) == 3 * sizeof(void *), "layout 1");
_Static_assert(offsetof(struct kmem_inline_layout, heap_bytes) == 4 * sizeof(void *), "layout 1");

#include "percpu/sequences.h"

/* slots.c, slot_source.c */

/* Sets up the slots and where they come from; single-threaded. */
KMEM_HIDDEN void slots_init(void);
/* For a library that does not own the heap: every fast path goes slow from now on. */
KMEM_HIDDEN void slots_refuse(void);
/* After the CPU counts were read again. Under cache_mutex. */
KMEM_HIDDEN void slots_follow_cpus(void);
/*
 * Whether the process can no longer use the slot's CPU. A concurrency id does not tell its CPU;
 * then the answer is true for every slot.
 */
KMEM_HIDDEN bool slot_may_have_left(const struct slot *slot);
/* Whether slots come from restartable sequences. */
KMEM_HIDDEN bool slots_are_rseq(void);
/* The calling thread's slot at this moment, made if need be; shared_slot if it has none. */
KMEM_HIDDEN struct slot *slot_current(void);
/* The slot of an id; shared_slot if it was not made yet. */
static inline struct slot *slot_at(uint32_t id)
{
        return (struct slot *)((char *)load_acquire(&front()->slots[id]) -
                               offsetof(struct slot, pairs));
}

/* Slots made so far: slot_made(0 .. slots_made_count()). They are never unmade. */
KMEM_HIDDEN unsigned int slots_made_count(void);
KMEM_HIDDEN struct slot *slot_made(unsigned int number);
/* Makes the pair of an index cold in every slot, present and future (INV-5). */
KMEM_HIDDEN void slots_publish_index(uint32_t index);
/*
 * Marks an index as closed: slots made from now on begin with its pair closed, and the drainer
 * changes the pairs of existing slots. Reopening makes closed pairs cold again, and leaves pairs
 * alone in which other threads hold sheaves.
 */
KMEM_HIDDEN void slots_close_index(uint32_t index);
KMEM_HIDDEN void slots_reopen_index(uint32_t index);
/* Indexes from here on have never been published. */
KMEM_HIDDEN uint32_t slots_index_end(void);
/*
 * The slot's record of a cache, made if need be. If there is no memory for it, *slot becomes the
 * shared slot, which gets its records together with the caches: so a free never lacks a record.
 */
KMEM_HIDDEN struct slot_cache *slot_record(struct slot **slot, struct kmem_cache *cache);
/* Calls a function on each record of a cache, while none is made. */
KMEM_HIDDEN void slots_each_record(struct kmem_cache *cache,
                                   void (*act)(struct kmem_cache *cache, struct engine_slot *slot,
                                               uint32_t id));
/* Makes the shared slot's record of a new cache; false without memory. */
KMEM_HIDDEN bool slots_add_cache(struct kmem_cache *cache);
/* Aborts sequences on all CPUs of the process; false if the kernel refuses. */
KMEM_HIDDEN bool slots_fence(void);
/* Whether sheaves of other slots can be taken, as far as is known before trying. */
KMEM_HIDDEN bool slots_can_drain(void);

KMEM_HIDDEN void *locked_slot_pop(uint32_t pair_offset);
KMEM_HIDDEN enum push_result locked_slot_push(uint32_t pair_offset, void *object);

KMEM_HIDDEN bool slot_replace(struct slot *slot, uint32_t pair_offset, const struct pair *expected,
                              const struct pair *new_pair);

/* Protects the table of slots; for fork. */
extern KMEM_HIDDEN struct lock slots_lock;

/*
 * The offset of the pair that slow paths use. They read it anew at each step, as a cache may be
 * closed meanwhile.
 */
static inline uint32_t sheaf_offset(const struct kmem_cache *cache)
{
        return load_relaxed(&cache->sheaf_offset);
}

static inline struct pair *slot_pair(struct slot *slot, uint32_t pair_offset)
{
        return &slot->pairs[pair_offset >> PAIR_SHIFT];
}

/*
 * Of a sheaf that the caller owns, and that others may peek into still. Relaxed: partner is
 * sheaf_peek.
 */
static inline void sheaf_set_size(struct sheaf *sheaf, uint32_t size)
{
        store_relaxed(&sheaf->size, size);
}

/* Onto a sheaf that the caller owns, which is not full. */
static inline void sheaf_push(struct sheaf *sheaf, void *object)
{
        sheaf->object[sheaf->size] = object;
        sheaf_set_size(sheaf, sheaf->size + 1);
}

/* The newest object of a sheaf that the caller owns, which is not empty. */
static inline void *sheaf_pop(struct sheaf *sheaf)
{
        sheaf_set_size(sheaf, sheaf->size - 1);
        return sheaf->object[sheaf->size];
}

/*
 * The size of a sheaf that another thread owns: a hint, within bounds even if the sheaf has been
 * freed and its memory reused.
 */
static inline uint32_t sheaf_peek(const struct kmem_cache *cache, const struct sheaf *sheaf)
{
        return min_of(load_relaxed(&sheaf->size),
                      max_of(cache->sheaf_room, load_relaxed(&cache->sheaf_capacity)));
}

/*
 * Both pointers of a pair, read in two loads. A torn pair does no harm: replace compares both
 * pointers again.
 */
static inline struct pair slot_read_pair(struct slot *slot, uint32_t pair_offset)
{
        struct pair *pair = slot_pair(slot, pair_offset);

        return (struct pair){.main = load_acquire(&pair->main),
                             .spare = load_acquire(&pair->spare)};
}

#endif
