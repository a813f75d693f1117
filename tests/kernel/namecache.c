// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A cache of names in the manner of the directory entry cache.
 *
 * Entries come from a SLAB_TYPESAFE_BY_RCU cache: a freed entry may at once be another name's, but
 * its memory stays an entry as long as anybody is inside a read section. So a lookup walks a chain
 * without locks, takes a reference if the count is not zero, and only then looks whether the entry
 * still (or already) has its name. Chains end in the number of their bucket: a walk that was
 * carried into another chain by a reused entry ends with the wrong number and begins anew.
 *
 * The constructor sets up the fields that survive a free: lock, list heads, and a count of zero,
 * which keeps lookups away from entries that were never used.
 *
 * Locks: nc_lock (chains, lru list, counters) outside of an entry's lock (its name).
 */
#include <linux/atomic.h>
#include <linux/bug.h>
#include <linux/errno.h>
#include <linux/hash.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/rculist_nulls.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "namecache.h"

#define NC_BITS 8
#define NC_BUCKETS (1u << NC_BITS)
#define NC_INLINE 24
#define NC_NAME_MAX 255

/* entry->flags, under nc_lock but for NC_REFERENCED, which lookups set at any time */
#define NC_HASHED 0
#define NC_REFERENCED 1

struct nc_entry {
        /* Kept over free and reuse. */
        spinlock_t lock;
        refcount_t count;
        struct hlist_nulls_node node;
        struct list_head lru;

        /* Valid while the count is not zero. */
        unsigned long flags;
        u64 parent;
        u64 ino;
        u32 hash;
        u32 length;
        const char *name; /* short_name, or memory of its own */
        char short_name[NC_INLINE];
};

static struct kmem_cache *nc_cache __read_mostly;
static struct hlist_nulls_head nc_table[NC_BUCKETS];
static DEFINE_SPINLOCK(nc_lock);
static LIST_HEAD(nc_lru); /* least recently added or spared first */
static unsigned long nc_hashed;
static atomic_long_t nc_alive = ATOMIC_LONG_INIT(0);

static void nc_construct(void *object)
{
        struct nc_entry *entry = object;

        spin_lock_init(&entry->lock);
        refcount_set(&entry->count, 0);
        entry->node.pprev = NULL;
        INIT_LIST_HEAD(&entry->lru);
}

static u32 nc_hash(u64 parent, const char *name, u32 length)
{
        u64 hash = parent;
        u32 i;

        for (i = 0; i < length; i++)
                hash = (hash ^ (u8)name[i]) * GOLDEN_RATIO_64;
        return hash_64(hash, 32);
}

static struct hlist_nulls_head *nc_bucket(u32 hash)
{
        return &nc_table[hash >> (32 - NC_BITS)];
}

static void nc_free(struct nc_entry *entry)
{
        WARN_ON_ONCE(!list_empty(&entry->lru));
        WARN_ON_ONCE(test_bit(NC_HASHED, &entry->flags));
        if (entry->name != entry->short_name)
                kfree_const(entry->name);
        atomic_long_dec(&nc_alive);
        kmem_cache_free(nc_cache, entry);
}

struct nc_entry *nc_hold(struct nc_entry *entry)
{
        refcount_inc(&entry->count);
        return entry;
}

void nc_put(struct nc_entry *entry)
{
        if (entry && refcount_dec_and_test(&entry->count))
                nc_free(entry);
}

u64 nc_ino(const struct nc_entry *entry)
{
        return entry->ino;
}

/* A copy of a name, in @entry if it is short. */
static const char *nc_copy_name(struct nc_entry *entry, const char *name, u32 length)
{
        if (length < NC_INLINE) {
                memcpy(entry->short_name, name, length + 1);
                return entry->short_name;
        }
        return kmemdup_nul(name, length, GFP_KERNEL);
}

static struct nc_entry *nc_alloc(u64 parent, const char *name, u32 length, u64 ino)
{
        struct nc_entry *entry = kmem_cache_alloc(nc_cache, GFP_KERNEL);

        if (!entry)
                return NULL;
        WARN_ON_ONCE(refcount_read(&entry->count) != 0);
        WARN_ON_ONCE(!list_empty(&entry->lru));
        entry->flags = 0;
        entry->parent = parent;
        entry->ino = ino;
        entry->length = length;
        entry->name = nc_copy_name(entry, name, length);
        if (!entry->name) {
                kmem_cache_free(nc_cache, entry);
                return NULL;
        }
        WRITE_ONCE(entry->hash, nc_hash(parent, name, length));
        atomic_long_inc(&nc_alive);
        /* From here on a lookup that still stands here may take a reference. */
        refcount_set_release(&entry->count, 1);
        return entry;
}

