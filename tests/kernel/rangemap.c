// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A map of extents: a radix tree, six bits of the index a level, whose leaves are extents by
 * their first index.
 *
 * Writers exclude each other by rm_lock. Before they take it they make sure that there are nodes
 * and extents enough (the preload), so that nothing fails half way and nothing is allocated
 * under the lock. Readers walk without locks in a read section and begin anew if rm_version has
 * changed meanwhile: nodes and extents they stand on stay until they leave, because both are
 * freed after a grace period, by callbacks: kfree_rcu of cache objects is not for SLOB.
 *
 * Nodes come constructed, with all slots empty, and go back so.
 */
#include <linux/atomic.h>
#include <linux/bug.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "rangemap.h"

#define RM_BITS 6
#define RM_SLOTS (1u << RM_BITS)
#define RM_LEVELS DIV_ROUND_UP(64, RM_BITS)
/* A store inserts at most three extents; each may make the tree higher and need a new path. */
#define RM_PRELOAD_NODES (6 * RM_LEVELS)
#define RM_PRELOAD_EXTENTS 3

struct rm_extent {
        u64 first;
        u64 last;
        u64 value;
        struct rcu_head rcu;
};

struct rm_node {
        struct rm_node *parent;
        u8 shift;  /* of this level's bits in the index */
        u8 offset; /* of the parent's slot */
        u16 count; /* slots in use */
        union {
                struct rcu_head rcu;
                struct list_head preload;
        };
        void *slots[RM_SLOTS]; /* nodes, or extents where the shift is 0 */
};

/* A writer's preload. */
struct rm_preload {
        struct list_head nodes;
        unsigned int node_count;
        struct rm_extent *extents[RM_PRELOAD_EXTENTS];
        unsigned int extent_count;
};

static struct kmem_cache *rm_node_cache __read_mostly;
static struct kmem_cache *rm_extent_cache __read_mostly;
static DEFINE_SPINLOCK(rm_lock);
static struct rm_node *rm_root;
static u64 rm_version; /* odd while a writer changes the tree */
static struct rm_preload rm_spare = {.nodes = LIST_HEAD_INIT(rm_spare.nodes)};
static unsigned long rm_extent_count;
static atomic_long_t rm_node_count = ATOMIC_LONG_INIT(0);

/* ---- Memory ------------------------------------------------------------------------------ */

static void rm_node_construct(void *object)
{
        struct rm_node *node = object;

        memset(node, 0, sizeof(*node));
}

static void rm_node_free_rcu(struct rcu_head *head)
{
        struct rm_node *node = container_of(head, struct rm_node, rcu);

        rm_node_construct(node);
        atomic_long_dec(&rm_node_count);
        kmem_cache_free(rm_node_cache, node);
}

static void rm_extent_free_rcu(struct rcu_head *head)
{
        kmem_cache_free(rm_extent_cache, container_of(head, struct rm_extent, rcu));
}

/* Fills the spare preload; called without the lock. Other threads may use it up. */
static int rm_preload(void)
{
        void *nodes[RM_PRELOAD_NODES];
        void *extents[RM_PRELOAD_EXTENTS];
        unsigned int i;

        if (READ_ONCE(rm_spare.node_count) < RM_PRELOAD_NODES) {
                if (!kmem_cache_alloc_bulk(rm_node_cache, GFP_KERNEL, ARRAY_SIZE(nodes), nodes))
                        return -ENOMEM;
                spin_lock(&rm_lock);
                for (i = 0; i < ARRAY_SIZE(nodes); i++) {
                        struct rm_node *node = nodes[i];

                        WARN_ON_ONCE(node->count || node->slots[0] || node->slots[RM_SLOTS - 1]);
                        list_add(&node->preload, &rm_spare.nodes);
                }
                rm_spare.node_count += ARRAY_SIZE(nodes);
                spin_unlock(&rm_lock);
        }
        if (READ_ONCE(rm_spare.extent_count) == RM_PRELOAD_EXTENTS)
                return 0;
        if (!kmem_cache_alloc_bulk(rm_extent_cache, GFP_KERNEL, ARRAY_SIZE(extents), extents))
                return -ENOMEM;
        spin_lock(&rm_lock);
        for (i = 0; i < ARRAY_SIZE(extents) && rm_spare.extent_count < RM_PRELOAD_EXTENTS; i++)
                rm_spare.extents[rm_spare.extent_count++] = extents[i];
        spin_unlock(&rm_lock);
        kmem_cache_free_bulk(rm_extent_cache, ARRAY_SIZE(extents) - i, extents + i);
        return 0;
}

