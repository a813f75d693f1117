/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Mutexes, on pthread's. */
#ifndef KMEM_LINUX_MUTEX_H
#define KMEM_LINUX_MUTEX_H

#include <linux/cleanup.h>
#include <linux/compiler.h>
#include <linux/spinlock.h>

#include <pthread.h>

struct mutex {
        pthread_mutex_t mutex;
};

#define DEFINE_MUTEX(name) struct mutex name = {PTHREAD_MUTEX_INITIALIZER}

static inline void mutex_init(struct mutex *lock)
{
        pthread_mutex_init(&lock->mutex, NULL);
}

static inline void mutex_destroy(struct mutex *lock)
{
        pthread_mutex_destroy(&lock->mutex);
}

static inline void mutex_lock(struct mutex *lock)
{
        pthread_mutex_lock(&lock->mutex);
}

static inline int mutex_trylock(struct mutex *lock)
{
        return pthread_mutex_trylock(&lock->mutex) == 0;
}

static inline void mutex_unlock(struct mutex *lock)
{
        pthread_mutex_unlock(&lock->mutex);
}

static inline int mutex_lock_interruptible(struct mutex *lock)
{
        mutex_lock(lock);
        return 0;
}

DEFINE_GUARD(mutex, struct mutex *, mutex_lock(_T), mutex_unlock(_T))

#endif
