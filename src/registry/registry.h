/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The registry: a file in shared memory with the figures of this process. Other processes read them
 * and ask for changes through it (docs/decisions/0014-registry.md). The process writes the figures
 * anyway, so it runs no code for a reader.
 *
 *  REG-1  The allocator reads nothing back from here but requests and the links of free records,
 *         and it checks both. A process that may write the file can spoil the figures that readers
 *         see, and make the requests that docs/attributes.md and docs/profiles.md list. By cutting
 *         the file off it can also end our process, by SIGBUS at the next figure; but only our own
 *         user and root may write the file, and they may send us any signal.
 *  REG-2  Only the process that made a file writes it. The kernel clears a certain page in
 *         children. A child, of fork or of a raw clone, finds that page clear at its first slow
 *         path, and leaves its parent's registry before it writes a figure.
 *  REG-3  Every word is stored whole, so it is never torn; a record's length is stored first, and
 *         its kind last when it comes and first when it goes.
 */
#ifndef KMEM_REGISTRY_REGISTRY_H
#define KMEM_REGISTRY_REGISTRY_H

/* In angle brackets, so that the simulator's is found where that comes first. */
#include <lang/atomic.h>

enum {
        REGISTRY_VERSION = 1,
        REGISTRY_REQUESTS = 40,
        REGISTRY_ZONES = 8, /* as many as there may be NUMA nodes */
        REGISTRY_KEPT = 16,
        REGISTRY_HEAD_BYTES = 16384, /* the records begin there */
};

enum registry_record {
        RECORD_FREE,
        RECORD_CACHE,
        RECORD_SLOT,
        RECORD_STACK,
        RECORD_NAME,
        RECORD_SAMPLES,
        RECORD_THREAD,
};

/* Begins every record. Records follow each other; each is a multiple of 64 bytes. */
struct registry_record_head {
        uint32_t kind;  /* enum registry_record; release */
        uint32_t bytes; /* size of the record; constant once it exists */
};

/*
 * A request to the process. Readers write under a lock of the file (flock), and only requests that
 * are pending or done: a taken request is being honoured.
 */
enum { REQUEST_NONE, REQUEST_PENDING, REQUEST_DONE, REQUEST_TAKEN };
struct registry_request {
        uint32_t state;
        int32_t error;   /* when done: 0 or an errno */
        uint64_t number; /* counts requests; older requests are honoured first */
        uint64_t birth;  /* birth of the cache; 0: for all caches */
        uint64_t result; /* when done: bytes given back, or of free parts */
        /*
         * The attribute to write (with a birth of 0: guard_sampling of all caches); or "trim",
         * "profile_interval", "profile_slices", "refresh" for the refreshed figures, or
         * "free_parts" and others that begin so (process/requests.c).
         */
        char attribute[32];
        char value[32];
};

/* Pages of the heap on a NUMA node; of 4,096 bytes. */
struct registry_zone {
        uint64_t used_pages; /* in slabs and large blocks */
        uint64_t free_pages;
        uint64_t free_touched_pages; /* free pages not given back to the system since their use */
        uint64_t purged_pages;       /* given back, cumulative */
        uint64_t large_blocks;       /* in the heap */
        uint64_t large_pages;        /* pages of large_blocks */
};

/*
 * A freed block that is kept for reuse, while its zone counts it as in use. Each has a cache line
 * of its own, because different threads change different blocks.
 */
struct registry_kept {
        _Alignas(64) uint64_t block; /* pages << 32 | page number of the first; 0: none */
        uint64_t zero[7];
};

/* With option protect=hardened, in bytes; level 0: without it. */
struct registry_hardened {
        uint64_t level;
        uint64_t slab_bytes;    /* slabs with memory */
        uint64_t large_bytes;   /* large blocks */
        uint64_t waiting_bytes; /* freed objects that wait */
        uint64_t closed_bytes;  /* addresses of freed large blocks that wait, without memory */
};

