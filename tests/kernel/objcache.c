// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A cache of objects in the manner of the inode cache.
 *
 * An object is on a hash chain while it is cached; on the lru list while nobody holds it and it is
 * clean; on the dirty list while it is to be written. A slab object embeds it together with the
 * file system's part (attributes), and container_of finds the slab object; the constructor makes
 * the part that stays over reuse. Lookups walk the chains in read sections, so objects are freed by
 * call_rcu.
 *
 * State of an object: NEW while its creator reads it in (others wait for it), then valid, DIRTY or
 * not, and FREEING once the shrinker has decided (then nobody finds it any more).
 *
 * Locks, outermost first: obj_hash_lock, obj->lock, obj_lru_lock.
 */
#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/bug.h>
#include <linux/err.h>
#include <linux/errno.h>
#include <linux/hashtable.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "objcache.h"

#define OBJ_HASH_BITS 9

/* obj->state, under obj->lock */
#define OBJ_NEW BIT(0)
#define OBJ_DIRTY BIT(1)
#define OBJ_FREEING BIT(2)
#define OBJ_BAD BIT(3)

struct obj {
        spinlock_t lock;
        int count; /* references; under lock */
        unsigned long state;
        u64 number;
        u64 size;
        struct hlist_node hash;
        struct list_head lru;   /* under obj_lru_lock */
        struct list_head dirty; /* under obj_lru_lock */
        struct rcu_head rcu;
};

/* The file system's part. */
struct fs_obj {
        struct mutex attribute_lock;
        struct list_head attributes;
        unsigned int attribute_count;
        struct obj vfs;
};

/* Found by name without the lock; freed by kfree_rcu, the value is its lock holder's alone. */
struct fs_attribute {
        struct list_head list;
        struct rcu_head rcu;
        void *value;
        u32 bytes;
        char name[];
};

static struct kmem_cache *fs_obj_cache __read_mostly;
static DEFINE_HASHTABLE(obj_table, OBJ_HASH_BITS);
static DEFINE_SPINLOCK(obj_hash_lock);
static DEFINE_SPINLOCK(obj_lru_lock);
static LIST_HEAD(obj_lru);
static LIST_HEAD(obj_dirty_list);
static unsigned long obj_lru_count;
static unsigned long obj_dirty_count;
static atomic_long_t obj_count = ATOMIC_LONG_INIT(0);
static const struct obj_store *obj_store;

static struct fs_obj *fs_obj(struct obj *obj)
{
        return container_of(obj, struct fs_obj, vfs);
}

void obj_set_store(const struct obj_store *store)
{
        obj_store = store;
}

/* ---- Life -------------------------------------------------------------------------------- */

static void fs_obj_init_once(void *object)
{
        struct fs_obj *fs = object;

        mutex_init(&fs->attribute_lock);
        INIT_LIST_HEAD(&fs->attributes);
        fs->attribute_count = 0;
        spin_lock_init(&fs->vfs.lock);
        INIT_HLIST_NODE(&fs->vfs.hash);
        INIT_LIST_HEAD(&fs->vfs.lru);
        INIT_LIST_HEAD(&fs->vfs.dirty);
}

static struct obj *obj_alloc(u64 number)
{
        struct fs_obj *fs = kmem_cache_alloc_lru(fs_obj_cache, NULL, GFP_NOFS);

        if (!fs)
                return NULL;
        WARN_ON_ONCE(!list_empty(&fs->attributes) || fs->attribute_count);
        WARN_ON_ONCE(!list_empty(&fs->vfs.lru) || !list_empty(&fs->vfs.dirty));
        WARN_ON_ONCE(!hlist_unhashed(&fs->vfs.hash));
        fs->vfs.count = 1;
        fs->vfs.state = OBJ_NEW;
        fs->vfs.number = number;
        fs->vfs.size = 0;
        atomic_long_inc(&obj_count);
        return &fs->vfs;
}

static void fs_attribute_free(struct fs_attribute *attribute)
{
        kfree_sensitive(attribute->value);
        kfree_rcu(attribute, rcu);
}

static void obj_free_rcu(struct rcu_head *head)
{
        struct obj *obj = container_of(head, struct obj, rcu);

        kmem_cache_free(fs_obj_cache, fs_obj(obj));
}

