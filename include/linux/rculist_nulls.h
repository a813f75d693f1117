/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The lists of list_nulls.h under RCU. */
#ifndef KMEM_LINUX_RCULIST_NULLS_H
#define KMEM_LINUX_RCULIST_NULLS_H

#include <linux/list_nulls.h>
#include <linux/rcupdate.h>

/* The link onward stays, for readers that stand on the node. */
static inline void hlist_nulls_del_rcu(struct hlist_nulls_node *node)
{
        __hlist_nulls_del(node);
        WRITE_ONCE(node->pprev, LIST_POISON2);
}

static inline void hlist_nulls_del_init_rcu(struct hlist_nulls_node *node)
{
        if (!hlist_nulls_unhashed(node)) {
                __hlist_nulls_del(node);
                WRITE_ONCE(node->pprev, NULL);
        }
}

static inline void hlist_nulls_add_head_rcu(struct hlist_nulls_node *node,
                                            struct hlist_nulls_head *head)
{
        struct hlist_nulls_node *first = head->first;

        WRITE_ONCE(node->next, first);
        WRITE_ONCE(node->pprev, &head->first);
        rcu_assign_pointer(head->first, node);
        if (!is_a_nulls(first))
                WRITE_ONCE(first->pprev, &node->next);
}

#define hlist_nulls_for_each_entry_rcu(entry, node, head, member)                                  \
        for ((node) = rcu_dereference((head)->first);                                              \
             !is_a_nulls(node) &&                                                                  \
             ((entry) = hlist_nulls_entry(node, __typeof__(*(entry)), member), true);              \
             (node) = rcu_dereference((node)->next))

#endif