static bool rm_is_preloaded(void)
{
        lockdep_assert_held(&rm_lock);
        return rm_spare.node_count >= RM_PRELOAD_NODES &&
               rm_spare.extent_count == RM_PRELOAD_EXTENTS;
}

/* Takes the lock with the preload full; -ENOMEM without lock. */
static int rm_lock_preloaded(void)
{
        for (;;) {
                int error = rm_preload();

                if (error)
                        return error;
                spin_lock(&rm_lock);
                if (rm_is_preloaded())
                        return 0;
                spin_unlock(&rm_lock);
        }
}

static struct rm_node *rm_node_take(struct rm_node *parent, u8 shift, u8 offset)
{
        struct rm_node *node = list_first_entry(&rm_spare.nodes, struct rm_node, preload);

        BUG_ON(!rm_spare.node_count);
        list_del(&node->preload);
        rm_spare.node_count--;
        node->parent = parent;
        node->shift = shift;
        node->offset = offset;
        atomic_long_inc(&rm_node_count);
        return node;
}

/* ---- Walks ------------------------------------------------------------------------------- */

static unsigned int rm_offset(const struct rm_node *node, u64 index)
{
        return (unsigned int)(index >> node->shift) & (RM_SLOTS - 1);
}

/* The greatest index that the tree can hold with this root. */
static u64 rm_node_max(const struct rm_node *root)
{
        unsigned int bits = root->shift + RM_BITS;

        return bits >= 64 ? U64_MAX : (1ull << bits) - 1;
}

/* The first or the last extent below a slot's content; NULL only while a writer is at it. */
static struct rm_extent *rm_edge(void *slot, unsigned int shift, bool last)
{
        while (shift) {
                struct rm_node *node = slot;
                unsigned int i;

                slot = NULL;
                for (i = 0; i < RM_SLOTS && !slot; i++)
                        slot = rcu_dereference(node->slots[last ? RM_SLOTS - 1 - i : i]);
                if (!slot)
                        return NULL;
                shift -= RM_BITS;
        }
        return slot;
}

/* The nearest slot in use beside @offset, downward or upward. */
static void *rm_neighbour(struct rm_node *node, unsigned int offset, bool below)
{
        void *slot = NULL;

        while (!slot && (below ? offset > 0 : offset < RM_SLOTS - 1)) {
                offset = below ? offset - 1 : offset + 1;
                slot = rcu_dereference(node->slots[offset]);
        }
        return slot;
}

/* The extent with the greatest first index up to @index, or the first extent from there on. */
static struct rm_extent *rm_find(u64 index, bool below)
{
        struct rm_node *node = rcu_dereference(rm_root);
        unsigned int beside_shift = 0;
        void *beside = NULL;
        void *slot = NULL;

        if (!node)
                return NULL;
        if (index > rm_node_max(node))
                return below ? rm_edge(node, node->shift + RM_BITS, true) : NULL;
        while (node) {
                unsigned int offset = rm_offset(node, index);
                unsigned int shift = node->shift;
                void *near = rm_neighbour(node, offset, below);

                if (near) {
                        beside = near;
                        beside_shift = shift;
                }
                slot = rcu_dereference(node->slots[offset]);
                if (!slot || !shift)
                        break;
                node = slot;
        }
        if (slot)
                return slot;
        return beside ? rm_edge(beside, beside_shift, below) : NULL;
}

/* ---- Changes, under the lock ------------------------------------------------------------- */

static void rm_link(struct rm_node *node, unsigned int offset, void *slot)
{
        WARN_ON_ONCE(node->slots[offset]);
        rcu_assign_pointer(node->slots[offset], slot);
        node->count++;
}

/* Puts new roots on top until the index fits. */
static void rm_grow(u64 index)
{
        if (!rm_root)
                rcu_assign_pointer(rm_root, rm_node_take(NULL, 0, 0));
        while (index > rm_node_max(rm_root)) {
                struct rm_node *old = rm_root;
                struct rm_node *root = rm_node_take(NULL, (u8)(old->shift + RM_BITS), 0);

                if (old->count) {
                        rm_link(root, 0, old);
                        old->parent = root;
                } else {
                        call_rcu(&old->rcu, rm_node_free_rcu);
                }
                rcu_assign_pointer(rm_root, root);
        }
}