/* The object is off all lists and nobody holds it; readers may still stand on it. */
static void obj_destroy(struct obj *obj)
{
        struct fs_obj *fs = fs_obj(obj);
        struct fs_attribute *attribute;
        struct fs_attribute *next;

        WARN_ON_ONCE(obj->count || !(obj->state & OBJ_FREEING));
        list_for_each_entry_safe (attribute, next, &fs->attributes, list) {
                list_del_rcu(&attribute->list);
                fs_attribute_free(attribute);
        }
        fs->attribute_count = 0;
        atomic_long_dec(&obj_count);
        call_rcu(&obj->rcu, obj_free_rcu);
}

/* ---- Lists ------------------------------------------------------------------------------- */

static void obj_lru_add(struct obj *obj)
{
        spin_lock(&obj_lru_lock);
        if (list_empty(&obj->lru)) {
                list_add_tail(&obj->lru, &obj_lru);
                obj_lru_count++;
        }
        spin_unlock(&obj_lru_lock);
}

static void obj_lru_del(struct obj *obj)
{
        spin_lock(&obj_lru_lock);
        if (!list_empty(&obj->lru)) {
                list_del_init(&obj->lru);
                obj_lru_count--;
        }
        spin_unlock(&obj_lru_lock);
}

/* obj->lock is held, and somebody holds the object. */
static void obj_mark_dirty_locked(struct obj *obj)
{
        if (obj->state & OBJ_DIRTY)
                return;
        obj->state |= OBJ_DIRTY;
        spin_lock(&obj_lru_lock);
        list_add_tail(&obj->dirty, &obj_dirty_list);
        obj_dirty_count++;
        spin_unlock(&obj_lru_lock);
}

unsigned long obj_unused(void)
{
        return READ_ONCE(obj_lru_count);
}

unsigned long obj_dirty(void)
{
        return READ_ONCE(obj_dirty_count);
}

unsigned long obj_cached(void)
{
        return (unsigned long)atomic_long_read(&obj_count);
}

/* ---- Finding ----------------------------------------------------------------------------- */

/* A reference, unless the object is on its way out. */
static bool obj_try_hold(struct obj *obj, u64 number)
{
        bool held = false;

        spin_lock(&obj->lock);
        if (obj->number == number && !(obj->state & (OBJ_FREEING | OBJ_BAD))) {
                if (!obj->count++)
                        obj_lru_del(obj);
                held = true;
        }
        spin_unlock(&obj->lock);
        return held;
}

/* Whoever reads the object in takes the mark away. Gives the reference up if that failed. */
static struct obj *obj_wait_until_read(struct obj *obj)
{
        bool bad;

        while (READ_ONCE(obj->state) & OBJ_NEW)
                cond_resched();
        spin_lock(&obj->lock);
        bad = obj->state & OBJ_BAD;
        spin_unlock(&obj->lock);
        if (!bad)
                return obj;
        obj_put(obj);
        return NULL;
}

struct obj *obj_find(u64 number)
{
        struct obj *obj;

        rcu_read_lock();
        hash_for_each_possible_rcu (obj_table, obj, hash, number) {
                if (READ_ONCE(obj->number) == number && obj_try_hold(obj, number))
                        break;
        }
        rcu_read_unlock();
        return obj ? obj_wait_until_read(obj) : NULL;
}
EXPORT_SYMBOL(obj_find);

/*
 * Hashes a new object. If another thread has been quicker, takes a reference to that thread's
 * object.
 */
static struct obj *obj_insert(struct obj *new_obj)
{
        struct obj *obj;

        spin_lock(&obj_hash_lock);
        hash_for_each_possible (obj_table, obj, hash, new_obj->number) {
                if (obj->number == new_obj->number && obj_try_hold(obj, obj->number))
                        break;
        }
        if (!obj)
                hash_add_rcu(obj_table, &new_obj->hash, new_obj->number);
        spin_unlock(&obj_hash_lock);
        return obj;
}

static void obj_unhash(struct obj *obj)
{
        spin_lock(&obj_hash_lock);
        hash_del_rcu(&obj->hash);
        spin_unlock(&obj_hash_lock);
}

/* Reads a new object in, and wakes the threads that wait for it. */
static int obj_read(struct obj *obj)
{
        u64 size = 0;
        int error = obj_store ? obj_store->read(obj->number, &size) : -ENODEV;

        spin_lock(&obj->lock);
        obj->size = size;
        if (error)
                obj->state |= OBJ_BAD;
        obj->state &= ~OBJ_NEW;
        spin_unlock(&obj->lock);
        return error;
}

struct obj *obj_get(u64 number)
{
        struct obj *obj = obj_find(number);
        struct obj *old;
        int error;

