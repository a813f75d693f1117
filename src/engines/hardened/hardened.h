/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Option protect=hardened: the blocks of malloc and kmalloc come from this back end, which makes the faults of
 * programs hard to exploit and reports those that it can see. Named caches stay with their engines, with
 * check=sheaf.
 *
 * A block is an object of a size class, or a large block (large.h). Objects lie in slabs, slabs in chunks of a
 * reservation of their own; all that is known of them lies elsewhere, in records.
 *
 * Invariants:
 *  HARD-1  A chunk belongs to a class from its first use on, for ever. So no address of the reservation is ever
 *          used by two classes, not even after its memory went back to the system.
 *  HARD-2  Between two slabs is a guard page, and a chunk begins with one. Guards cannot be read or written,
 *          except where the system has no guards in mappings and the process has too many mappings (slab.c).
 *  HARD-3  The state of an object is in its slab's record, a byte, and nowhere in the object: fresh, out by malloc,
 *          out by operator new, or freed. Only an object that is out can be freed; so every other free is wrong,
 *          and is reported, whatever the program wrote to the object.
 *  HARD-4  A freed object reads as zero, also where its canary is. The check is made when it is handed out again and
 *          when it is swept, and finds what was written after the free.
 *  HARD-5  An object that is out ends with its slab's canary. The check is made when it is freed, resized or swept.
 *  HARD-6  A freed object waits, and its address is not handed out, until it was drawn at random and then has grown
 *          old; bytes that wait are bounded for each pool (class.c).
 *  HARD-7  The blocks of size 0 are objects of a class without memory: every access traps.
 *  HARD-9  An object is out only while its canary is there, and waits only while it is zero: its state is the last that malloc
 *          writes, and the first that free writes. So a sweep finds no fault of the program in a call that is not over, as
 *          in front of _exit by the handler of a signal.
 *
 * A pool is the slabs of a class and an arena, under the pool's lock. Threads choose an arena when they first
 * allocate; a free goes to the pool of the object's slab. In a process with a single thread nobody takes the locks.
 * Locks: pool lock > large lock > grow lock; metadata_lock alone is taken inside them.
 */
#ifndef KMEM_ENGINES_HARDENED_HARDENED_H
#define KMEM_ENGINES_HARDENED_HARDENED_H

#include <machine/lock.h>

#include "engines/hardened/random.h"
#include "lang/bits.h"
#include "lang/list.h"

enum {
        HARDENED_SMALL_MOST = 1024, /* bytes of an object, up to which a table tells the class */
        HARDENED_CLASSES = 60,      /* class 0 is that of size 0 */
        HARDENED_ARENAS_MAX = 8,    /* pools of a class */
        HARDENED_WAITING_MAX = 128, /* objects in each part of a pool's quarantine */
        HARDENED_OBJECTS_MAX = 256, /* in a slab: an index is a byte */
        HARDENED_PLACES = 8,        /* a new slab is drawn from that many next ones of its chunk */
        CANARY_BYTES = 8,
};

/* Form of the call that handed a block out, and must take it back. */
enum block_form { FORM_MALLOC, FORM_NEW };

/* By the name of the call: "operator delete" alone begins so. */
static inline enum block_form block_form_of(const char *call)
{
        return call[0] == 'o' ? FORM_NEW : FORM_MALLOC;
}

struct hardened_class {
        uint32_t size;       /* bytes of an object, with the canary */
        uint32_t objects;    /* in a slab */
        uint32_t slab_bytes; /* whole system pages */
        uint32_t stride;     /* from slab to slab, with the guard */
        uint32_t slabs;      /* in a chunk */
        uint16_t record_bytes;
        uint16_t
                wanted; /* objects that a slab must have to hand out before it is taken from again */
        uint32_t drawn; /* objects that wait to be drawn, in each pool */
        uint32_t aged;  /* and then to grow old */
        uint64_t stride_reciprocal, size_reciprocal;
        uint32_t last_pair; /* offset of an object's last 16 bytes; class 0: 0 */
} __attribute__((aligned(64)));

