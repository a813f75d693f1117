/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Lists whose links lie in their entries: circular lists with two pointers a head (list_head), and
 * lists with a single pointer a head for hash tables (hlist).
 */
#ifndef KMEM_LINUX_LIST_H
#define KMEM_LINUX_LIST_H

#include <linux/compiler.h>
#include <linux/container_of.h>
#include <linux/types.h>

/* The links of a deleted entry: addresses that no access survives. */
#define LIST_POISON1 ((void *)0xdead000000000100ul)
#define LIST_POISON2 ((void *)0xdead000000000122ul)

#define LIST_HEAD_INIT(name)                                                                       \
        {                                                                                          \
                &(name), &(name)                                                                   \
        }
#undef LIST_HEAD /* of <sys/queue.h> */
#define LIST_HEAD(name) struct list_head name = LIST_HEAD_INIT(name)

static inline void INIT_LIST_HEAD(struct list_head *head)
{
        WRITE_ONCE(head->next, head);
        head->prev = head;
}

static inline void kmem_list_join(struct list_head *first, struct list_head *second)
{
        second->prev = first;
        WRITE_ONCE(first->next, second);
}

static inline void kmem_list_insert(struct list_head *entry, struct list_head *before,
                                    struct list_head *after)
{
        entry->next = after;
        entry->prev = before;
        after->prev = entry;
        WRITE_ONCE(before->next, entry);
}

static inline void list_add(struct list_head *entry, struct list_head *head)
{
        kmem_list_insert(entry, head, head->next);
}

static inline void list_add_tail(struct list_head *entry, struct list_head *head)
{
        kmem_list_insert(entry, head->prev, head);
}

static inline void __list_del_entry(struct list_head *entry)
{
        kmem_list_join(entry->prev, entry->next);
}

static inline void list_del(struct list_head *entry)
{
        __list_del_entry(entry);
        entry->next = LIST_POISON1;
        entry->prev = LIST_POISON2;
}

static inline void list_del_init(struct list_head *entry)
{
        __list_del_entry(entry);
        INIT_LIST_HEAD(entry);
}

/*
 * Puts @entry in the place of @old. If @old is empty, @entry becomes an empty list: its neighbours
 * are read in turn.
 */
static inline void list_replace(struct list_head *old, struct list_head *entry)
{
        kmem_list_join(entry, old->next);
        kmem_list_join(old->prev, entry);
}

static inline void list_replace_init(struct list_head *old, struct list_head *entry)
{
        list_replace(old, entry);
        INIT_LIST_HEAD(old);
}

static inline void list_move(struct list_head *entry, struct list_head *head)
{
        __list_del_entry(entry);
        list_add(entry, head);
}

static inline void list_move_tail(struct list_head *entry, struct list_head *head)
{
        __list_del_entry(entry);
        list_add_tail(entry, head);
}

static inline int list_empty(const struct list_head *head)
{
        return READ_ONCE(head->next) == head;
}

static inline int list_is_first(const struct list_head *entry, const struct list_head *head)
{
        return entry->prev == head;
}

static inline int list_is_last(const struct list_head *entry, const struct list_head *head)
{
        return entry->next == head;
}

static inline int list_is_head(const struct list_head *entry, const struct list_head *head)
{
        return entry == head;
}

static inline int list_is_singular(const struct list_head *head)
{
        return !list_empty(head) && head->next == head->prev;
}

static inline void list_rotate_left(struct list_head *head)
{
        if (!list_empty(head))
                list_move_tail(head->next, head);
}

static inline size_t list_count_nodes(const struct list_head *head)
{
        const struct list_head *entry;
        size_t count = 0;

        for (entry = head->next; entry != head; entry = entry->next)
                count++;
        return count;
}

/* All entries of @list between two neighbours; its head is not changed. */
static inline void kmem_list_insert_all(const struct list_head *list, struct list_head *before,
                                        struct list_head *after)
{
        if (list_empty(list))
                return;
        kmem_list_join(list->prev, after);
        kmem_list_join(before, list->next);
}