        if (obj)
                return obj;
        obj = obj_alloc(number);
        if (!obj)
                return ERR_PTR(-ENOMEM);
        old = obj_insert(obj);
        if (old) {
                obj->count = 0;
                obj->state = OBJ_FREEING;
                obj_destroy(obj);
                obj = obj_wait_until_read(old);
                return obj ? obj : ERR_PTR(-EIO);
        }
        error = obj_read(obj);
        if (error) {
                obj_put(obj);
                return ERR_PTR(error);
        }
        return obj;
}
EXPORT_SYMBOL(obj_get);

struct obj *obj_hold(struct obj *obj)
{
        spin_lock(&obj->lock);
        WARN_ON_ONCE(!obj->count);
        obj->count++;
        spin_unlock(&obj->lock);
        return obj;
}
EXPORT_SYMBOL(obj_hold);

void obj_put(struct obj *obj)
{
        bool destroy = false;

        if (IS_ERR_OR_NULL(obj))
                return;
        spin_lock(&obj->lock);
        WARN_ON_ONCE(obj->count <= 0);
        if (!--obj->count) {
                if (obj->state & OBJ_BAD) {
                        obj->state |= OBJ_FREEING;
                        destroy = true;
                } else if (!(obj->state & OBJ_DIRTY)) {
                        obj_lru_add(obj);
                }
        }
        spin_unlock(&obj->lock);
        if (destroy) {
                obj_unhash(obj);
                obj_destroy(obj);
        }
}
EXPORT_SYMBOL(obj_put);

u64 obj_number(const struct obj *obj)
{
        return obj->number;
}

u64 obj_size(const struct obj *obj)
{
        return READ_ONCE(obj->size);
}

void obj_resize(struct obj *obj, u64 size)
{
        spin_lock(&obj->lock);
        WRITE_ONCE(obj->size, size);
        obj_mark_dirty_locked(obj);
        spin_unlock(&obj->lock);
}
EXPORT_SYMBOL(obj_resize);

/* ---- Attributes -------------------------------------------------------------------------- */

static struct fs_attribute *fs_attribute_find(struct fs_obj *fs, const char *name)
{
        struct fs_attribute *attribute;

        list_for_each_entry (attribute, &fs->attributes, list)
                if (strcmp(attribute->name, name) == 0)
                        return attribute;
        return NULL;
}

static struct fs_attribute *fs_attribute_add(struct fs_obj *fs, const char *name)
{
        size_t length = strlen(name);
        struct fs_attribute *attribute = kzalloc_flex(*attribute, name, length + 1);

        if (!attribute)
                return NULL;
        strscpy(attribute->name, name, length + 1);
        list_add_tail_rcu(&attribute->list, &fs->attributes);
        fs->attribute_count++;
        return attribute;
}

static void fs_attribute_remove(struct fs_obj *fs, struct fs_attribute *attribute)
{
        list_del_rcu(&attribute->list);
        fs->attribute_count--;
        fs_attribute_free(attribute);
}

static int fs_attribute_set(struct fs_obj *fs, const char *name, const void *value, u32 bytes)
{
        struct fs_attribute *attribute = fs_attribute_find(fs, name);
        bool added = false;
        void *room;

        if (!value) {
                if (!attribute)
                        return -ENODATA;
                fs_attribute_remove(fs, attribute);
                return 0;
        }
        if (!attribute) {
                attribute = fs_attribute_add(fs, name);
                added = true;
        }
        if (!attribute)
                return -ENOMEM;
        /* At least a byte: krealloc to nothing would free. */
        room = krealloc(attribute->value, max(bytes, 1u), GFP_KERNEL);
        if (!room) {
                if (added)
                        fs_attribute_remove(fs, attribute);
                return -ENOMEM;
        }
        memcpy(room, value, bytes);
        attribute->value = room;
        attribute->bytes = bytes;
        return 0;
}

int obj_set_attribute(struct obj *obj, const char *name, const void *value, u32 bytes)
{
        struct fs_obj *fs = fs_obj(obj);
        int error;

        mutex_lock(&fs->attribute_lock);
        error = fs_attribute_set(fs, name, value, bytes);
        mutex_unlock(&fs->attribute_lock);
        return error;
}
EXPORT_SYMBOL(obj_set_attribute);

void *obj_attribute(struct obj *obj, const char *name, u32 *bytes)
{
        struct fs_obj *fs = fs_obj(obj);
        struct fs_attribute *attribute;
        void *copy = NULL;

        mutex_lock(&fs->attribute_lock);
        attribute = fs_attribute_find(fs, name);
        if (attribute) {
                *bytes = attribute->bytes;
                copy = kmemdup(attribute->value, max(attribute->bytes, 1u), GFP_KERNEL);
        }
        mutex_unlock(&fs->attribute_lock);
        return copy;
}
EXPORT_SYMBOL(obj_attribute);

