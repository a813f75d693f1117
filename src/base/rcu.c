/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Records of readers, and the grace periods (base/rcu.h says why they are right).
 *
 * At most one grace period runs at a time. The polling threads do the work, under poll_lock, which
 * they only try to take; a thread that does not get it is told "not yet". Under the lock only the
 * kernel is called, so it is a leaf of the lock order; a domain is asked without it.
 */
#define _GNU_SOURCE
#include "base/rcu.h"

#include "machine/event.h"
#include "machine/message.h"
#include "base/metadata.h"
#include "machine/syscall.h"
#include "machine/system.h"

#include <linux/membarrier.h>
#include <pthread.h>

struct rcu_global rcu = {.number = 1};
__thread struct rcu_reader *rcu_this_reader;

static struct lock start_lock;
static struct lock poll_lock;
static struct rcu_reader *readers; /* all records ever made, newest first; pushed by swap */
static pthread_key_t exit_key;
static bool has_exit_key;

static uint64_t over = 1; /* the newest grace period that is over; release */
static bool running;      /* rcu.number is not over yet; under poll_lock */
static struct event over_event;

static void (*domain_request)(uint64_t number); /* release; set once */
static uint64_t domain_over;                    /* grows; release */

/* ---- Readers ----------------------------------------------------------------------------- */

/*
 * The thread ends. Other keys' destructors may still enter read sections: they get a record
 * again, and this destructor another round. A record that misses the last round stays used with
 * word 0, which costs only its 64 bytes.
 */
static void thread_exits(void *record)
{
        struct rcu_reader *reader = record;

        if (load_relaxed(&reader->word)) {
                message("a thread ended inside an RCU read section; the section ends with it");
                /* Release: RCU-5. Partner: the acquire in readers_have_passed. */
                store_release(&reader->word, 0);
        }
        rcu_this_reader = NULL;
        /* Release: the next thread's stores to the word come after ours. Partner: reader_reuse. */
        store_release(&reader->used, 0);
}

/*
 * Settles how to fence, before the first reader. The key is made without the lock, because another
 * library may stand in front of that call, and allocate: if several threads come here, a single key
 * of theirs is used.
 */