struct registry_head {
        char magic[8];
        uint32_t version;
        uint32_t head_bytes;
        uint32_t fields_offset; /* the description of all this, see registry_field */
        uint32_t fields;
        uint32_t process;
        uint32_t asked;      /* grows with each request */
        uint64_t namespace;  /* inode of the process's pid namespace, 0: not known */
        uint64_t start_time; /* of the process, clock ticks since boot, 0: not known */
        uint64_t id;         /* tells the files of a process from each other (exec) */
        uint64_t used_bytes; /* end of the records; release */
        uint64_t missing;    /* records that did not fit */
        char release[16];
        uint64_t profile_interval; /* bytes between samples on average; 0: none are taken */
        uint64_t samples_missed;   /* for want of memory, or of room here */
        uint64_t profile_slices;   /* percent of the time to be without sheaves */
        uint64_t slice_ns;         /* time without sheaves so far */
        uint64_t profile_lease_ms; /* how long a request's profile_interval and profile_slices hold
                                      (introspect/profile.h) */
        uint64_t profile_since_ms; /* when sampling began, by system_time_ms; 0: there is none */
        uint64_t profile_old_ms;   /* age from which samples count as old */
        /* Whole pages; the heap's own lie in these addresses, huge blocks elsewhere. */
        uint64_t heap_base;
        uint64_t heap_reserved_bytes;
        uint64_t guards_made; /* sampled guards (profile/guard.h), as struct guard_figures */
        uint64_t guards_live;
        uint64_t guards_missed;
        uint64_t guard_faults;
        uint64_t huge_blocks;
        uint64_t huge_bytes;
        uint64_t huge_kept_bytes;  /* freed mappings kept for reuse */
        uint64_t soft_limit_bytes; /* heap/soft_limit.h; 0: none */
        uint64_t soft_limit_trims;
        uint64_t soft_limit_given_back; /* bytes */
        struct registry_hardened hardened;
        struct registry_kept kept[REGISTRY_KEPT];
        uint64_t zones; /* number of zones that follow */
        struct registry_zone zone[REGISTRY_ZONES];
        struct registry_request requests[REGISTRY_REQUESTS];
};

/* Describes a field, so that readers need to know only this struct. */
enum registry_part {
        PART_HEAD,
        PART_REQUEST,
        PART_CACHE,
        PART_SLOT,
        PART_NODE,
        PART_FLAG,
        PART_ZONE,
        PART_STACK,
        PART_NAME,
        PART_SAMPLES,
        PART_SAMPLE,
        PART_THREAD,
};
struct registry_field {
        char name[32];
        uint16_t part;   /* enum registry_part */
        uint16_t offset; /* in the part */
        uint16_t bytes;
        uint16_t count; /* more than 1: an array */
        uint64_t value; /* PART_FLAG: the bit of the cache's flags; else 1 for text, 0 numbers */
};

/* A slot's figures for a cache. Cumulative, so that taken - given is never below 0. */
struct registry_slot {
        struct registry_record_head head;
        uint64_t birth; /* birth of the cache */
        uint32_t slot;  /* UINT32_MAX: threads without a slot */
        uint64_t taken; /* as in struct engine_slot */
        uint64_t given;
        uint64_t slow_calls; /* calls that found the main sheaf empty or full */
        uint64_t fast_calls; /* least number of the other calls (percpu/calls.h) */
};

/*
 * Samples with a common call stack (profile/sample.h), since the registry was made. Each figure
 * only grows. A sample stands for many objects and bytes that the program got.
 */
enum {
        REGISTRY_FRAMES = 16, /* places in every record, as there always were */
        REGISTRY_CUT = 0,     /* stands in place of the outer frames of a stack that was cut */
};
/*
 * Behind the return addresses of a stack stand the functions in Python that were called
 * (profile/python.h): no addresses, as the highest bit tells.
 */