static void rm_insert(u64 first, u64 last, u64 value)
{
        struct rm_extent *extent = rm_spare.extents[--rm_spare.extent_count];
        struct rm_node *node;

        extent->first = first;
        extent->last = last;
        extent->value = value;
        rm_grow(first);
        for (node = rm_root; node->shift;) {
                unsigned int offset = rm_offset(node, first);

                if (!node->slots[offset])
                        rm_link(node, offset,
                                rm_node_take(node, (u8)(node->shift - RM_BITS), (u8)offset));
                node = node->slots[offset];
        }
        rm_link(node, rm_offset(node, first), extent);
        rm_extent_count++;
}

/* Takes empty nodes away upward, and roots that only lead to their first slot. */
static void rm_tidy(struct rm_node *node)
{
        while (node && !node->count) {
                struct rm_node *parent = node->parent;

                if (parent) {
                        RCU_INIT_POINTER(parent->slots[node->offset], NULL);
                        parent->count--;
                } else {
                        RCU_INIT_POINTER(rm_root, NULL);
                }
                call_rcu(&node->rcu, rm_node_free_rcu);
                node = parent;
        }
        while (rm_root && rm_root->shift && rm_root->count == 1 && rm_root->slots[0]) {
                struct rm_node *old = rm_root;
                struct rm_node *root = old->slots[0];

                root->parent = NULL;
                rcu_assign_pointer(rm_root, root);
                call_rcu(&old->rcu, rm_node_free_rcu);
        }
}

static void rm_remove(struct rm_extent *extent)
{
        struct rm_node *node = rm_root;

        while (node->shift)
                node = node->slots[rm_offset(node, extent->first)];
        WARN_ON_ONCE(node->slots[rm_offset(node, extent->first)] != extent);
        RCU_INIT_POINTER(node->slots[rm_offset(node, extent->first)], NULL);
        node->count--;
        rm_extent_count--;
        rm_tidy(node);
        call_rcu(&extent->rcu, rm_extent_free_rcu);
}

/* Frees [first, last]: extents inside go; extents that stick out are replaced by their rest. */
static u64 rm_clear(u64 first, u64 last)
{
        struct rm_extent *extent;
        u64 cleared = 0;

        while ((extent = rm_find(last, true)) && extent->last >= first) {
                u64 start = extent->first;
                u64 end = extent->last;
                u64 value = extent->value;

                rm_remove(extent);
                cleared += min(end, last) - max(start, first) + 1;
                if (start < first)
                        rm_insert(start, first - 1, value);
                if (end > last)
                        rm_insert(last + 1, end, value);
        }
        return cleared;
}

static void rm_write_begin(void)
{
        WRITE_ONCE(rm_version, rm_version + 1);
        smp_mb();
}

static void rm_write_end(void)
{
        smp_store_release(&rm_version, rm_version + 1);
}

int rm_store(u64 first, u64 last, u64 value)
{
        struct rm_extent *beside;
        int error;

        if (first > last || !value)
                return -EINVAL;
        error = rm_lock_preloaded();
        if (error)
                return error;
        rm_write_begin();
        rm_clear(first, last);
        /* Neighbours with equal values become a single extent. */
        beside = first ? rm_find(first - 1, true) : NULL;
        if (beside && beside->last == first - 1 && beside->value == value) {
                first = beside->first;
                rm_remove(beside);
        }
        beside = last < U64_MAX ? rm_find(last + 1, false) : NULL;
        if (beside && beside->first == last + 1 && beside->value == value) {
                last = beside->last;
                rm_remove(beside);
        }
        rm_insert(first, last, value);
        rm_write_end();
        spin_unlock(&rm_lock);
        return 0;
}
EXPORT_SYMBOL_GPL(rm_store);

s64 rm_erase(u64 first, u64 last)
{
        u64 cleared;
        int error;

        if (first > last)
                return -EINVAL;
        error = rm_lock_preloaded();
        if (error)
                return error;
        rm_write_begin();
        cleared = rm_clear(first, last);
        rm_write_end();
        spin_unlock(&rm_lock);
        return (s64)cleared;
}
EXPORT_SYMBOL_GPL(rm_erase);

