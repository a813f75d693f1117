/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Memory groups: records with limits, and the charging of live bytes to them (S11).
 *
 * A charge goes to a group and all its ancestors. Under group_lock all levels are checked, then all
 * are raised, so that no level is ever above its limit, nothing is added and undone, and a repeated
 * order of calls is refused at the same byte again. Free objects that rest in sheaves and slabs
 * belong to no group.
 *
 * Invariants:
 *  GROUP-1  bytes <= limit for every charge that was granted; a limit that is set below the bytes
 *           in use refuses charges until enough was freed.
 *  GROUP-2  A group's bytes and objects are its own and its descendants', zombies included.
 *  GROUP-3  A record lives while its group is alive, or has bytes left (a zombie). Records are
 *           reused and never given back, so a stale pointer may be read; its generation tells that
 *           it is stale.
 */
#ifndef KMEM_ACCOUNT_GROUP_H
#define KMEM_ACCOUNT_GROUP_H

#include "lang/list.h"
#include "machine/lock.h"

enum { GROUP_NAME_BYTES = 48 };

enum group_state { GROUP_FREE, GROUP_ALIVE, GROUP_ZOMBIE };

struct kmem_group {
        size_t bytes; /* charged; all under group_lock, read relaxed for hints */
        size_t objects;
        size_t limit;    /* SIZE_MAX: none */
        size_t peak;     /* the highest value of bytes so far */
        size_t refusals; /* requests that this group's limit refused */
        size_t unowned;  /* objects without a charge because no owner could be noted */
        struct kmem_group *parent;
        uint32_t state;      /* enum group_state */
        uint32_t generation; /* rises when the group ends; relaxed reads find stale pointers */
        uint32_t children;   /* alive ones */
        struct list list;    /* all but free ones, oldest first */
        char name[GROUP_NAME_BYTES];
};

/*
 * Protects all records and the list. Only metadata_lock is taken under it. Nobody sleeps until
 * woken on this lock, so it is dropped with a plain store, unlike the other locks. That saves 30 of
 * the 110 cycles that an accounted object cost.
 */
struct group_lock {
        uint32_t held; /* 0 or 1; taken with acquire, dropped with release */
} __attribute__((aligned(CACHE_LINE)));
extern KMEM_HIDDEN struct group_lock group_lock;

KMEM_HIDDEN void group_lock_wait(void);

static inline bool group_lock_try(void)
{
        uint32_t expected = 0;

        return !load_relaxed(&group_lock.held) &&
               compare_swap_acquire(&group_lock.held, &expected, 1);
}

static inline void group_lock_take(void)
{
        if (unlikely(!group_lock_try()))
                group_lock_wait();
}

/* Also in a forked child, which has no thread that holds the lock. */
static inline void group_lock_drop(void)
{
        store_release(&group_lock.held, 0);
}

/* The group that everything of the process is charged to, or NULL; set before the first cache. */
extern KMEM_HIDDEN struct kmem_group *process_group;

/* Makes the process's group with a limit; single-threaded, at the start. */
KMEM_HIDDEN void group_limit_process(size_t limit_bytes);

/* Whether a group was ever made; from then on caches with SLAB_ACCOUNT are closed. */
KMEM_HIDDEN bool groups_are_on(void);
KMEM_HIDDEN void groups_turn_on(void);

/* Makes a group. NULL without memory, or with *error EINVAL if the parent is not alive. */
KMEM_HIDDEN struct kmem_group *group_make(const char *name, struct kmem_group *parent,
                                          size_t limit_bytes, int *error);
/* Ends a group; returns the objects still charged to it, or -1 with *error. */
KMEM_HIDDEN long group_end(struct kmem_group *group, int *error);

/* For both functions NULL means the process's group; false if there is none or it has ended. */
KMEM_HIDDEN bool group_change_limit(struct kmem_group *group, size_t limit_bytes);
KMEM_HIDDEN bool group_read(struct kmem_group *group, struct kmem_group *copy);

/* The groups and zombies by age, 0 the oldest, for tables; false beyond the last. */
KMEM_HIDDEN bool group_read_number(size_t number, struct kmem_group *copy,
                                   char parent[GROUP_NAME_BYTES]);

/* The calling thread's group; NULL for the process's. */
KMEM_HIDDEN struct kmem_group *group_current(void);
/* Makes a group the calling thread's; false if it is not alive. NULL is allowed. */
KMEM_HIDDEN bool group_enter(struct kmem_group *group);

/*
 * Charges @count times @bytes to the thread's group if @accounted, else to the process's. *owner is
 * the group to uncharge later; NULL if there is none, which is success too. False if a limit
 * refuses.
 */
KMEM_HIDDEN bool group_charge(bool accounted, size_t count, size_t bytes,
                              struct kmem_group **owner);
/*
 * Raises the charge of an object that a group owns already. False if a limit refuses; the refusal
 * is not counted, because the caller asks for a new object instead.
 */
KMEM_HIDDEN bool group_charge_more(struct kmem_group *owner, size_t bytes);
/* Lowers the charge of an object. */
KMEM_HIDDEN void group_charge_less(struct kmem_group *owner, size_t bytes);
/* Takes a charge back. A zombie's record ends with its last byte. */
KMEM_HIDDEN void group_uncharge(struct kmem_group *owner, size_t count, size_t bytes);
/* group_uncharge for objects that are handed out without an owner, because it cannot be noted. */
KMEM_HIDDEN void group_disown(struct kmem_group *owner, size_t count, size_t bytes);

#endif