#define REGISTRY_PYTHON ((uintptr_t)1 << 63)
#define REGISTRY_PYTHON_ENTRY ((uintptr_t)1 << 62) /* C code called the interpreter for it */
enum {
        REGISTRY_LINE_SHIFT = 32, /* of the line in the file */
        REGISTRY_LINE_MOST = (1 << 24) - 1,
        REGISTRY_NAME_MASK = 0xffffff, /* of the name's number; 0: none */
        REGISTRY_NAME_WORDS = 4,       /* places in every record */
};
struct registry_stack {
        struct registry_record_head head;
        uint32_t frames; /* 0 if the stack could not be walked */
        uint64_t samples;
        uint64_t objects; /* in 1/1024 */
        uint64_t bytes;
        uint64_t freed_samples;
        uint64_t freed_objects;
        uint64_t freed_bytes;
        uint64_t slice_samples; /* the part of the first three figures that came in slices */
        uint64_t slice_objects;
        uint64_t slice_bytes;
        uint64_t old_freed_samples; /* the part of the freed figures that was old by then */
        uint64_t old_freed_bytes;
        /*
         * Return addresses, the innermost first. A record with more of them is longer, and the
         * others follow here.
         */
        uint64_t frame[REGISTRY_FRAMES];
};

/* The name of a function in Python, and its file; a longer record has more text. */
struct registry_name {
        struct registry_record_head head;
        uint64_t number;
        uint64_t bytes; /* of the text */
        char text[];    /* function, zero byte, file */
};

/* Places of samples in use (profile/live.h). */
enum {
        REGISTRY_SAMPLES = 64,
        REGISTRY_OLD_MS = 60000, /* profile_old_ms */
};
struct registry_sample {
        uint64_t time_ms; /* of the allocation, by system_time_ms: CLOCK_MONOTONIC */
        uint32_t stack;   /* registry_place_of its stack; 0: no sample. Release */
        uint32_t thread;  /* number, as the thread itself knows it; 0: not known */
        uint64_t objects; /* that it stands for, in 1/1024 */
        uint64_t bytes;
};
struct registry_samples {
        struct registry_record_head head;
        struct registry_sample sample[REGISTRY_SAMPLES];
};

/* A thread with samples. */
struct registry_thread {
        struct registry_record_head head;
        uint64_t thread; /* number; 0: the record is being written */
        uint64_t name[2];
};

static inline size_t registry_stack_bytes(unsigned int frames)
{
        size_t more = frames > REGISTRY_FRAMES ? frames - REGISTRY_FRAMES : 0;

        return sizeof(struct registry_stack) + more * sizeof(uint64_t);
}

struct registry_node {
        uint64_t number; /* the kernel's */
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
        /* The attributes of these names; *_most is the greatest value that may be set. */
        uint32_t object_size;
        uint32_t slab_size;
        uint32_t objs_per_slab;
        uint32_t order;
        uint32_t pages_per_slab;
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
        uint32_t guard_sampling;
        uint32_t remote_node_defrag_ratio;
        uint32_t limit; /* slab's tunables */
        uint32_t batchcount;
        uint32_t shared;
        uint64_t taken; /* slob only, which has no figures for each slot */
        uint64_t given;
        /* Refreshed on request only. */
        uint64_t refreshed; /* times refreshed */
        uint64_t objects_inuse;
        uint64_t cpu_partial_objects;
        uint64_t cpu_partial_slabs;
        uint32_t nodes;
        struct registry_node node[];
};

/* registry.c */

/*
 * The registry of this process. Before it is made, and where there is none, an empty head that only
 * asks for it to be made: then registry->asked and *registry_seen differ.
 */
extern KMEM_HIDDEN struct registry_head *registry;
/*
 * The value of registry->asked up to which all requests are done; the kernel clears it in children.
 */
extern KMEM_HIDDEN uint32_t *registry_seen;
extern KMEM_HIDDEN struct registry_head no_registry; /* the empty head that `registry` points to
                                                        before it is made */