/* Constant once the back end is up, but for hardened_change: the page is read-only then. */
struct hardened_table {
        uintptr_t base; /* of the chunks */
        size_t bytes;   /* of all chunks; 0: the option is not given */
        uint32_t chunk_shift;
        uint32_t chunk_mask; /* bytes of a chunk, less 1 */
        uint32_t arenas;
        uint32_t window_chunks; /* classes draw their chunks from that many at a time */
        /* Of each chunk the address of its records, and in the bits of CHUNK_CLASS the offset of its class in this
         * table; 0: not in use. */
        uint64_t *chunks;
        char *records; /* of the chunks in use, by ordinal */
        size_t chunk_records_bytes;
        struct pool *pools; /* by arena and class */
        uintptr_t large_window;
        size_t often_most;   /* bytes of a request that hardened_take_often may serve; 0: none */
        uint32_t page_bytes; /* of the system */
        uint8_t small_class[HARDENED_SMALL_MOST / 16 + 1];
        bool has_guards; /* the system has guards that are no mappings */
        uint32_t key[RANDOM_KEY_WORDS];
        struct hardened_class classes[HARDENED_CLASSES];
} __attribute__((aligned(4096)));
_Static_assert(sizeof(struct hardened_table) == 4096, "a page");
#define CHUNK_CLASS ((uint64_t)4095)
extern KMEM_HIDDEN struct hardened_table hardened;

/* OBJECT_OUT + FORM_MALLOC and OBJECT_OUT + FORM_NEW are out. A record begins as zeroes: all objects are fresh. */
enum object_state { OBJECT_FRESH, OBJECT_FREED, OBJECT_OUT };

/* The state of an object that was handed out in this form. */
static inline uint32_t state_out(enum block_form form)
{
        return OBJECT_OUT + (uint32_t)form;
}

/* What is known of a slab; the fields but start, canary, pool, arena and number change under its pool's lock. */
struct slab_record {
        struct list list;  /* of the pool: partial, empty or released; free otherwise */
        char *start;       /* NULL: the slab was never used */
        uint64_t canary;   /* secret */
        struct pool *pool; /* of its class and arena */
        uint32_t free;     /* objects that can be handed out */
        uint32_t awaited;  /* as many, and the slab changes its place; 0: it stays */
        uint32_t empty_ms; /* SLAB_EMPTY: the time since when, the lower half */
        uint8_t arena;
        uint8_t number;  /* of its class */
        uint8_t place;   /* enum slab_place */
        uint8_t guarded; /* the guard behind it is there */
        uint8_t closed;  /* SLAB_RELEASED: it cannot be read */
        uint8_t states
                []; /* of the objects, and then the indices of the objects that can be handed out */
};

static inline bool object_is_out(uint8_t state)
{
        return state >= OBJECT_OUT;
}

/* The first `free` are of objects that can be handed out, in no order. */
static inline uint8_t *record_loose(struct slab_record *record, const struct hardened_class *class)
{
        return record->states + class->objects;
}

enum slab_place { SLAB_LOOSE, SLAB_CURRENT, SLAB_PARTIAL, SLAB_EMPTY, SLAB_RELEASED };

static inline void slab_place(struct slab_record *record, enum slab_place place, uint32_t awaited)
{
        record->place = (uint8_t)place;
        record->awaited = awaited;
}

/* What each malloc and free changes comes first, in a line of the cache. */
struct pool {
        struct lock lock;
        uint32_t waiting;    /* objects in drawn and aged */
        uint32_t next_aged;  /* the oldest */
        uint16_t next_index; /* of the object that is taken next: it has left record_loose */
        uint16_t opened;     /* 1: its lock may be held (HARD-8) */
        struct slab_record *current; /* objects are taken from it */
        char *next_object;           /* the object that is taken next; NULL: none is drawn */
        const char *fetched;         /* up to here fetch_neighbours has had a slab fetched */
        uint64_t taken, given;       /* objects, cumulative; given are out no more */
        struct random_stream random;
        struct list partial;  /* slabs with objects to hand out; NULLs until first used */
        struct list empty;    /* without an object out or waiting, oldest first */
        struct list released; /* and without memory, unreadable if the system has guards */
        uint64_t slabs;       /* with memory */
        uint64_t drawn[HARDENED_WAITING_MAX]; /* wait_of; 0: none yet */
        uint64_t aged[HARDENED_WAITING_MAX];
} __attribute__((aligned(CACHE_LINE)));
_Static_assert(offsetof(struct pool, random.draws) == CACHE_LINE,
               "what each call changes is a line");

