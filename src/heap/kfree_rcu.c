/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Blocks that are freed after a grace period (S8-22).
 *
 * Pointers are collected in the open batch. A batch is closed when it is full, or old, or has
 * CLOSE_COUNT pointers while no other batch waits. Closing takes a snapshot of the grace
 * period that the batch needs, and queues it. Later calls free the batches at the front after their
 * grace period. Without memory for a batch a block waits in a second queue, linked through the head
 * in it. Caches with option sheaf_rule=7.0 collect objects in sheaves (percpu/rcu_sheaf.h), and a
 * third queue has the sheaves that were full.
 *
 * Invariants:
 *  KFREE-1  A batch's snapshot is taken after its last pointer was put in, so it covers all of
 *           them.
 *  KFREE-2  Snapshots ascend along each queue (they are taken under the lock).
 *  KFREE-3  No function here waits for a callback: a callback may call all of them.
 *  KFREE-4  A sheaf goes from its slot to the queue within one hold of the lock. So the barrier, which
 *           empties all slots in a hold, finds each block of an earlier kfree_rcu in the queue then.
 *
 * Against: readers use the blocks until they leave their sections. Nothing here reads or writes a
 * block, but for its head, before its grace period is over. Frees happen without the lock.
 */
#include "heap/blocks.h"
#include "heap/rcu.h"

#include "account/group.h"
#include "machine/message.h"
#include "percpu/handed.h"
#include "percpu/kernel_rule.h"
#include "percpu/rcu_sheaf.h"
#include "profile/sample.h"
#include "base/metadata.h"
#include "base/rcu.h"
#include "machine/system.h"
#include "record/record.h"

enum {
        BATCH_BYTES = 4096,
        BATCH_POINTERS = BATCH_BYTES / 8 - 4,
        CLOSE_COUNT = 32, /* enough pointers for a grace period of their own when no batch waits */
        CLOSE_AGE_MS = 20,
        OFFSET_BITS = 12, /* for the offset of a head in its block */
};

struct batch {
        struct batch *next;
        uint64_t snapshot;
        uint64_t opened_ms;
        size_t count;
        void *pointers[BATCH_POINTERS];
};
_Static_assert(sizeof(struct batch) == BATCH_BYTES, "a batch fills its metadata block");

static struct {
        struct lock lock;
        struct batch *open;  /* collects; NULL or not empty */
        struct batch *first; /* queue of closed batches, oldest first */
        struct batch *last;
        /* Blocks without a batch, oldest first. func holds snapshot << OFFSET_BITS | offset. */
        struct kmem_rcu_head *first_head;
        struct kmem_rcu_head *last_head;
        struct rcu_sheaf *first_sheaf; /* oldest first */
        struct rcu_sheaf *last_sheaf;
} pending;
static uint64_t refused_ms;

static void close_open_locked(void)
{
        struct batch *batch = pending.open;

        debug_check(lock_is_held(&pending.lock));
        if (!batch)
                return;
        batch->snapshot = rcu_snapshot(); /* KFREE-1, KFREE-2 */
        batch->next = NULL;
        if (pending.first)
                pending.last->next = batch;
        else
                store_relaxed(&pending.first, batch);
        pending.last = batch;
        store_relaxed(&pending.open, NULL);
}

static void close_if_due_locked(void)
{
        const struct batch *batch = pending.open;

        if (!batch)
                return;
        if (batch->count == BATCH_POINTERS || (!pending.first && batch->count >= CLOSE_COUNT) ||
            system_time_ms() - batch->opened_ms >= CLOSE_AGE_MS)
                close_open_locked();
}

/* False without memory. */
static bool collect(void *block)
{
        bool collected = false;

        lock_take(&pending.lock);
        if (!pending.open) {
                store_relaxed(&pending.open, metadata_alloc(sizeof(*pending.open)));
                if (pending.open) {
                        pending.open->count = 0;
                        pending.open->opened_ms = system_time_ms();
                }
        }
        if (pending.open) {
                pending.open->pointers[pending.open->count++] = block;
                close_if_due_locked();
                collected = true;
        }
        lock_drop(&pending.lock);
        return collected;
}

static uint64_t head_snapshot(const struct kmem_rcu_head *head)
{
        return (uintptr_t)head->func >> OFFSET_BITS;
}