/* ---- Readers ----------------------------------------------------------------------------- */

/* Even: no writer is at work. */
static u64 rm_read_begin(void)
{
        u64 version;

        while ((version = smp_load_acquire(&rm_version)) & 1)
                cpu_relax();
        return version;
}

static bool rm_read_retry(u64 version)
{
        smp_rmb();
        return READ_ONCE(rm_version) != version;
}

u64 rm_load(u64 index)
{
        struct rm_extent *extent;
        u64 version;
        u64 value;

        rcu_read_lock();
        do {
                version = rm_read_begin();
                extent = rm_find(index, true);
                value = extent && extent->last >= index ? extent->value : 0;
        } while (rm_read_retry(version));
        rcu_read_unlock();
        return value;
}
EXPORT_SYMBOL_GPL(rm_load);

bool rm_next(u64 index, u64 *first, u64 *last, u64 *value)
{
        struct rm_extent *extent;
        u64 version;

        rcu_read_lock();
        do {
                version = rm_read_begin();
                extent = rm_find(index, true);
                if (!extent || extent->last < index)
                        extent = rm_find(index, false);
                if (extent) {
                        *first = extent->first;
                        *last = extent->last;
                        *value = extent->value;
                }
        } while (rm_read_retry(version));
        rcu_read_unlock();
        return extent != NULL;
}
EXPORT_SYMBOL_GPL(rm_next);

unsigned long rm_extents(void)
{
        return READ_ONCE(rm_extent_count);
}

unsigned long rm_nodes(void)
{
        return (unsigned long)atomic_long_read(&rm_node_count);
}

static unsigned int rm_check_node(const struct rm_node *node, u64 base, unsigned long *extents)
{
        unsigned int faults = 0;
        unsigned int used = 0;
        unsigned int i;

        for (i = 0; i < RM_SLOTS; i++) {
                u64 start = base + ((u64)i << node->shift);

                if (!node->slots[i])
                        continue;
                used++;
                if (node->shift) {
                        const struct rm_node *child = node->slots[i];

                        faults += child->parent != node || child->offset != i ||
                                  child->shift != node->shift - RM_BITS;
                        faults += rm_check_node(child, start, extents);
                } else {
                        const struct rm_extent *extent = node->slots[i];

                        faults += extent->first != start || extent->last < start;
                        (*extents)++;
                }
        }
        return faults + (used != node->count) + (used == 0);
}

unsigned int rm_check(void)
{
        unsigned long extents = 0;
        unsigned int faults = 0;

        spin_lock(&rm_lock);
        if (rm_root)
                faults = rm_check_node(rm_root, 0, &extents);
        faults += extents != rm_extent_count;
        spin_unlock(&rm_lock);
        return faults;
}

/* ---- Module ------------------------------------------------------------------------------ */

static int __init rm_init(void)
{
        rm_node_cache = kmem_cache_create("rm_node", sizeof(struct rm_node), 0,
                                          SLAB_RECLAIM_ACCOUNT, rm_node_construct);
        rm_extent_cache = KMEM_CACHE(rm_extent, SLAB_ACCOUNT);
        if (rm_node_cache && rm_extent_cache)
                return 0;
        kmem_cache_destroy(rm_extent_cache);
        kmem_cache_destroy(rm_node_cache);
        return -ENOMEM;
}

static void __exit rm_exit(void)
{
        struct rm_node *node;
        struct rm_node *next;

        rm_erase(0, U64_MAX);
        rcu_barrier(); /* callbacks that free nodes */
        WARN(rm_nodes(), "nodes are left\n");
        list_for_each_entry_safe (node, next, &rm_spare.nodes, preload) {
                list_del(&node->preload);
                rm_node_construct(node);
                kmem_cache_free(rm_node_cache, node);
        }
        kmem_cache_free_bulk(rm_extent_cache, rm_spare.extent_count, (void **)rm_spare.extents);
        kmem_cache_destroy(rm_node_cache);
        kmem_cache_destroy(rm_extent_cache);
}

module_init(rm_init);
module_exit(rm_exit);

MODULE_DESCRIPTION("map of extents with lock-free lookup");
MODULE_LICENSE("Dual MIT/GPL");
