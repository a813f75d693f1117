/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The registry: a file in shared memory with the figures of this process, which others read and
 * through which they ask for changes (docs/decisions/0014-registry.md). The process writes the
 * figures anyway, so nothing in it runs for a reader.
 *
 *  REG-1  Nothing here is read back by the allocator but requests: whoever may write the file can
 *         spoil what readers see, and ask for what the program itself might do, no more.
 *  REG-2  Only the process that made a file writes it. A child of fork gets memory of its own at
 *         the same address in the fork handler; one made behind libc's back (raw clone) finds that a
 *         page which the kernel clears in children is clear, and leaves the registry before it
 *         writes a figure.
 *  REG-3  Every word is stored whole, so it is never torn; a record's kind is stored last when it
 *         comes and first when it goes.
 */
#ifndef KMEM_BASE_REGISTRY_H
#define KMEM_BASE_REGISTRY_H

/* In angle brackets, so that the simulator's is found where that comes first. */
#include <base/atomic.h>

enum {
        REGISTRY_VERSION = 1,
        REGISTRY_REQUESTS = 40,
        REGISTRY_HEAD_BYTES = 8192, /* the records begin there */
};

enum registry_record { RECORD_FREE, RECORD_CACHE, RECORD_SLOT };

/* In front of every record; records lie one behind the other, each a multiple of 64 bytes. */
struct registry_record_head {
        uint32_t kind;  /* enum registry_record; release */
        uint32_t bytes; /* of the record; constant once it exists */
};

/* What somebody asks of the process. Readers write under a lock of the file (flock). */
enum { REQUEST_NONE, REQUEST_PENDING, REQUEST_DONE };
struct registry_request {
        uint32_t state;
        int32_t error;      /* when done: 0 or an errno */
        uint64_t number;    /* counts requests; older ones are honoured first */
        uint64_t birth;     /* of the cache; 0: of all caches */
        uint64_t result;    /* when done: bytes given back */
        char attribute[32]; /* to write; or "trim", or "refresh" for the refreshed figures */
        char value[32];
};

struct registry_head {
        char magic[8];
        uint32_t version;
        uint32_t head_bytes;
        uint32_t fields_offset; /* the description of all this, see registry_field */
        uint32_t fields;
        uint32_t process;
        uint32_t asked;         /* grows with each request */
        uint64_t namespace;     /* inode of the process's pid namespace, 0: not known */
        uint64_t start_time;    /* of the process, clock ticks since boot, 0: not known */
        uint64_t id;            /* tells files of one process from each other (exec) */
        uint64_t used_bytes;    /* end of the records; release */
        uint64_t missing;       /* records that did not fit */
        char release[16];
        struct registry_request requests[REGISTRY_REQUESTS];
};

/* Describes one field, so that readers need to know this struct and no other. */
enum registry_part { PART_HEAD, PART_REQUEST, PART_CACHE, PART_SLOT, PART_NODE, PART_FLAG };
struct registry_field {
        char name[32];
        uint16_t part;   /* enum registry_part */
        uint16_t offset; /* in the part */
        uint16_t bytes;
        uint16_t count;  /* more than 1: an array */
        uint64_t value;  /* PART_FLAG: the bit of the cache's flags; else 1 for text, 0 numbers */
};

/* A slot's figures for a cache. Cumulative, so that taken - given is never below 0. */
struct registry_slot {
        struct registry_record_head head;
        uint64_t birth;  /* of the cache */
        uint32_t slot;   /* UINT32_MAX: threads without a slot */
        uint64_t taken;  /* as in struct engine_slot */
        uint64_t given;
};

struct registry_node {
        uint64_t number;         /* the kernel's */
        uint64_t slabs;
        uint64_t objects;
        uint64_t partial;        /* slabs on the node partial list */
        uint64_t free_slabs;     /* slab */
        uint64_t free_objects;   /* slab: in slabs on lists */
        uint64_t shared_objects; /* slab */
        uint64_t refused;        /* slab: wrong objects that were counted as given */
        /* Refreshed on request only. */
        uint64_t listed_free;
        uint64_t objects_partial;
        uint64_t cpu_slabs;
};

struct registry_cache {
        struct registry_record_head head;
        uint64_t birth;
        char name[48];
        char engine[8];
        /* As the attributes of these names; what they may be set to behind them. */
        uint32_t object_size;
        uint32_t slab_size;
        uint32_t objs_per_slab;
        uint32_t order;
        uint32_t align;
        uint32_t usersize;
        uint32_t aliases;
        uint32_t flags;
        uint32_t cpu_partial;
        uint32_t cpu_partial_most;
        uint32_t sheaf_capacity;
        uint32_t sheaf_capacity_most;
        uint64_t min_partial;
        uint64_t min_partial_most;
        uint32_t failslab;
        uint32_t skip_kfence;
        uint32_t remote_node_defrag_ratio;
        uint32_t limit; /* slab's tunables */
        uint32_t batchcount;
        uint32_t shared;
        uint64_t taken; /* slob, which has none for each slot */
        uint64_t given;
        /* Refreshed on request only. */
        uint64_t refreshed; /* how often */
        uint64_t objects_inuse;
        uint64_t cpu_partial_objects;
        uint64_t cpu_partial_slabs;
        uint32_t nodes;
        struct registry_node node[];
};

/* registry.c */

/* Makes the file, before there are caches; without one nothing has figures. Not for setuid. */
KMEM_HIDDEN void registry_open(void);
/* A zeroed record, its head not set; NULL if there is no registry or no room. */
KMEM_HIDDEN void *registry_alloc(size_t bytes);
KMEM_HIDDEN void registry_free(void *record, size_t bytes);
/* Makes a record visible, which has been filled in. */
KMEM_HIDDEN void registry_publish(void *record, enum registry_record kind, size_t bytes);
/*
 * The child's own, at the same addresses and empty: every record is to be filled in again. False if
 * there is none to fill.
 */
KMEM_HIDDEN bool registry_fork_child(void);
/* Removes the file at the end of the process whose it is. */
KMEM_HIDDEN void registry_close(void);

/* Only that of the process itself, otherwise an empty one. */
extern KMEM_HIDDEN struct registry_head *registry;
/* The value of registry->asked up to which requests have been honoured; 0 in a raw clone. */
extern KMEM_HIDDEN uint32_t *registry_seen;
/* Called on slow paths with no lock of the heap held but those in front of cache_mutex, or it. */
extern KMEM_HIDDEN void (*registry_honour)(void);

KMEM_HIDDEN void registry_act(void);

/* On slow paths, before figures are written. */
static inline void registry_poll(void)
{
        if (unlikely(load_relaxed(&registry->asked) != load_relaxed(registry_seen)))
                registry_act();
}

#endif