static void rcu_begin(void)
{
        pthread_key_t key;
        bool made = pthread_key_create(&key, thread_exits) == 0;

        lock_take(&start_lock);
        if (!rcu.started) {
                rcu.fences = system_call_failed(system_call(
                        SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
                exit_key = key;
                has_exit_key = made;
                made = false;
                /* Release: the way to fence is chosen. Partners: the acquires of rcu.started. */
                store_release(&rcu.started, 1);
        }
        lock_drop(&start_lock);
        if (made)
                pthread_key_delete(key);
}

static struct rcu_reader *reader_reuse(void)
{
        /* Acquire: partner of the push in reader_new. */
        for (struct rcu_reader *reader = load_acquire(&readers); reader; reader = reader->next) {
                uint32_t expected = 0;

                if (!load_relaxed(&reader->used) &&
                    compare_swap_acquire(&reader->used, &expected, 1))
                        return reader;
        }
        return NULL;
}

/* For when there is no memory: never given back, so that many threads can be out of memory. */
static KMEM_SPARSE struct rcu_reader reserve[64];
static uint32_t reserve_taken;

static struct rcu_reader *reader_new(void)
{
        struct rcu_reader *reader = metadata_alloc(sizeof(*reader));
        struct rcu_reader *head = load_relaxed(&readers);

        if (!reader) {
                uint32_t number = add_relaxed(&reserve_taken, 1) - 1;

                if (number >= array_size(reserve))
                        message_fatal("out of memory for the RCU record of a thread, and the %zu "
                                      "records in reserve are taken",
                                      array_size(reserve));
                reader = &reserve[number];
        }
        /* The swap below releases the record to walkers of the list (acquire of readers). */
        reader->used = 1;
        do {
                reader->next = head;
        } while (!compare_swap(&readers, &head, reader));
        return reader;
}

struct rcu_reader *rcu_register(void)
{
        struct rcu_reader *reader;

        if (!load_acquire(&rcu.started))
                rcu_begin();
        reader = reader_reuse();
        if (!reader)
                reader = reader_new();
        rcu_this_reader = reader;
        /*
         * Claimed once more: a signal handler may have forked since the first time. In its child
         * the record looked like a record of a thread that is not there (rcu_fork_child).
         */
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        store_relaxed(&reader->used, 1);
        /* May allocate, and so come back here, which then finds the record. */
        if (has_exit_key)
                pthread_setspecific(exit_key, reader);
        return reader;
}

void rcu_unbalanced(void)
{
        message_fatal("kmem_rcu_read_unlock: this thread is in no read section");
}

/* ---- Grace periods ----------------------------------------------------------------------- */

/* RCU-3. EPERM: a forked child of some kernels must register anew. */
static void barrier_on_all_threads(void)
{
        long result;

        if (rcu.fences) {
                __atomic_thread_fence(__ATOMIC_SEQ_CST);
                return;
        }
        do {
                result = system_call(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
                if (system_call_failed(result) &&
                    system_call_failed(system_call(
                            SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0)))
                        message_fatal("the kernel granted membarrier at first and refuses it "
                                      "now; RCU cannot go on");
        } while (system_call_failed(result));
}

static void rcu_start_locked(void)
{
        debug_check(lock_is_held(&poll_lock) && !running);
        running = true;
        /*
         * Release: RCU-2. Partner: the acquire in rcu_enter. Acquire: RCU-4; the removals of every
         * snapshot of this number come before. Partner: the release in rcu_snapshot.
         */
        __atomic_add_fetch(&rcu.number, 1, __ATOMIC_ACQ_REL);
        barrier_on_all_threads();
}

/* Whether no thread is inside a section that began before the running grace period. */
static bool readers_have_passed(void)
{
        uint64_t number = load_relaxed(&rcu.number);

        /* Acquire: partner of the push in reader_new. */
        for (struct rcu_reader *reader = load_acquire(&readers); reader; reader = reader->next) {
                uint64_t word = load_acquire(&reader->word); /* RCU-5; partner: the release in
                                                                rcu_leave. */

                if (word && word >> RCU_NESTING_BITS < number)
                        return false;
        }
        return true;
}

/* A step of the work; true if a grace period was started, which a domain must be told of. */
static bool rcu_step_locked(void)
{
        bool started = false;
        uint64_t number;

        if (!running) {
                rcu_start_locked();
                started = true;
        }
        number = load_relaxed(&rcu.number); /* relaxed: under poll_lock it does not change */
        /* Acquire: accesses of the domain's readers come before. Partner: rcu_domain_done. */
        if (load_acquire(&domain_request) && load_acquire(&domain_over) < number)
                return started;
        if (readers_have_passed()) {
                running = false;
                /* Release: partner of the acquire in rcu_poll. */
                store_release(&over, number);
        }
        return started;
}

uint64_t rcu_snapshot(void)
{
        /*
         * A read-modify-write, which sees the newest number: with a load the next number could be
         * published, and read by a reader that still sees what the caller has taken away. Release:
         * RCU-4. Partner: the acquire in rcu_start_locked.
         */
        return __atomic_add_fetch(&rcu.number, 0, __ATOMIC_RELEASE) + 1;
}

bool rcu_poll(uint64_t snapshot)
{
        void (*request)(uint64_t number);
        uint64_t number;
        bool started = false;

        /* Acquire: partner of the release in rcu_step_locked; accesses of sections come before. */
        if (load_acquire(&over) >= snapshot)
                return true;
        if (!load_acquire(&rcu.started))
                rcu_begin();
        /* Two rounds, because the running grace period may have begun before the snapshot. */
        for (int round = 0; round < 2 && load_acquire(&over) < snapshot; round++) {
                if (!lock_try(&poll_lock))
                        return false;
                started = rcu_step_locked();
                number = load_relaxed(&rcu.number);
                lock_drop(&poll_lock);
                request = load_acquire(&domain_request);
                if (started && request)
                        request(number);
        }
        if (load_acquire(&over) < snapshot)
                return false;
        event_wake(&over_event, UINT32_MAX);
        return true;
}

bool rcu_poll_seldom(uint64_t snapshot, uint64_t *refused_ms)
{
        uint64_t now;

        if (load_acquire(&over) >= snapshot)
                return true;
        now = system_time_ms();
        /* Relaxed: a stale value costs a further look, or a later look. */
        if (load_relaxed(refused_ms) == now)
                return false;
        if (rcu_poll(snapshot))
                return true;
        store_relaxed(refused_ms, now);
        return false;
}

/*
 * Readers do not announce that they leave, so this looks again and again: a few times at once, then
 * at intervals up to a few milliseconds. Other waiters' success wakes us.
 */
void rcu_wait(uint64_t snapshot)
{
        unsigned int milliseconds = 0;

        for (unsigned int round = 0; !rcu_poll(snapshot); round++) {
                uint32_t sequence;

                if (round < 16) {
                        system_call(SYS_sched_yield, 0, 0, 0);
                        continue;
                }
                sequence = event_announce(&over_event);
                milliseconds = min_of(milliseconds + 1, 4u);
                if (load_acquire(&over) >= snapshot)
                        event_retreat(&over_event);
                else
                        event_sleep(&over_event, sequence, milliseconds);
        }
}

/* ---- A second implementation ------------------------------------------------------------- */

bool rcu_set_domain(void (*request)(uint64_t number))
{
        bool set;

        if (!load_acquire(&rcu.started))
                rcu_begin();
        /*
         * A grace period that runs now began without the domain, which never hears of it: it
         * counts as over there.
         */
        lock_take(&poll_lock);
        set = !domain_request;
        if (set) {
                /*
                 * Release: a thread that sees the request sees domain_over. Partners: its acquires.
                 */
                store_release(&domain_over, rcu.number);
                store_release(&domain_request, request);
        }
        lock_drop(&poll_lock);
        return set;
}

bool rcu_is_alone(void)
{
        return !load_acquire(&domain_request);
}

void rcu_domain_done(uint64_t number)
{
        uint64_t old = load_relaxed(&domain_over);

        /* Release: partner of the acquire in rcu_step_locked. */
        while (old < number && !compare_swap(&domain_over, &old, number))
                ;
        event_wake(&over_event, UINT32_MAX);
}

/* ---- Fork -------------------------------------------------------------------------------- */

void rcu_fork_take(void (*take)(struct lock *lock))
{
        take(&start_lock);
        take(&poll_lock);
}

void rcu_fork_release(void (*release)(struct lock *lock))
{
        release(&poll_lock);
        release(&start_lock);
}

void rcu_fork_child(void)
{
        for (struct rcu_reader *reader = readers; reader; reader = reader->next)
                if (reader != rcu_this_reader) {
                        reader->word = 0;
                        reader->used = 0;
                }
        over_event = (struct event){0};
        /*
         * The thread that was to tell the domain may not exist in the child: the next poll starts
         * anew.
         */
        running = false;
}