/* The place of an address in the reservation. */
struct hardened_place {
        struct slab_record *record; /* NULL: no slab of any class has been there */
        const struct hardened_class *class;
        size_t index;    /* of the object, if offset is 0 */
        uint32_t offset; /* in the object; UINT32_MAX: outside of all objects, in a guard */
};

/* An object of the process has operators new and delete of its own, so forms tell nothing; never false again. */
extern KMEM_HIDDEN bool hardened_forms_alike;

static inline bool hardened_is_on(void)
{
        return unlikely(load_relaxed(&hardened.bytes) != 0);
}

static inline bool hardened_contains(const void *address)
{
        return (uintptr_t)address - hardened.base < hardened.bytes;
}

static inline struct pool *pool_of(uint32_t arena, uint32_t class)
{
        return &hardened.pools[arena * HARDENED_CLASSES + class];
}

static inline uint32_t class_number_of(const struct hardened_class *class)
{
        return (uint32_t)(class - hardened.classes);
}

static inline uint32_t pool_random(struct pool *pool, uint32_t end)
{
        return stream_below(&pool->random, hardened.key, end);
}

/* An object that waits, in a word that is not 0: addresses of a process have at most 56 bits. */
static inline uint64_t wait_of(struct slab_record *record, size_t index)
{
        return (uint64_t)(uintptr_t)record << 8 | index;
}

static inline struct slab_record *wait_record(uint64_t wait)
{
        return (struct slab_record *)(uintptr_t)(wait >> 8);
}

static inline uint32_t wait_index(uint64_t wait)
{
        return (uint32_t)wait & 0xff;
}
_Static_assert(HARDENED_OBJECTS_MAX <= 256, "an index has eight bits");

static inline const struct hardened_class *class_of_chunk(uint64_t entry)
{
        return (const struct hardened_class *)(const void *)((const char *)hide_address(&hardened) +
                                                             (entry & CHUNK_CLASS));
}

static inline char *records_of_chunk(uint64_t entry)
{
        return (char *)(uintptr_t)(entry & ~CHUNK_CLASS);
}

static inline uint64_t chunk_entry(const char *records, uint32_t class)
{
        return (uintptr_t)records |
               (offsetof(struct hardened_table, classes) + class * sizeof(struct hardened_class));
}

/* The place of an address that hardened_contains. */
static KMEM_ALWAYS_INLINE struct hardened_place hardened_place_of(const void *address)
{
        struct hardened_place place = {.offset = UINT32_MAX};
        size_t distance = (uintptr_t)address - hardened.base;
        /* Acquire: pairs with chunk_take, which has made the records accessible. */
        uint64_t entry = load_acquire(&hardened.chunks[distance >> hardened.chunk_shift]);
        /* Near 2^32 in the chunk's first guard, which is beyond all slabs then. */
        uint32_t in_chunk = ((uint32_t)distance & hardened.chunk_mask) - hardened.page_bytes;
        const struct hardened_class *class;
        size_t slab;
        uint32_t in_slab;

        if (unlikely(!entry))
                return place;
        class = class_of_chunk(entry);
        slab = (in_chunk * class->stride_reciprocal) >> 40;
        in_slab = in_chunk - (uint32_t)slab * class->stride;
        if (unlikely(slab >= class->slabs))
                return place;
        place.class = class;
        place.record = (struct slab_record *)(void *)(records_of_chunk(entry) +
                                                      slab * class->record_bytes);
        place.index = (in_slab * class->size_reciprocal) >> 40;
        if (likely(place.index < class->objects))
                place.offset = in_slab - (uint32_t)place.index * class->size;
        return place;
}

/* Sixteen bytes, which both baselines move at once. */
typedef uint64_t hardened_pair __attribute__((vector_size(16), may_alias));

/* Whether memory is zero that is aligned to 16 bytes, as its length is; 32 bytes or more. */
static inline bool hardened_is_zero(const char *memory, uint32_t bytes)
{
        const hardened_pair *at = (const hardened_pair *)(const void *)memory;
        const hardened_pair *last = (const hardened_pair *)(const void *)(memory + bytes) - 1;
        hardened_pair any = *last;

        /* Steps of two; an odd one is the last, which was read first. */
        do {
                any |= at[0] | at[1];
                at += 2;
        } while (at < last);
        return !(any[0] | any[1]);
}

