/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Doubly linked circular list, the node embedded in its owner.
 */
#ifndef KMEM_LANG_LIST_H
#define KMEM_LANG_LIST_H

#include "lang/compiler.h"

struct list {
        struct list *next;
        struct list *prev;
};

static inline void list_init(struct list *head)
{
        head->next = head;
        head->prev = head;
}

static inline void list_add(struct list *node, struct list *head)
{
        node->next = head->next;
        node->prev = head;
        head->next->prev = node;
        head->next = node;
}

static inline void list_add_tail(struct list *node, struct list *head)
{
        list_add(node, head->prev);
}

static inline void list_remove(struct list *node)
{
        node->prev->next = node->next;
        node->next->prev = node->prev;
        list_init(node);
}

#define list_for_each(node, head)                                                                  \
        for ((node) = (head)->next; (node) != (head); (node) = (node)->next)

#endif
