/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * RCU for the program: waiting for a grace period, and functions that are called after a grace
 * period.
 *
 * Callbacks are collected in `next`. The holder of run_lock takes them all, waits for a grace
 * period, and runs them in order: that is the library's thread, or kmem_rcu_barrier. run_lock is
 * held while callbacks run, so a barrier that gets it finds no older callback still to come. It is
 * outside of all other locks, and fork does not take it: a callback may fork. Then the child's
 * thread is still the holder, and goes on with the callbacks that have waited for their grace
 * period; other threads must not add new callbacks to these.
 */
#include "heap/rcu.h"

#include "machine/event.h"
#include "machine/message.h"
#include "base/rcu.h"
#include "machine/system.h"
#include "page/deferred.h"

struct callback_list {
        struct kmem_rcu_head *first;
        struct kmem_rcu_head *last;
};

static struct {
        struct lock lock;           /* protects the lists and has_thread */
        struct callback_list next;  /* not waited for yet */
        struct callback_list ready; /* taken out of next; the holder of run_lock takes from it */
        bool has_thread;
} callbacks;
static struct lock run_lock;
/* Whether the calling thread holds run_lock. Initial-exec: access must never allocate. */
static _Thread_local bool has_run_lock __attribute__((tls_model("initial-exec")));
static struct event callback_event;

void check_may_wait(const char *call)
{
        if (unlikely(rcu_is_reading()))
                message_fatal("%s inside an RCU read section would wait for itself", call);
}

void rcu_synchronize(void)
{
        check_may_wait("kmem_synchronize_rcu");
        rcu_wait(rcu_snapshot());
        kfree_rcu_release();
        pages_release_deferred();
}

/* ---- Callbacks --------------------------------------------------------------------------- */

/* Moves @from behind @to; @from is empty afterwards. */
static void list_append(struct callback_list *to, struct callback_list *from)
{
        if (!from->first)
                return;
        if (to->first)
                to->last->next = from->first;
        else
                to->first = from->first;
        to->last = from->last;
        *from = (struct callback_list){0};
}

static struct kmem_rcu_head *take_ready(void)
{
        struct kmem_rcu_head *head;

        lock_take(&callbacks.lock);
        head = callbacks.ready.first;
        if (head)
                callbacks.ready.first = head->next;
        lock_drop(&callbacks.lock);
        return head;
}

/* Runs all callbacks; false if there were none. */
static bool run_all_locked(void)
{
        struct kmem_rcu_head *head;
        bool any;

        debug_check(lock_is_held(&run_lock));
        lock_take(&callbacks.lock);
        list_append(&callbacks.ready, &callbacks.next);
        any = callbacks.ready.first != NULL;
        lock_drop(&callbacks.lock);
        if (!any)
                return false;
        rcu_wait(rcu_snapshot());
        while ((head = take_ready()))
                head->func(head);
        return true;
}

static bool run_all(void)
{
        bool any;

        lock_take(&run_lock);
        has_run_lock = true;
        any = run_all_locked();
        has_run_lock = false;
        lock_drop(&run_lock);
        return any;
}

static void *callback_thread(void *unused)
{
        for (;;) {
                uint32_t sequence = event_announce(&callback_event);
                bool any = run_all();

                kfree_rcu_release();
                pages_release_deferred();
                if (any)
                        event_retreat(&callback_event);
                else
                        event_sleep(&callback_event, sequence, 1000);
        }
        return unused;
}

/* If there is no memory for a thread, callbacks wait for the next call or barrier. */
static void start_thread(void)
{
        if (!system_start_thread(callback_thread)) {
                lock_take(&callbacks.lock);
                callbacks.has_thread = false;
                lock_drop(&callbacks.lock);
        }
}

void rcu_call(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head))
{
        struct callback_list one = {head, head};
        bool start;

        head->next = NULL;
        head->func = func;
        lock_take(&callbacks.lock);
        list_append(&callbacks.next, &one);
        start = !callbacks.has_thread;
        callbacks.has_thread = true;
        lock_drop(&callbacks.lock);
        if (start)
                start_thread();
        else
                event_wake(&callback_event, 1);
}

void rcu_barrier(void)
{
        check_may_wait("kmem_rcu_barrier");
        run_all();
        kfree_rcu_release();
        pages_release_deferred();
}

void call_rcu_fork_each_lock(void (*change)(struct lock *lock))
{
        change(&callbacks.lock);
}

/*
 * The callback that another thread was running is lost. The callbacks behind it wait for another
 * grace period.
 */
void call_rcu_fork_child(void)
{
        callbacks.has_thread = false;
        callback_event = (struct event){0};
        if (!has_run_lock)
                lock_reset(&run_lock);
}
