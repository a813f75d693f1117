/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Hash tables of a fixed size: arrays of hlist_head with a power of two of chains. */
#ifndef KMEM_LINUX_HASHTABLE_H
#define KMEM_LINUX_HASHTABLE_H

#include <linux/hash.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/rculist.h>

/* Zeroed is empty. */
#define DEFINE_HASHTABLE(name, bits) struct hlist_head name[1 << (bits)] = {HLIST_HEAD_INIT}
#define DECLARE_HASHTABLE(name, bits) struct hlist_head name[1 << (bits)]
#define HASH_SIZE(name) ARRAY_SIZE(name)
#define HASH_BITS(name) ((unsigned int)ilog2(HASH_SIZE(name)))
#define hash_min(value, bits)                                                                      \
        (sizeof(value) <= 4 ? hash_32((u32)(value), bits) : hash_64((u64)(value), bits))

static inline void kmem_hash_init(struct hlist_head *table, size_t size)
{
        size_t i;

        for (i = 0; i < size; i++)
                INIT_HLIST_HEAD(&table[i]);
}

static inline bool kmem_hash_empty(const struct hlist_head *table, size_t size)
{
        size_t i;

        for (i = 0; i < size; i++)
                if (!hlist_empty(&table[i]))
                        return false;
        return true;
}

#define hash_init(table) kmem_hash_init(table, HASH_SIZE(table))
#define hash_empty(table) kmem_hash_empty(table, HASH_SIZE(table))
#define KMEM_CHAIN(table, key) (&(table)[hash_min(key, HASH_BITS(table))])
#define hash_add(table, node, key) hlist_add_head(node, KMEM_CHAIN(table, key))
#define hash_add_rcu(table, node, key) hlist_add_head_rcu(node, KMEM_CHAIN(table, key))
#define hash_hashed(node) (!hlist_unhashed(node))
#define hash_del(node) hlist_del_init(node)
#define hash_del_rcu(node) hlist_del_init_rcu(node)

/* All entries; @bucket counts chains. */
#define hash_for_each(table, bucket, entry, member)                                                \
        for ((bucket) = 0, (entry) = NULL; (entry) == NULL && (size_t)(bucket) < HASH_SIZE(table); \
             (bucket)++)                                                                           \
                hlist_for_each_entry (entry, &(table)[bucket], member)
#define hash_for_each_safe(table, bucket, following, entry, member)                                \
        for ((bucket) = 0, (entry) = NULL; (entry) == NULL && (size_t)(bucket) < HASH_SIZE(table); \
             (bucket)++)                                                                           \
        hlist_for_each_entry_safe(entry, following, &(table)[bucket], member)
/* The entries that may have this key. */
#define hash_for_each_possible(table, entry, member, key)                                          \
        hlist_for_each_entry (entry, KMEM_CHAIN(table, key), member)
#define hash_for_each_possible_rcu(table, entry, member, key, ...)                                 \
        hlist_for_each_entry_rcu(entry, KMEM_CHAIN(table, key), member)
#define hash_for_each_possible_safe(table, entry, following, member, key)                          \
        hlist_for_each_entry_safe(entry, following, KMEM_CHAIN(table, key), member)

#endif