static inline void list_splice(const struct list_head *list, struct list_head *head)
{
        kmem_list_insert_all(list, head, head->next);
}

static inline void list_splice_tail(struct list_head *list, struct list_head *head)
{
        kmem_list_insert_all(list, head->prev, head);
}

static inline void list_splice_init(struct list_head *list, struct list_head *head)
{
        list_splice(list, head);
        INIT_LIST_HEAD(list);
}

static inline void list_splice_tail_init(struct list_head *list, struct list_head *head)
{
        list_splice_tail(list, head);
        INIT_LIST_HEAD(list);
}

/* Moves the entries from the first up to @entry to @list, and drops @list's old content. */
static inline void list_cut_position(struct list_head *list, struct list_head *head,
                                     struct list_head *entry)
{
        struct list_head *first = head->next;

        INIT_LIST_HEAD(list);
        if (list_empty(head) || entry == head)
                return;
        kmem_list_join(head, entry->next);
        kmem_list_join(list, first);
        kmem_list_join(entry, list);
}

#define list_entry(pointer, type, member) container_of(pointer, type, member)
#define list_first_entry(head, type, member) list_entry((head)->next, type, member)
#define list_last_entry(head, type, member) list_entry((head)->prev, type, member)
#define list_first_entry_or_null(head, type, member)                                               \
        (list_empty(head) ? NULL : list_first_entry(head, type, member))
#define list_last_entry_or_null(head, type, member)                                                \
        (list_empty(head) ? NULL : list_last_entry(head, type, member))
#define list_next_entry(entry, member)                                                             \
        list_entry((entry)->member.next, __typeof__(*(entry)), member)
#define list_prev_entry(entry, member)                                                             \
        list_entry((entry)->member.prev, __typeof__(*(entry)), member)
#define list_entry_is_head(entry, head, member) (&(entry)->member == (head))

#define list_for_each(entry, head)                                                                 \
        for ((entry) = (head)->next; (entry) != (head); (entry) = (entry)->next)
#define list_for_each_prev(entry, head)                                                            \
        for ((entry) = (head)->prev; (entry) != (head); (entry) = (entry)->prev)
#define list_for_each_safe(entry, following, head)                                                 \
        for ((entry) = (head)->next, (following) = (entry)->next; (entry) != (head);               \
             (entry) = (following), (following) = (entry)->next)

/* Walks entries instead of links; "safe": the entry may go while the loop runs. */
#define list_for_each_entry(entry, head, member)                                                   \
        for ((entry) = list_first_entry(head, __typeof__(*(entry)), member);                       \
             !list_entry_is_head(entry, head, member); (entry) = list_next_entry(entry, member))
#define list_for_each_entry_reverse(entry, head, member)                                           \
        for ((entry) = list_last_entry(head, __typeof__(*(entry)), member);                        \
             !list_entry_is_head(entry, head, member); (entry) = list_prev_entry(entry, member))
#define list_for_each_entry_from(entry, head, member)                                              \
        for (; !list_entry_is_head(entry, head, member); (entry) = list_next_entry(entry, member))
#define list_for_each_entry_continue(entry, head, member)                                          \
        for ((entry) = list_next_entry(entry, member); !list_entry_is_head(entry, head, member);   \
             (entry) = list_next_entry(entry, member))
#define list_for_each_entry_safe(entry, following, head, member)                                   \
        for ((entry) = list_first_entry(head, __typeof__(*(entry)), member),                       \
            (following) = list_next_entry(entry, member);                                          \
             !list_entry_is_head(entry, head, member);                                             \
             (entry) = (following), (following) = list_next_entry(following, member))