static void queue_head(struct kmem_rcu_head *head, uintptr_t offset)
{
        lock_take(&pending.lock);
        head->next = NULL;
        head->func = (void (*)(struct kmem_rcu_head *))(rcu_snapshot() << OFFSET_BITS | offset);
        if (pending.first_head)
                pending.last_head->next = head;
        else
                store_relaxed(&pending.first_head, head);
        pending.last_head = head;
        lock_drop(&pending.lock);
}

static void queue_sheaf_locked(struct rcu_sheaf *sheaf)
{
        debug_check(lock_is_held(&pending.lock));
        sheaf->next = NULL;
        sheaf->snapshot = rcu_snapshot(); /* KFREE-1, KFREE-2 */
        if (pending.first_sheaf)
                pending.last_sheaf->next = sheaf;
        else
                store_relaxed(&pending.first_sheaf, sheaf);
        pending.last_sheaf = sheaf;
}

static void queue_full_sheaf(struct slot_cache *record)
{
        struct rcu_sheaf *sheaf;

        lock_take(&pending.lock); /* KFREE-4 */
        sheaf = rcu_sheaf_take_full(record);
        if (sheaf)
                queue_sheaf_locked(sheaf);
        lock_drop(&pending.lock);
}

/*
 * Collects an object in a sheaf. Objects with an owner, a record of their life or a sample are freed
 * one by one.
 */
static bool collect_in_sheaf(void *block)
{
        struct kmem_cache *cache = load_relaxed(&kernel_rule_is_used) ? cache_of(block) : NULL;
        struct slot_cache *full;
        bool collected;

        if (!cache || !cache->sheaves_as_7_0 || !load_relaxed(&cache->sheaf_capacity) ||
            is_recording() || groups_are_on() || cache_is_checked(cache) ||
            in_sample_region(block) || may_be_sample(block))
                return false;
        /* Once more if another thread filled the sheaf and has not queued it yet. */
        do {
                collected = rcu_sheaf_add(cache, block, &full);
                if (full)
                        queue_full_sheaf(full);
        } while (!collected && full);
        return collected;
}

void kfree_rcu_close_sheaves(struct kmem_cache *cache)
{
        struct rcu_sheaf *chain;

        if (!load_relaxed(&kernel_rule_is_used))
                return;
        lock_take(&pending.lock); /* KFREE-4 */
        /* No cache may end during a walk over all. */
        if (!cache)
                lock_take(&cache_mutex);
        chain = rcu_sheaves_take(cache);
        if (!cache)
                lock_drop(&cache_mutex);
        while (chain) {
                struct rcu_sheaf *sheaf = chain;

                chain = chain->next;
                queue_sheaf_locked(sheaf);
        }
        lock_drop(&pending.lock);
}

/*
 * Held while blocks are freed, so that the barrier finds no batch half freed; outside pending.lock.
 */
static struct lock free_lock;

/* Takes the first batch out of the queue if its grace period is not later than @snapshot. */
static struct batch *take_batch(uint64_t snapshot)
{
        struct batch *batch;

        lock_take(&pending.lock);
        batch = pending.first;
        if (batch && batch->snapshot <= snapshot)
                store_relaxed(&pending.first, batch->next);
        else
                batch = NULL;
        lock_drop(&pending.lock);
        return batch;
}

/* take_batch for the queue of heads. */
static struct kmem_rcu_head *take_head(uint64_t snapshot)
{
        struct kmem_rcu_head *head;

        lock_take(&pending.lock);
        head = pending.first_head;
        if (head && head_snapshot(head) <= snapshot)
                store_relaxed(&pending.first_head, head->next);
        else
                head = NULL;
        lock_drop(&pending.lock);
        return head;
}

/* take_batch for the queue of sheaves. */
static struct rcu_sheaf *take_sheaf(uint64_t snapshot)
{
        struct rcu_sheaf *sheaf;

        lock_take(&pending.lock);
        sheaf = pending.first_sheaf;
        if (sheaf && sheaf->snapshot <= snapshot)
                store_relaxed(&pending.first_sheaf, sheaf->next);
        else
                sheaf = NULL;
        lock_drop(&pending.lock);
        return sheaf;
}

