/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Lists of linux/list.h that readers walk in read sections while writers, which exclude each other,
 * change them. An entry that is taken out keeps its way onward until readers have gone.
 */
#ifndef KMEM_LINUX_RCULIST_H
#define KMEM_LINUX_RCULIST_H

#include <linux/list.h>
#include <linux/rcupdate.h>

#define list_next_rcu(entry) (*(struct list_head **)&(entry)->next)
#define hlist_first_rcu(head) (*(struct hlist_node **)&(head)->first)
#define hlist_next_rcu(node) (*(struct hlist_node **)&(node)->next)

static inline void kmem_list_insert_rcu(struct list_head *entry, struct list_head *before,
                                        struct list_head *after)
{
        entry->next = after;
        entry->prev = before;
        rcu_assign_pointer(before->next, entry);
        after->prev = entry;
}

static inline void list_add_rcu(struct list_head *entry, struct list_head *head)
{
        kmem_list_insert_rcu(entry, head, head->next);
}

static inline void list_add_tail_rcu(struct list_head *entry, struct list_head *head)
{
        kmem_list_insert_rcu(entry, head->prev, head);
}

/* The entry must not be used again before a grace period. */
static inline void list_del_rcu(struct list_head *entry)
{
        __list_del_entry(entry);
        entry->prev = LIST_POISON2;
}

static inline void list_replace_rcu(struct list_head *old, struct list_head *entry)
{
        kmem_list_insert_rcu(entry, old->prev, old->next);
        old->prev = LIST_POISON2;
}

#define list_entry_rcu(pointer, type, member) container_of(rcu_dereference(pointer), type, member)
#define list_first_or_null_rcu(head, type, member)                                                 \
        ({                                                                                         \
                struct list_head *kmem_head_ = (head);                                             \
                struct list_head *kmem_next_ = rcu_dereference(kmem_head_->next);                  \
                                                                                                   \
                kmem_next_ != kmem_head_ ? container_of(kmem_next_, type, member) : NULL;          \
        })
#define list_for_each_entry_rcu(entry, head, member, ...)                                          \
        for ((entry) = list_entry_rcu((head)->next, __typeof__(*(entry)), member);                 \
             !list_entry_is_head(entry, head, member);                                             \
             (entry) = list_entry_rcu((entry)->member.next, __typeof__(*(entry)), member))

static inline void hlist_del_rcu(struct hlist_node *node)
{
        __hlist_del(node);
        WRITE_ONCE(node->pprev, LIST_POISON2);
}

static inline void hlist_del_init_rcu(struct hlist_node *node)
{
        if (!hlist_unhashed(node)) {
                __hlist_del(node);
                WRITE_ONCE(node->pprev, NULL);
        }
}

static inline void kmem_hlist_insert_rcu(struct hlist_node *node, struct hlist_node **place)
{
        struct hlist_node *next = *place;

        node->next = next;
        WRITE_ONCE(node->pprev, place);
        rcu_assign_pointer(*place, node);
        if (next)
                WRITE_ONCE(next->pprev, &node->next);
}

static inline void hlist_add_head_rcu(struct hlist_node *node, struct hlist_head *head)
{
        kmem_hlist_insert_rcu(node, &head->first);
}

static inline void hlist_add_before_rcu(struct hlist_node *node, struct hlist_node *next)
{
        kmem_hlist_insert_rcu(node, next->pprev);
}

static inline void hlist_add_behind_rcu(struct hlist_node *node, struct hlist_node *previous)
{
        kmem_hlist_insert_rcu(node, &previous->next);
}

#define hlist_for_each_entry_rcu(entry, head, member, ...)                                         \
        for ((entry) = hlist_entry_safe(rcu_dereference((head)->first), __typeof__(*(entry)),      \
                                        member);                                                   \
             (entry); (entry) = hlist_entry_safe(rcu_dereference((entry)->member.next),            \
                                                 __typeof__(*(entry)), member))

#endif
