/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * hlists that end in a number instead of NULL: the pointer (number << 1 | 1). Entries of a hash
 * table may be reused at once (SLAB_TYPESAFE_BY_RCU), so a reader may end up in another chain. The
 * number at the end tells it, and it begins anew.
 */
#ifndef KMEM_LINUX_LIST_NULLS_H
#define KMEM_LINUX_LIST_NULLS_H

#include <linux/list.h>

struct hlist_nulls_node {
        struct hlist_nulls_node *next;
        struct hlist_nulls_node **pprev;
};

struct hlist_nulls_head {
        struct hlist_nulls_node *first;
};

#define NULLS_MARKER(number) (1ul | ((unsigned long)(number) << 1))
#define INIT_HLIST_NULLS_HEAD(head, number)                                                        \
        ((head)->first = (struct hlist_nulls_node *)NULLS_MARKER(number))

static inline int is_a_nulls(const struct hlist_nulls_node *node)
{
        return (int)((unsigned long)node & 1);
}

static inline unsigned long get_nulls_value(const struct hlist_nulls_node *node)
{
        return (unsigned long)node >> 1;
}

static inline int hlist_nulls_unhashed(const struct hlist_nulls_node *node)
{
        return !node->pprev;
}

static inline int hlist_nulls_empty(const struct hlist_nulls_head *head)
{
        return is_a_nulls(READ_ONCE(head->first));
}

static inline void __hlist_nulls_del(struct hlist_nulls_node *node)
{
        WRITE_ONCE(*node->pprev, node->next);
        if (!is_a_nulls(node->next))
                WRITE_ONCE(node->next->pprev, node->pprev);
}

#define hlist_nulls_entry(pointer, type, member) container_of(pointer, type, member)
#define hlist_nulls_for_each_entry(entry, node, head, member)                                      \
        for ((node) = (head)->first;                                                               \
             !is_a_nulls(node) &&                                                                  \
             ((entry) = hlist_nulls_entry(node, __typeof__(*(entry)), member), true);              \
             (node) = (node)->next)

#endif