#define list_for_each_entry_safe_reverse(entry, following, head, member)                           \
        for ((entry) = list_last_entry(head, __typeof__(*(entry)), member),                        \
            (following) = list_prev_entry(entry, member);                                          \
             !list_entry_is_head(entry, head, member);                                             \
             (entry) = (following), (following) = list_prev_entry(following, member))

/* ---- Heads of a single pointer ---------------------------------------------------------- */

#define HLIST_HEAD_INIT                                                                            \
        {                                                                                          \
                .first = NULL                                                                      \
        }
#define HLIST_HEAD(name) struct hlist_head name = HLIST_HEAD_INIT
#define INIT_HLIST_HEAD(head) ((head)->first = NULL)

static inline void INIT_HLIST_NODE(struct hlist_node *node)
{
        node->next = NULL;
        node->pprev = NULL;
}

static inline int hlist_unhashed(const struct hlist_node *node)
{
        return !node->pprev;
}

static inline int hlist_unhashed_lockless(const struct hlist_node *node)
{
        return !READ_ONCE(node->pprev);
}

static inline int hlist_empty(const struct hlist_head *head)
{
        return !READ_ONCE(head->first);
}

static inline void __hlist_del(struct hlist_node *node)
{
        WRITE_ONCE(*node->pprev, node->next);
        if (node->next)
                WRITE_ONCE(node->next->pprev, node->pprev);
}

static inline void hlist_del(struct hlist_node *node)
{
        __hlist_del(node);
        node->next = LIST_POISON1;
        node->pprev = LIST_POISON2;
}

static inline void hlist_del_init(struct hlist_node *node)
{
        if (!hlist_unhashed(node)) {
                __hlist_del(node);
                INIT_HLIST_NODE(node);
        }
}

/* Links @node where *@place points: in front of the node that is there, if any. */
static inline void kmem_hlist_insert(struct hlist_node *node, struct hlist_node **place)
{
        node->next = *place;
        WRITE_ONCE(node->pprev, place);
        if (node->next)
                WRITE_ONCE(node->next->pprev, &node->next);
        WRITE_ONCE(*place, node);
}

static inline void hlist_add_head(struct hlist_node *node, struct hlist_head *head)
{
        kmem_hlist_insert(node, &head->first);
}

static inline void hlist_add_before(struct hlist_node *node, struct hlist_node *next)
{
        kmem_hlist_insert(node, next->pprev);
}

static inline void hlist_add_behind(struct hlist_node *node, struct hlist_node *previous)
{
        kmem_hlist_insert(node, &previous->next);
}

static inline void hlist_move_list(struct hlist_head *old, struct hlist_head *head)
{
        head->first = old->first;
        if (head->first)
                head->first->pprev = &head->first;
        old->first = NULL;
}

#define hlist_entry(pointer, type, member) container_of(pointer, type, member)
#define hlist_entry_safe(pointer, type, member)                                                    \
        ({                                                                                         \
                __typeof__(pointer) kmem_node_ = (pointer);                                        \
                                                                                                   \
                kmem_node_ ? hlist_entry(kmem_node_, type, member) : NULL;                         \
        })

#define hlist_for_each(node, head) for ((node) = (head)->first; (node); (node) = (node)->next)
#define hlist_for_each_safe(node, following, head)                                                 \
        for ((node) = (head)->first; (node) && ((following) = (node)->next, true);                 \
             (node) = (following))
#define hlist_for_each_entry(entry, head, member)                                                  \
        for ((entry) = hlist_entry_safe((head)->first, __typeof__(*(entry)), member); (entry);     \
             (entry) = hlist_entry_safe((entry)->member.next, __typeof__(*(entry)), member))
/* @following is a struct hlist_node pointer. */
#define hlist_for_each_entry_safe(entry, following, head, member)                                  \
        for ((entry) = hlist_entry_safe((head)->first, __typeof__(*(entry)), member);              \
             (entry) && ((following) = (entry)->member.next, true);                                \
             (entry) = hlist_entry_safe(following, __typeof__(*(entry)), member))

#endif
