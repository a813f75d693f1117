/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Settings, all with a common syntax, parser and variable. KMEM_OPTIONS holds "name=value"
 * separated by commas; "cache.name=value" sets a value for a single cache. Unknown names and bad
 * values are reported once on standard error, with the names or values that exist, and the program
 * starts with the default.
 */
#ifndef KMEM_BASE_OPTIONS_H
#define KMEM_BASE_OPTIONS_H

#include "machine/system.h"

enum bad_free { BAD_FREE_ABORT, BAD_FREE_IGNORE, BAD_FREE_LIBC };
enum slot_source { SLOTS_AUTO, SLOTS_RSEQ, SLOTS_LOCKED };
enum registry_mode { REGISTRY_AUTO, REGISTRY_ON, REGISTRY_OFF };
enum free_check { CHECK_DRAIN, CHECK_SHEAF };
enum protect { PROTECT_NONE, PROTECT_HARDENED };
enum bulk_null { BULK_NULL_SKIP, BULK_NULL_REFUSE };
enum size_classes { CLASSES_AUTO, CLASSES_FINE, CLASSES_KERNEL };
enum cpu_partial_accounting { ACCOUNT_SLABS, ACCOUNT_OBJECTS };
enum cpu_partial_defaults { DEFAULTS_LATER, DEFAULTS_SEED };
enum freeze { FREEZE_DELAYED, FREEZE_EAGER };
enum order_rule { ORDER_RULE_6_12, ORDER_RULE_5_10 };
enum numa { NUMA_AUTO, NUMA_OFF };
enum sheaf_rule { SHEAVES_STOCKED, SHEAVES_7_0 };
enum remote_frees { REMOTE_TO_SHEAF, REMOTE_TO_SLAB };
enum free_pointer { FREE_POINTER_TABLE, FREE_POINTER_OBJECT };
enum slob_compat { SLOB_COMPAT_NONE, SLOB_COMPAT_2_6_24 };

/* Letters of option debug, as bits, in the order of its table (S9-20). */
enum debug_letters {
        DEBUG_CHECKS = 1 << 0,                                                 /* F */
        DEBUG_RED_ZONE = 1 << 1,                                               /* Z */
        DEBUG_POISON = 1 << 2,                                                 /* P */
        DEBUG_USER = 1 << 3,                                                   /* U */
        DEBUG_TRACE = 1 << 4,                                                  /* T */
        DEBUG_FAILSLAB = 1 << 5,                                               /* A */
        DEBUG_KEEP_ORDER = 1 << 6,                                             /* O */
        DEBUG_ALL = DEBUG_CHECKS | DEBUG_RED_ZONE | DEBUG_POISON | DEBUG_USER, /* FZPU */
};

/* Ascending numbers of bytes. */
struct size_list {
        uint32_t count;
        uint32_t sizes[8];
};

/*
 * The requests of marked caches that fail (heap/failslab.h), in the order of the kernel's
 * failslab=.
 */
struct failslab_rule {
        uint64_t interval;    /* only every interval-th request may fail */
        uint64_t probability; /* in percent; 0: none fails */
        uint64_t space;       /* bytes of requests that pass first */
        uint64_t times;       /* most requests that fail */
};

enum { SLAB_MAX_ORDER_AUTO = 0xff };

enum reclaim_thread { RECLAIM_AUTO, RECLAIM_ON, RECLAIM_OFF };

enum { SOFT_LIMIT_LEAST = 1 << 20 };
#define SOFT_LIMIT_AUTO UINT64_MAX

enum thp { THP_AUTO, THP_ALWAYS, THP_NEVER };

