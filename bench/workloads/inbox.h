/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A bounded heap of pointers that any thread puts into and its owner empties, all at once. Its lock
 * also hands over the data that the pointers lead to. Nobody waits in it: a full inbox refuses, so
 * that threads which send to each other in a ring can empty their own before they try again.
 */
#ifndef KMEM_BENCH_INBOX_H
#define KMEM_BENCH_INBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct inbox {
        pthread_mutex_t lock;
        unsigned int capacity;
        unsigned int count; /* written under lock; the owner also peeks without it */
        void **items;       /* under lock; capacity entries */
        void **emptied;     /* the owner's: the array that takes turns with items */
};

/* Returns false if there is no memory. */
static inline bool inbox_init(struct inbox *inbox, unsigned int capacity)
{
        pthread_mutex_init(&inbox->lock, NULL);
        inbox->capacity = capacity;
        inbox->count = 0;
        inbox->items = (void **)calloc(capacity, sizeof(*inbox->items));
        inbox->emptied = (void **)calloc(capacity, sizeof(*inbox->emptied));
        return inbox->items && inbox->emptied;
}

static inline void inbox_destroy(struct inbox *inbox)
{
        free(inbox->items);
        free(inbox->emptied);
        pthread_mutex_destroy(&inbox->lock);
}

/* Puts all of the items, or none and returns false if there is no room. */
static inline bool inbox_put(struct inbox *inbox, void *const *items, unsigned int count)
{
        bool fits;

        pthread_mutex_lock(&inbox->lock);
        fits = count <= inbox->capacity - inbox->count;
        if (fits) {
                memcpy(inbox->items + inbox->count, items, count * sizeof(*items));
                __atomic_store_n(&inbox->count, inbox->count + count, __ATOMIC_RELAXED);
        }
        pthread_mutex_unlock(&inbox->lock);
        return fits;
}

/*
 * Takes everything; the owner alone calls it. The items stay valid until its next call. A stale
 * peek only leaves items for the next call: the lock orders the data.
 */
static inline unsigned int inbox_take(struct inbox *inbox, void ***items)
{
        unsigned int count;

        if (!__atomic_load_n(&inbox->count, __ATOMIC_RELAXED))
                return 0;
        pthread_mutex_lock(&inbox->lock);
        count = inbox->count;
        *items = inbox->items;
        inbox->items = inbox->emptied;
        inbox->emptied = *items;
        __atomic_store_n(&inbox->count, 0, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&inbox->lock);
        return count;
}

#endif