bool obj_has_attribute(struct obj *obj, const char *name)
{
        struct fs_attribute *attribute;
        bool found = false;

        rcu_read_lock();
        list_for_each_entry_rcu(attribute, &fs_obj(obj)->attributes, list)
        {
                found = strcmp(attribute->name, name) == 0;
                if (found)
                        break;
        }
        rcu_read_unlock();
        return found;
}
EXPORT_SYMBOL(obj_has_attribute);

unsigned int obj_attributes(struct obj *obj)
{
        return READ_ONCE(fs_obj(obj)->attribute_count);
}

/* ---- Writing back and giving up ---------------------------------------------------------- */

static void obj_write_one(struct obj *obj)
{
        u64 size;

        spin_lock(&obj->lock);
        size = obj->size;
        obj->state &= ~OBJ_DIRTY;
        spin_unlock(&obj->lock);
        obj_store->write(obj->number, size);
        obj_put(obj);
}

/* The first dirty object, held, and off the list; it stays marked until it is written. */
static struct obj *obj_take_dirty(void)
{
        struct obj *obj;

        spin_lock(&obj_lru_lock);
        obj = list_first_entry_or_null(&obj_dirty_list, struct obj, dirty);
        if (obj) {
                list_del_init(&obj->dirty);
                obj_dirty_count--;
        }
        spin_unlock(&obj_lru_lock);
        /* A dirty object is never given up, so it is still there to be held. */
        if (obj)
                WARN_ON_ONCE(!obj_try_hold(obj, obj->number));
        return obj;
}

unsigned int obj_write_back(unsigned int count)
{
        unsigned int written = 0;
        struct obj *obj;

        while (written < count && (obj = obj_take_dirty())) {
                obj_write_one(obj);
                written++;
        }
        return written;
}
EXPORT_SYMBOL(obj_write_back);

/* Decides about the oldest unused object; NULL: there is none. */
static struct obj *obj_isolate(void)
{
        struct obj *obj;

        spin_lock(&obj_lru_lock);
        obj = list_first_entry_or_null(&obj_lru, struct obj, lru);
        /*
         * Against the order of locks, so only by trying; the thread that has the lock will use the
         * object.
         */
        if (obj && !spin_trylock(&obj->lock)) {
                list_rotate_left(&obj_lru);
                spin_unlock(&obj_lru_lock);
                return ERR_PTR(-EAGAIN);
        }
        if (obj) {
                list_del_init(&obj->lru);
                obj_lru_count--;
                WARN_ON_ONCE(obj->count || obj->state & (OBJ_NEW | OBJ_DIRTY));
                obj->state |= OBJ_FREEING;
                spin_unlock(&obj->lock);
        }
        spin_unlock(&obj_lru_lock);
        return obj;
}

unsigned long obj_shrink(unsigned long count)
{
        unsigned long freed = 0;

        while (freed < count) {
                struct obj *obj = obj_isolate();

                if (!obj)
                        break;
                if (IS_ERR(obj)) {
                        cond_resched();
                        continue;
                }
                obj_unhash(obj);
                obj_destroy(obj);
                freed++;
        }
        return freed;
}
EXPORT_SYMBOL(obj_shrink);

/* ---- Module ------------------------------------------------------------------------------ */

static int __init obj_init(void)
{
        hash_init(obj_table);
        fs_obj_cache =
                kmem_cache_create_usercopy("fs_obj", sizeof(struct fs_obj), 0,
                                           SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT | SLAB_HWCACHE_ALIGN,
                                           offsetof(struct fs_obj, vfs.size),
                                           sizeof_field(struct fs_obj, vfs.size), fs_obj_init_once);
        return fs_obj_cache ? 0 : -ENOMEM;
}

static void __exit obj_exit(void)
{
        obj_write_back(UINT_MAX);
        obj_shrink(ULONG_MAX);
        WARN(obj_cached(), "%lu objects are left\n", obj_cached());
        WARN_ON(!hash_empty(obj_table));
        /* Objects that wait for their readers. */
        rcu_barrier();
        kmem_cache_destroy(fs_obj_cache);
}

module_init(obj_init);
module_exit(obj_exit);

MODULE_DESCRIPTION("cache of numbered objects");
MODULE_LICENSE("Dual MIT/GPL");
