/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libkmem-urcu: for programs that read under liburcu. Loaded beside libkmem, it makes every grace
 * period of libkmem wait for liburcu's readers too, so that kfree_rcu and SLAB_TYPESAFE_BY_RCU
 * protect objects that a thread finds inside liburcu's read sections.
 *
 * libkmem asks without being able to wait, so a thread of ours calls liburcu's synchronize_rcu. It
 * is no reader and so needs no registration; call_rcu would demand that of the caller, which may be
 * any thread that frees. There is a library for each flavour of liburcu: the program loads the
 * library of the flavour it reads with.
 *
 * The thread is made when the library is loaded and once more in a forked child, because a
 * request may come from inside an allocation and must not allocate.
 */
#define _GNU_SOURCE
#include URCU_HEADER

#include "kmem.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sem_t asked;     /* posted after each change of wanted; a post too many costs a look */
static uint64_t wanted; /* newest number asked for; only grows */
static uint64_t done;   /* newest number answered; written by the thread alone */

/*
 * No lock: the caller holds locks of libkmem, and fork handlers of this library would have to take
 * the lock before libkmem's handlers take theirs.
 */
static void request(uint64_t number)
{
        uint64_t old = __atomic_load_n(&wanted, __ATOMIC_RELAXED);

        /* Release, and the acquire in the thread: the grace period begins after the request. */
        while (old < number && !__atomic_compare_exchange_n(&wanted, &old, number, false,
                                                            __ATOMIC_RELEASE, __ATOMIC_RELAXED))
                ;
        sem_post(&asked);
}

static void *synchronize_thread(void *unused)
{
        for (;;) {
                uint64_t number = __atomic_load_n(&wanted, __ATOMIC_ACQUIRE);

                if (number <= done) {
                        sem_wait(&asked);
                        continue;
                }
                synchronize_rcu();
                kmem_rcu_domain_done(number);
                done = number;
        }
        return unused;
}

static int start_thread(void)
{
        pthread_attr_t attributes;
        pthread_t thread;
        sigset_t all;
        sigset_t old;
        int error = pthread_attr_init(&attributes);

        if (error)
                return error;
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        error = pthread_create(&thread, &attributes, synchronize_thread, NULL);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        pthread_attr_destroy(&attributes);
        return error;
}

/* The child answers requests anew that the parent's thread was working on. */
static void fork_child(void)
{
        sem_init(&asked, 0, 0);
        if (start_thread() != 0)
                fprintf(stderr, "kmem: libkmem-urcu: no thread in the forked child; memory that "
                                "waits for a grace period stays\n");
}

__attribute__((constructor)) static void begin(void)
{
        int error;

        sem_init(&asked, 0, 0);
        error = start_thread();
        if (!error)
                error = pthread_atfork(NULL, NULL, fork_child);
        if (!error && !kmem_rcu_set_domain(request))
                error = EBUSY;
        if (error) {
                /* To go on would free objects that liburcu's readers still look at. */
                fprintf(stderr, "kmem: libkmem-urcu: cannot add liburcu's grace periods: %s\n",
                        strerror(error));
                abort();
        }
}

__attribute__((visibility("default"))) bool kmem_urcu_is_loaded(void)
{
        return true;
}