/*
 * A page that the program never touched is mapped by a write at once, which changes nothing. A read would map the page
 * of zeroes, and the canary would be a second fault.
 */
static inline void touch_fresh(char *byte)
{
#ifdef __x86_64__
        __asm__ volatile("orb $0, %0" : "+m"(*byte) : : "cc");
#else
        /* Relaxed: the object is this thread's. */
        __atomic_fetch_or((unsigned char *)byte, 0, __ATOMIC_RELAXED);
#endif
}

/* class.c */

/* Reserves the address space and chooses all sizes; false without memory. Single-threaded. */
KMEM_HIDDEN bool hardened_start(void);
/*
 * The least class whose objects have room for @size bytes, the canary, and the alignment; HARDENED_CLASSES if
 * the block is large.
 */
KMEM_HIDDEN uint32_t hardened_class_for(size_t size, size_t align);
/* Usable bytes of the block that a request of @size bytes, aligned to @align, gets. */
KMEM_HIDDEN size_t hardened_round(size_t size, size_t align);
/* In the only thread of a child of fork: random numbers differ from the parent's from now on. */
KMEM_HIDDEN void hardened_fork_child(void);
/* Makes the page of the table writable, or read-only again; false if the system refuses. */
KMEM_HIDDEN bool hardened_change(bool writable);

/* slab.c */

/* Chunks from here on were never in use. */
KMEM_HIDDEN uint32_t hardened_chunks_end(void);
/* Gives up address space beyond @bytes that is not in use. */
KMEM_HIDDEN void hardened_fit(size_t bytes);
/* After mlockall: only memory in use counts as locked. */
KMEM_HIDDEN void hardened_unlock(void);

/* The others under the pool's lock. */

/* A slab with free objects that is on no list; NULL without memory. */
KMEM_HIDDEN struct slab_record *slab_get_locked(struct pool *pool, uint32_t arena, uint32_t class);
/* Takes an empty slab, which is on no list. */
KMEM_HIDDEN void slab_put_empty_locked(struct pool *pool, struct slab_record *record);
/* Gives back the memory of all empty slabs; returns bytes. */
KMEM_HIDDEN size_t slabs_release_locked(struct pool *pool);
extern KMEM_HIDDEN struct lock hardened_grow_lock;

/* block.c: blocks by pointer */

/* The alignment of a request of kmalloc: blocks of a power of two are aligned to it, up to a page (S8-25). */
static inline size_t hardened_kmalloc_align(size_t size)
{
        return is_power_of_two(size) ? min_of(size, PAGE_SIZE) : 1;
}

/* @align: a power of two. All bytes are zero. NULL without memory. */
KMEM_HIDDEN void *hardened_alloc(size_t size, size_t align, enum block_form form);
/* hardened_free of a block of an object's size, that is an address that hardened_contains. */
KMEM_HIDDEN void hardened_free_object(void *block, size_t size, enum block_form form,
                                      const char *call, const void *site);
/*
 * The size is not known: SIZE_MAX. @site: the caller of @call, NULL if that is the library. False if the address is not
 * of this back end, and nothing happened.
 */
KMEM_HIDDEN bool hardened_free(void *block, size_t size, enum block_form form, const char *call,
                               const void *site);
/* Usable bytes, 0 for blocks of size 0; false in *known if no block starts there. */
KMEM_HIDDEN size_t hardened_bytes(const void *block, bool *known);
/* Ends the process with a report by @call, if an address that hardened_contains is not the start of a block that is out. */
KMEM_HIDDEN void hardened_check(const void *block, const char *call);
/*
 * NULL without memory; the block stays then. @size is not 0, and the block is known. Bytes behind the old size
 * are zero if the block moved. @align: as in hardened_alloc.
 */
KMEM_HIDDEN void *hardened_resize(void *block, size_t size, size_t align, const char *call);
/*
 * A block came back to @call in another form than it has. Reports that, unless the caller at @site may have a C++ runtime
 * of its own: then forms are alike from now on, and it returns. No lock may be held.
 */
KMEM_HIDDEN void hardened_wrong_form(const void *block, enum block_form form, const char *call,
                                     const void *site);