static bool nc_name_equal(const struct nc_entry *entry, u64 parent, const char *name, u32 length)
{
        return entry->parent == parent && entry->length == length &&
               memcmp(entry->name, name, length) == 0;
}

bool nc_is(struct nc_entry *entry, u64 parent, const char *name)
{
        bool equal;

        spin_lock(&entry->lock);
        equal = nc_name_equal(entry, parent, name, (u32)strlen(name)) &&
                test_bit(NC_HASHED, &entry->flags);
        spin_unlock(&entry->lock);
        return equal;
}

/*
 * A candidate of a walk: takes a reference if the name is right. The hash matched a moment ago, but
 * that is not certain without a reference.
 */
static bool nc_try_get(struct nc_entry *entry, u64 parent, const char *name, u32 length)
{
        bool equal;

        if (!refcount_inc_not_zero(&entry->count))
                return false;
        spin_lock(&entry->lock);
        equal = nc_name_equal(entry, parent, name, length) && test_bit(NC_HASHED, &entry->flags);
        spin_unlock(&entry->lock);
        if (!equal)
                nc_put(entry);
        return equal;
}

struct nc_entry *nc_get(u64 parent, const char *name)
{
        u32 length = (u32)strlen(name);
        u32 hash = nc_hash(parent, name, length);
        struct hlist_nulls_head *bucket = nc_bucket(hash);
        struct hlist_nulls_node *node;
        struct nc_entry *entry;

        rcu_read_lock();
again:
        hlist_nulls_for_each_entry_rcu (entry, node, bucket, node) {
                if (READ_ONCE(entry->hash) != hash)
                        continue;
                if (nc_try_get(entry, parent, name, length)) {
                        set_bit(NC_REFERENCED, &entry->flags);
                        rcu_read_unlock();
                        return entry;
                }
        }
        if (get_nulls_value(node) != (unsigned long)(bucket - nc_table))
                goto again;
        rcu_read_unlock();
        return NULL;
}
EXPORT_SYMBOL_GPL(nc_get);

u64 nc_lookup(u64 parent, const char *name)
{
        struct nc_entry *entry = nc_get(parent, name);
        u64 ino = entry ? entry->ino : 0;

        nc_put(entry);
        return ino;
}
EXPORT_SYMBOL_GPL(nc_lookup);

/* ---- Changes, under nc_lock -------------------------------------------------------------- */

static struct nc_entry *nc_find_locked(u64 parent, const char *name)
{
        u32 length = (u32)strlen(name);
        u32 hash = nc_hash(parent, name, length);
        struct hlist_nulls_node *node;
        struct nc_entry *entry;

        lockdep_assert_held(&nc_lock);
        hlist_nulls_for_each_entry (entry, node, nc_bucket(hash), node) {
                if (entry->hash == hash && nc_name_equal(entry, parent, name, length))
                        return entry;
        }
        return NULL;
}

/* The table's reference is the caller's until then. */
static void nc_hash_locked(struct nc_entry *entry)
{
        set_bit(NC_HASHED, &entry->flags);
        list_add_tail(&entry->lru, &nc_lru);
        nc_hashed++;
        hlist_nulls_add_head_rcu(&entry->node, nc_bucket(entry->hash));
}

/* The reference is the caller's afterwards. */
static void nc_unhash_locked(struct nc_entry *entry)
{
        spin_lock(&entry->lock);
        clear_bit(NC_HASHED, &entry->flags);
        spin_unlock(&entry->lock);
        hlist_nulls_del_init_rcu(&entry->node);
        list_del_init(&entry->lru);
        nc_hashed--;
}

int nc_add(u64 parent, const char *name, u64 ino)
{
        size_t length = strlen(name);
        struct nc_entry *entry;

        if (length > NC_NAME_MAX)
                return -ENAMETOOLONG;
        entry = nc_alloc(parent, name, (u32)length, ino);
        if (!entry)
                return -ENOMEM;
        spin_lock(&nc_lock);
        if (nc_find_locked(parent, name)) {
                spin_unlock(&nc_lock);
                nc_put(entry);
                return -EEXIST;
        }
        nc_hash_locked(entry);
        spin_unlock(&nc_lock);
        return 0;
}
EXPORT_SYMBOL_GPL(nc_add);

