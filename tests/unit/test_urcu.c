/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Readers under liburcu, with libkmem-urcu loaded: nothing that they may look at is freed. Built
 * for each flavour of liburcu. Only the library's public side is used.
 */
#define _GNU_SOURCE
#include URCU_HEADER

#include "kmem.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define check(condition)                                                                           \
        do {                                                                                       \
                if (!(condition)) {                                                                \
                        fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__,           \
                                #condition);                                                       \
                        _exit(1);                                                                  \
                }                                                                                  \
        } while (0)

enum { PLACES = 64, WORDS = 20, READERS = 2 };

static const uint64_t MAGIC = 0x7e57ab1e0b1ec7ed;
static uint64_t *places[PLACES];
static uint32_t over;
static uint32_t inside;
static uint64_t sections;

static uint64_t now_ms(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void *read_places(void *unused)
{
        rcu_register_thread();
        while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
                rcu_read_lock();
                for (int i = 0; i < PLACES; i++) {
                        uint64_t *object = rcu_dereference(places[i]);

                        for (int word = 0; object && word < WORDS; word++)
                                check(__atomic_load_n(&object[word], __ATOMIC_RELAXED) == MAGIC);
                }
                rcu_read_unlock();
                __atomic_add_fetch(&sections, 1, __ATOMIC_RELAXED);
#ifdef _URCU_QSBR_H
                rcu_quiescent_state();
#endif
        }
        rcu_unregister_thread();
        return unused;
}

static void replace_all(void)
{
        void *scribbled[PLACES];

        for (int i = 0; i < PLACES; i++) {
                uint64_t *object = kmalloc(WORDS * 8, GFP_KERNEL);
                uint64_t *old = places[i];

                for (int word = 0; word < WORDS; word++)
                        object[word] = MAGIC;
                rcu_assign_pointer(places[i], object);
                kfree_rcu(old);
        }
        for (int i = 0; i < PLACES; i++) {
                scribbled[i] = kmalloc(WORDS * 8, GFP_KERNEL);
                memset(scribbled[i], 0x11, WORDS * 8);
        }
        kfree_bulk(PLACES, scribbled);
}

/* A section that lasts: the barrier must not come back before it ends. */
static void *stay(void *unused)
{
        rcu_register_thread();
        rcu_read_lock();
        __atomic_store_n(&inside, 1, __ATOMIC_RELEASE);
        for (uint64_t end = now_ms() + 100; now_ms() < end;)
                sched_yield();
        __atomic_store_n(&inside, 2, __ATOMIC_RELEASE);
        rcu_read_unlock();
        rcu_unregister_thread();
        return unused;
}

static void barrier_waits_for_a_section(void)
{
        pthread_t thread;

        check(pthread_create(&thread, NULL, stay, NULL) == 0);
        while (__atomic_load_n(&inside, __ATOMIC_ACQUIRE) == 0)
                sched_yield();
        kfree_rcu(kmalloc(100, GFP_KERNEL));
        kfree_rcu_barrier();
        check(__atomic_load_n(&inside, __ATOMIC_ACQUIRE) == 2);
        check(pthread_join(thread, NULL) == 0);
}

static void child_has_grace_periods(void)
{
        int status;
        pid_t pid = fork();

        check(pid >= 0);
        if (pid == 0) {
                alarm(30);
                kfree_rcu(kmalloc(100, GFP_KERNEL));
                kfree_rcu_barrier();
                _exit(0);
        }
        check(waitpid(pid, &status, 0) == pid);
        check(status == 0);
}

int main(void)
{
        pthread_t threads[READERS];
        uint64_t end = now_ms() + 1000;

        alarm(120);
        check(kmem_urcu_is_loaded());
        barrier_waits_for_a_section();
        child_has_grace_periods();
        for (int i = 0; i < READERS; i++)
                check(pthread_create(&threads[i], NULL, read_places, NULL) == 0);
        while (now_ms() < end)
                replace_all();
        __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
        for (int i = 0; i < READERS; i++)
                check(pthread_join(threads[i], NULL) == 0);
        kfree_rcu_barrier();
        check(sections > 100);
        return 0;
}