static inline bool hardened_is_wrong_form(enum block_form own, enum block_form form)
{
        return unlikely(own != form) && !load_relaxed(&hardened_forms_alike);
}
/* The first byte that is not zero, or UINT32_MAX. */
KMEM_HIDDEN uint32_t hardened_first_used(const char *object, uint32_t bytes);

/* sweep.c */

/* Checks all that waits, and the canaries of all objects that are out. Pools in use are left out. */
KMEM_HIDDEN void hardened_sweep(void);
KMEM_HIDDEN size_t hardened_trim(void);
/* @pool: for the locks of pools. */
KMEM_HIDDEN void hardened_each_lock(void (*pool)(struct lock *lock),
                                    void (*act)(struct lock *lock));

struct hardened_counts {
        uint64_t blocks, bytes;             /* handed out and not freed; bytes with canaries */
        uint64_t taken;                     /* cumulative */
        uint64_t waiting, waiting_bytes;    /* readable quarantine */
        uint64_t large_blocks, large_bytes; /* a part of blocks and bytes */
        uint64_t closed_bytes;      /* addresses of large blocks in the unreadable quarantine */
        uint64_t slab_bytes;        /* slabs with memory */
        uint64_t waiting_bytes_max; /* the bound for all pools that there may be */
};
KMEM_HIDDEN void hardened_count(struct hardened_counts *counts);
/*
 * Figures that other processes see. They change when slabs and large blocks come and go, and while a quarantine
 * fills, so seldom that all pools may share them; atomic adds.
 */
struct hardened_figures {
        uint64_t slab_bytes, large_bytes, waiting_bytes, closed_bytes;
        uint64_t empty_bytes; /* the part of slab_bytes in empty slabs; not shown */
};
extern KMEM_HIDDEN struct hardened_figures hardened_figures;
/* Shows them, after a change. */
KMEM_HIDDEN void hardened_show(void);

/* report.c */

/*
 * Writes "kmem: CALL(ADDRESS): FAULT", details of the place, and ends the process.
 * @bad_offset: of the first harmed byte in the object, or UINT32_MAX.
 */
KMEM_HIDDEN void hardened_report(const char *call, const void *address, const char *title,
                                 const char *fault, uint32_t bad_offset)
        __attribute__((noreturn, cold));

/*
 * Points to a byte that is 0 unless the process has a single thread: glibc's __libc_single_threaded, or a byte that is
 * always 0.
 */
extern KMEM_HIDDEN const char *hardened_single;
/* Before a thread begins that libc does not know, and that may free blocks (the reclaim thread). */
KMEM_HIDDEN void hardened_share(void);

/* Whether there may be several threads. The answer holds while a pool is locked. */
static inline bool hardened_has_threads(void)
{
        return !load_relaxed(load_relaxed(&hardened_single));
}

/*
 * HARD-8  A pool's lock is taken only once `opened` is set, under this lock, for good. Fork holds it
 *         in front of the locks of all opened pools, and drops it behind them: so a pool is locked
 *         by another thread neither in the child nor where fork drops what it took. A thread that
 *         meets a fork here waits for its end; it holds no lock of a pool yet.
 */
extern KMEM_HIDDEN struct lock hardened_open_lock;

/* In front of pool_take, unless the pool has handed out an object before. */
static inline void pool_open(struct pool *pool)
{
        /* Relaxed: whoever sees 1 was preceded by the section that set it, and so is its lock. */
        if (likely(load_relaxed(&pool->opened)))
                return;
        lock_take(&hardened_open_lock);
        store_relaxed(&pool->opened, 1);
        lock_drop(&hardened_open_lock);
}

/*
 * The lock of a pool is left by a plain store, which is half the price of a pair: its waiters never sleep on the word,
 * so nobody has to be woken. They look again and again, and sleep a little in between: a pool is held for tens of cycles,
 * and threads choose pools so that two seldom want the same.
 */
KMEM_HIDDEN void pool_lock_wait(struct lock *lock);

static inline void pool_lock_take(struct lock *lock)
{
        if (unlikely(!lock_try(lock)))
                pool_lock_wait(lock);
}

static inline bool pool_take(struct pool *pool)
{
        bool locks = hardened_has_threads();

        if (locks)
                pool_lock_take(&pool->lock);
        return locks;
}

static inline void pool_drop(struct pool *pool, bool locked)
{
        if (locked)
                lock_drop_unslept(&pool->lock);
}

#endif