static void free_block(void *block)
{
        if (!block_free_fast(block, load_folded(&fast.heap_bytes)))
                block_free_at(block, "kfree_rcu", CALL_SITE);
}

static void free_waiting_locked(uint64_t snapshot)
{
        struct kmem_rcu_head *head;
        struct rcu_sheaf *sheaf;
        struct batch *batch;

        debug_check(lock_is_held(&free_lock));
        while ((batch = take_batch(snapshot))) {
                blocks_free(batch->count, batch->pointers, 0, 0, 0, "kfree_rcu", CALL_SITE);
                metadata_free(batch, sizeof(*batch));
        }
        while ((sheaf = take_sheaf(snapshot)))
                rcu_sheaf_end(sheaf);
        while ((head = take_head(snapshot)))
                free_block((char *)head - ((uintptr_t)head->func & ((1 << OFFSET_BITS) - 1)));
}

/* The snapshot of the oldest entry of all queues; 0 if all are empty. */
static uint64_t first_snapshot(void)
{
        uint64_t snapshot;

        lock_take(&pending.lock);
        close_if_due_locked();
        snapshot = pending.first ? pending.first->snapshot : 0;
        if (pending.first_head && (!snapshot || head_snapshot(pending.first_head) < snapshot))
                snapshot = head_snapshot(pending.first_head);
        if (pending.first_sheaf && (!snapshot || pending.first_sheaf->snapshot < snapshot))
                snapshot = pending.first_sheaf->snapshot;
        lock_drop(&pending.lock);
        return snapshot;
}

/* The snapshot of the newest entry of all queues; 0 if all are empty. */
static uint64_t last_snapshot(void)
{
        uint64_t snapshot;

        lock_take(&pending.lock);
        close_open_locked();
        snapshot = pending.first ? pending.last->snapshot : 0;
        if (pending.first_head)
                snapshot = max_of(snapshot, head_snapshot(pending.last_head));
        if (pending.first_sheaf)
                snapshot = max_of(snapshot, pending.last_sheaf->snapshot);
        lock_drop(&pending.lock);
        return snapshot;
}

/* Whether anything is in a queue. Relaxed: a later call finds an entry that this call misses. */
static bool is_waiting(void)
{
        return load_relaxed(&pending.first) || load_relaxed(&pending.first_head) ||
               load_relaxed(&pending.first_sheaf);
}

void kfree_rcu_release(void)
{
        uint64_t snapshot;

        if (!is_waiting() && !load_relaxed(&pending.open))
                return;
        snapshot = first_snapshot();
        if (!snapshot || !rcu_poll_seldom(snapshot, &refused_ms) || !lock_try(&free_lock))
                return;
        free_waiting_locked(snapshot);
        lock_drop(&free_lock);
}

/* Frees a block although there is neither memory to note it nor a head in it. */
static KMEM_COLD void free_without_memory(void *block)
{
        if (rcu_is_reading()) {
                message("kfree_rcu(%p): out of memory inside a read section; the block leaks",
                        block);
                return;
        }
        rcu_wait(rcu_snapshot());
        free_block(block);
}

void kfree_rcu_add(void *block, struct kmem_rcu_head *head)
{
        if (!collect_in_sheaf(block) && unlikely(!collect(block))) {
                uintptr_t offset = (uintptr_t)head - (uintptr_t)block;

                if (!head || offset >> OFFSET_BITS) {
                        free_without_memory(block);
                        return;
                }
                queue_head(head, offset);
        }
        if (is_waiting())
                kfree_rcu_release();
}

void kfree_rcu_wait(void)
{
        uint64_t snapshot;

        check_may_wait("kfree_rcu_barrier");
        kfree_rcu_close_sheaves(NULL);
        snapshot = last_snapshot();
        if (snapshot)
                rcu_wait(snapshot);
        lock_take(&free_lock);
        free_waiting_locked(snapshot);
        lock_drop(&free_lock);
}

void kfree_rcu_fork_take(void (*take)(struct lock *lock))
{
        take(&free_lock);
        take(&pending.lock);
}

void kfree_rcu_fork_release(void (*release)(struct lock *lock))
{
        release(&pending.lock);
        release(&free_lock);
}
