/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The queue of deferred pages, oldest first. A waiting block is described by its descriptor: the
 * page map is 0 and the kind PAGE_UNUSED, as of any block handed out (PAGE-2, PAGE-3); `state`
 * is its grace period, `prev` its number of pages, `next` the block behind it.
 *
 * Invariant:
 *  DEFER-1  Grace periods ascend along the queue, because snapshots are taken under
 *           deferred_lock. So when the first block's is over, the blocks to free are a prefix.
 *
 * Against: readers hold addresses inside the pages and look at them, without any lock, until
 * they leave their read sections. Others take slabs from the runs as soon as pages_free
 * has put them there. rcu_poll keeps the two apart; it is asked without the lock.
 */
#include "page/deferred.h"

#include "machine/message.h"
#include "base/rcu.h"

struct lock deferred_lock;
size_t deferred_pages;
static uint32_t first;
static uint32_t last;
static uint64_t refused_ms;
/*
 * Held while blocks go back, so that a thread that waits finds none half way; outside
 * deferred_lock.
 */
struct lock release_lock;

void pages_free_deferred(struct page *page, size_t count)
{
        uint32_t number = page_number(page);

        lock_take(&deferred_lock);
        page->state = rcu_snapshot();
        page->prev = (uint32_t)count;
        page->next = 0;
        if (last)
                page_at(last)->next = number;
        else
                first = number;
        last = number;
        store_relaxed(&deferred_pages, deferred_pages + count);
        lock_drop(&deferred_lock);
}

/* Grace period of the first or the last block, 0: none waits. */
static uint64_t queue_snapshot(const uint32_t *end)
{
        uint64_t snapshot = 0;

        lock_take(&deferred_lock);
        if (*end)
                snapshot = page_at(*end)->state;
        lock_drop(&deferred_lock);
        return snapshot;
}

/* Unlinks the blocks with grace periods up to @snapshot (DEFER-1). */
static uint32_t queue_take(uint64_t snapshot)
{
        uint32_t taken = 0;
        uint32_t *link = &taken;

        lock_take(&deferred_lock);
        while (first && page_at(first)->state <= snapshot) {
                struct page *page = page_at(first);

                *link = first;
                link = &page->next;
                first = page->next;
                page->next = 0;
                store_relaxed(&deferred_pages, deferred_pages - page->prev);
        }
        if (!first)
                last = 0;
        lock_drop(&deferred_lock);
        return taken;
}

static void queue_free_locked(uint64_t snapshot)
{
        uint32_t taken;

        debug_check(lock_is_held(&release_lock));
        taken = queue_take(snapshot);
        while (taken) {
                struct page *page = page_at(taken);
                size_t count = page->prev;

                taken = page->next;
                page->next = 0;
                page->prev = 0;
                page->state = 0;
                pages_free(page, count);
        }
}

void pages_release_deferred_slow(void)
{
        uint64_t snapshot = queue_snapshot(&first);

        if (!snapshot || !rcu_poll_seldom(snapshot, &refused_ms) || !lock_try(&release_lock))
                return;
        queue_free_locked(snapshot);
        lock_drop(&release_lock);
}

void pages_wait_deferred(void)
{
        uint64_t snapshot = queue_snapshot(&last);

        if (snapshot)
                rcu_wait(snapshot);
        lock_take(&release_lock);
        queue_free_locked(snapshot);
        lock_drop(&release_lock);
}
