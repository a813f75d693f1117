/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A bounded queue of pointers between threads. Its lock also hands over the data that the pointers
 * lead to. It allocates nothing.
 */
#ifndef KMEM_BENCH_HANDOVER_H
#define KMEM_BENCH_HANDOVER_H

#include <pthread.h>

enum { HANDOVER_CAPACITY = 8 };

struct handover {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        unsigned int first; /* oldest item; under lock, as the other fields */
        unsigned int count; /* 0 to HANDOVER_CAPACITY */
        void *items[HANDOVER_CAPACITY];
};

static inline void handover_init(struct handover *handover)
{
        pthread_mutex_init(&handover->lock, NULL);
        pthread_cond_init(&handover->changed, NULL);
        handover->first = 0;
        handover->count = 0;
}

/* Waits while the queue is full. */
static inline void handover_put(struct handover *handover, void *item)
{
        pthread_mutex_lock(&handover->lock);
        while (handover->count == HANDOVER_CAPACITY)
                pthread_cond_wait(&handover->changed, &handover->lock);
        handover->items[(handover->first + handover->count++) % HANDOVER_CAPACITY] = item;
        pthread_cond_broadcast(&handover->changed);
        pthread_mutex_unlock(&handover->lock);
}

/* Waits while the queue is empty; items come in the order they were put. */
static inline void *handover_take(struct handover *handover)
{
        void *item;

        pthread_mutex_lock(&handover->lock);
        while (!handover->count)
                pthread_cond_wait(&handover->changed, &handover->lock);
        item = handover->items[handover->first];
        handover->first = (handover->first + 1) % HANDOVER_CAPACITY;
        handover->count--;
        pthread_cond_broadcast(&handover->changed);
        pthread_mutex_unlock(&handover->lock);
        return item;
}

#endif