int nc_remove(u64 parent, const char *name)
{
        struct nc_entry *entry;

        spin_lock(&nc_lock);
        entry = nc_find_locked(parent, name);
        if (entry)
                nc_unhash_locked(entry);
        spin_unlock(&nc_lock);
        if (!entry)
                return -ENOENT;
        nc_put(entry);
        return 0;
}
EXPORT_SYMBOL_GPL(nc_remove);

/*
 * Gives the new name to the entry itself, so that references stay good. Lookups compare names under
 * the entry's lock, so they see either the old or the new name.
 */
static void nc_rename_locked(struct nc_entry *entry, struct nc_entry *named)
{
        const char *old_name = entry->name;
        bool old_is_short = old_name == entry->short_name;
        bool new_is_short = named->name == named->short_name;

        hlist_nulls_del_init_rcu(&entry->node);
        spin_lock(&entry->lock);
        entry->parent = named->parent;
        entry->length = named->length;
        WRITE_ONCE(entry->hash, named->hash);
        if (new_is_short)
                memcpy(entry->short_name, named->short_name, NC_INLINE);
        entry->name = new_is_short ? entry->short_name : named->name;
        spin_unlock(&entry->lock);
        hlist_nulls_add_head_rcu(&entry->node, nc_bucket(entry->hash));

        /* The helper dies with the old name. */
        named->name = old_is_short ? named->short_name : old_name;
}

int nc_rename(u64 parent, const char *name, u64 new_parent, const char *new_name)
{
        size_t length = strlen(new_name);
        struct nc_entry *named;
        struct nc_entry *entry;
        int error = 0;

        if (length > NC_NAME_MAX)
                return -ENAMETOOLONG;
        named = nc_alloc(new_parent, new_name, (u32)length, 0);
        if (!named)
                return -ENOMEM;
        spin_lock(&nc_lock);
        entry = nc_find_locked(parent, name);
        if (!entry)
                error = -ENOENT;
        else if (nc_find_locked(new_parent, new_name))
                error = -EEXIST;
        else
                nc_rename_locked(entry, named);
        spin_unlock(&nc_lock);
        nc_put(named);
        return error;
}
EXPORT_SYMBOL_GPL(nc_rename);

/* ---- Reclaim ----------------------------------------------------------------------------- */

/* Moves up to @count entries to @dispose; entries that were looked up get a second round. */
static unsigned long nc_isolate_locked(struct list_head *dispose, unsigned long count)
{
        unsigned long scan = 2 * nc_hashed;
        unsigned long isolated = 0;

        while (isolated < count && scan-- && !list_empty(&nc_lru)) {
                struct nc_entry *entry = list_first_entry(&nc_lru, struct nc_entry, lru);

                if (test_and_clear_bit(NC_REFERENCED, &entry->flags)) {
                        list_move_tail(&entry->lru, &nc_lru);
                        continue;
                }
                nc_unhash_locked(entry);
                list_add_tail(&entry->lru, dispose);
                isolated++;
        }
        return isolated;
}

unsigned long nc_prune(unsigned long count)
{
        struct nc_entry *entry;
        struct nc_entry *next;
        unsigned long isolated;
        LIST_HEAD(dispose);

        spin_lock(&nc_lock);
        isolated = nc_isolate_locked(&dispose, count);
        spin_unlock(&nc_lock);
        list_for_each_entry_safe (entry, next, &dispose, lru) {
                list_del_init(&entry->lru);
                nc_put(entry);
        }
        return isolated;
}
EXPORT_SYMBOL_GPL(nc_prune);

void nc_shrink(void)
{
        kmem_cache_shrink(nc_cache);
}

unsigned long nc_count(void)
{
        return READ_ONCE(nc_hashed);
}

unsigned long nc_entries(void)
{
        return (unsigned long)atomic_long_read(&nc_alive);
}

static int __init nc_init(void)
{
        unsigned int bucket;

        for (bucket = 0; bucket < NC_BUCKETS; bucket++)
                INIT_HLIST_NULLS_HEAD(&nc_table[bucket], bucket);
        nc_cache = kmem_cache_create("nc_entry", sizeof(struct nc_entry), 0,
                                     SLAB_TYPESAFE_BY_RCU | SLAB_RECLAIM_ACCOUNT, nc_construct);
        return nc_cache ? 0 : -ENOMEM;
}

static void __exit nc_exit(void)
{
        nc_prune(ULONG_MAX);
        nc_prune(ULONG_MAX);
        WARN(nc_count(), "names are left\n");
        kmem_cache_destroy(nc_cache);
}

module_init(nc_init);
module_exit(nc_exit);

MODULE_DESCRIPTION("cache of names with lock-free lookup");
MODULE_LICENSE("Dual MIT/GPL");