struct options {
        uint64_t slots;          /* enum slot_source */
        uint64_t classes;        /* enum size_classes */
        uint64_t slab_merge;     /* 0 or 1 */
        uint64_t order_cpus;     /* enum cpu_count */
        uint64_t order_rule;     /* enum order_rule */
        uint64_t kernel;         /* position in KERNEL_VERSIONS, 0: none */
        uint64_t slub_min_order; /* at most slub_max_order (S3-02) */
        uint64_t slub_max_order;
        uint64_t slub_min_objects; /* 0: from the CPU count */
        uint64_t slab_max_order;   /* S6-20; SLAB_MAX_ORDER_AUTO: from the size of memory */
        uint64_t noaliencache;     /* 0 or 1 (S9-24) */
        uint64_t numa;             /* enum numa */
        uint64_t numa_fake;        /* nodes in place of the real nodes, 1: the real nodes (S9-25) */
        uint64_t node_limit;       /* bytes of heap that each node's zone may have, 0: no limit */
        uint64_t slot_cache_max;   /* bytes of free objects a slot may hold in stocks */
        uint64_t reserve;          /* bytes of address space for the heap, 0: chosen */
        uint64_t purge_delay;      /* ms until free pages go back to the system */
        uint64_t thp;              /* enum thp: transparent huge pages */
        uint64_t reclaim_thread;   /* enum reclaim_thread */
        uint64_t huge_cache_max;   /* bytes of freed huge mappings kept */
        uint64_t soft_limit;       /* bytes that the heap may hold before it is trimmed, 0: no
                                      limit, SOFT_LIMIT_AUTO: as the control group allows */
        uint64_t memory_limit;     /* bytes that the process may have in use, 0: no limit */
        uint64_t bad_free;         /* enum bad_free */
        uint64_t check;            /* enum free_check */
        uint64_t protect;          /* enum protect */
        uint64_t bulk_null;        /* enum bulk_null (S5-07) */
        uint64_t registry;         /* enum registry_mode: whether other processes can see the
                                      figures */
        uint64_t profile_interval; /* bytes between samples of the profile, 0: none */
        uint64_t profile_slices;   /* percent of the time without sheaves, for the profile */
        uint64_t slabinfo_pid;     /* process that writes slabinfo, 0: any */
        uint64_t attrs_pid;        /* process that writes attrs, 0: any */
        uint64_t slob_compat;      /* enum slob_compat */
        uint64_t debug_abort;      /* 0 or 1: the first report of debugging ends the process */
        struct failslab_rule failslab;
        struct size_list slob_breaks; /* block sizes that divide SLOB's page lists (S7.4) */
        char slabinfo[256];           /* file to write at exit, "-" standard error, "" none */
        char attrs[256];              /* directory for the attributes at exit, "" none */
        char record[256];             /* file that allocations are recorded in, "" none */
};
extern KMEM_HIDDEN struct options options;

/* The greatest values of engine slab's tunables, set here or later. */
enum { TUNABLE_LIMIT_MAX = 65535, TUNABLE_SHARED_MAX = 1024 };

/* The most objects of a sheaf, and sheaves of each kind in a barn. */
enum { SHEAF_CAPACITY_MAX = 1022, BARN_MAX = 1000 };

/* Options that may be set for all caches or for a single cache. */
enum cache_option {
        OPTION_ENGINE,         /* position in the list of engines, engine_by_number */
        OPTION_SHEAF_CAPACITY, /* objects a sheaf holds; 0: no sheaves */
        OPTION_MIN_PARTIAL,
        OPTION_CPU_PARTIAL,
        OPTION_CPU_PARTIAL_ACCOUNTING, /* enum cpu_partial_accounting */
        OPTION_CPU_PARTIAL_DEFAULTS,   /* enum cpu_partial_defaults */
        OPTION_FREEZE,                 /* enum freeze */
        OPTION_CPU_SLABS,              /* 0 or 1: slub keeps a CPU slab and a CPU partial list */
        OPTION_SHEAF_RULE,             /* enum sheaf_rule */
        OPTION_BARN_FULL,              /* full sheaves that a barn keeps */
        OPTION_BARN_EMPTY,             /* empty sheaves that a barn keeps */
        OPTION_REMOTE_FREES,           /* enum remote_frees; with SHEAVES_7_0 */
        OPTION_FREE_POINTER,           /* enum free_pointer */
        OPTION_STATS,                  /* 0 or 1 */
        OPTION_LIMIT,                  /* the tunables of engine slab (S6-51) */
        OPTION_BATCHCOUNT,
        OPTION_SHARED,
        OPTION_DEBUG,          /* enum debug_letters */
        OPTION_GUARD_SAMPLING, /* one in how many allocations is guarded; 0: none */
        CACHE_OPTIONS,
};

/* Whether KMEM_OPTIONS is set, to any value. */
KMEM_HIDDEN bool options_are_given(void);
/* Parses KMEM_OPTIONS into options; single-threaded, after system_init. */
KMEM_HIDDEN void options_init(void);
/* Whether all of a text like KMEM_OPTIONS can be taken; a message names the first fault. Not in a
   process that has a heap. */
KMEM_HIDDEN bool options_are_right(const char *given);

/* The origin of a cache's value; a later origin wins. */
enum option_source { OPTION_UNSET, OPTION_FOR_ALL, OPTION_FOR_PREFIX, OPTION_FOR_NAME };

/*
 * The value set for this cache, else for all caches; *value stays if neither is set. A cache's full
 * name wins over a name up to a '*' (as slab_debug matches, S9-22).
 */
KMEM_HIDDEN enum option_source options_for_cache(const char *cache_name, enum cache_option option,
                                                 uint64_t *value);
/* All values given for an option that is made of bits, put together. */
KMEM_HIDDEN uint64_t options_given(enum cache_option option);
/* The value that options_for_cache finds, or @otherwise if none is set. */
KMEM_HIDDEN uint64_t options_for_cache_or(const char *cache_name, enum cache_option option,
                                          uint64_t otherwise);

#endif