/* Grows each time that a registry is left: figures from before are another process's. */
extern KMEM_HIDDEN uint32_t registry_generation;
/* Honours requests; called on slow paths where no lock of the heap is held behind cache_mutex. */
extern KMEM_HIDDEN void (*registry_honour)(void);

/* Settles whether there may be a registry; early, after the options. */
KMEM_HIDDEN void registry_init(void);
/* Whether the registry is made, possibly by the parent. */
KMEM_HIDDEN bool registry_is_made(void);
/* Counts slow paths; true once there were enough for a registry to be worth while. */
KMEM_HIDDEN bool registry_is_due(void);
/*
 * Makes the file. False: there is no registry and never will be. Records of a parent keep their
 * places in it, but are empty. A single caller at a time.
 */
KMEM_HIDDEN bool registry_make(void);
/* In a child, before it writes a figure: puts memory of its own in place of its parent's file. */
KMEM_HIDDEN void registry_leave(void);
/* Address space that is kept for growth. */
KMEM_HIDDEN size_t registry_room_bytes(void);
/* Gives that address space back: from then on records that do not fit are counted as missing. */
KMEM_HIDDEN void registry_give_up_room(void);
/* The address space no longer counts as locked memory. */
KMEM_HIDDEN void registry_unlock(void);
/* A zeroed record; NULL if there is no registry yet, or no room. */
KMEM_HIDDEN void *registry_alloc(size_t bytes);
/* @bytes as in registry_alloc. NULL is allowed. */
KMEM_HIDDEN void registry_free(void *record, size_t bytes);
/* Makes a filled-in record visible. */
KMEM_HIDDEN void registry_publish(void *record, enum registry_record kind, size_t bytes);
/*
 * Opens the process's file of faults, which lies beside the registry's file and stays when the
 * process has ended, for another line at its end. A descriptor, or less than 0 if there was never a
 * registry. For signal handlers too.
 */
KMEM_HIDDEN long registry_open_faults(void);
/* Removes the file, at the end of the process that made it. */
KMEM_HIDDEN void registry_close(void);

/* The head, made or empty. Acquire: partner of registry_make, which has written it. */
static inline struct registry_head *registry_head(void)
{
        return load_acquire(&registry);
}

/*
 * Up to which value of `asked` all requests are done; 0 in a child that has not left its parent's
 * registry yet. Relaxed: a value from before costs a look in vain, or a request waits for the next
 * slow path.
 */
static inline uint32_t registry_last_seen(void)
{
        return load_relaxed(load_relaxed(&registry_seen));
}

/* Whether it is due to be made, or a request waits in it. */
static inline bool registry_is_asked(void)
{
        return load_relaxed(&registry_head()->asked) != registry_last_seen();
}

/*
 * The head for figures that are shown outside of slow paths of caches: NULL before it is made, and
 * in a child that has not left its parent's registry yet (REG-2).
 */
static inline struct registry_head *registry_head_shown(void)
{
        struct registry_head *head = registry_head();

        return head != &no_registry && registry_last_seen() ? head : NULL;
}

/* Where a record of this process lies in the file, in units of 64 bytes. */
static inline uint32_t registry_place_of(const void *record)
{
        return (uint32_t)(((uintptr_t)record - (uintptr_t)load_relaxed(&registry)) / 64);
}

/*
 * Shows a value that other threads may change, and show, at the same time. Behind the change and in
 * front of the look for a pointer to figures stands fence_behind_change(). A thread stores the
 * figure, and then, behind a fence, checks that the value has not changed since; so the last store
 * is of the last value. With the check before the store a figure could stay behind for good.
 */
static inline void registry_show(uint64_t *figure, const uint64_t *value)
{
        uint64_t seen;

        do {
                seen = load_relaxed(value);
                __atomic_exchange_n(figure, seen, __ATOMIC_SEQ_CST);
                fence_behind_change();
        } while (unlikely(load_relaxed(value) != seen));
}

#endif
