/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Memory pools (S8-28): a reserve of elements in front of an allocator that may fail.
 *
 * Invariants:
 *  POOL-1  0 <= curr_nr <= max(min_nr, 1), and elements[0 .. curr_nr) are the reserve. All of it
 *          changes under the pool's lock; curr_nr and min_nr are also read without it, as hints.
 *  POOL-2  If an element came from the reserve and nobody has refilled the reserve, the free of the
 *          element finds it short: the element was taken out under the lock before its owner could
 *          free it. So a free that reads the hint without the lock never keeps a needed element
 *          from the reserve.
 *  POOL-3  A waiter announces itself before it drops the lock under which it found the reserve
 *          empty, so an element that is put there later wakes it.
 *  POOL-4  A free wakes a single waiter, and alloc_fn may serve that waiter in the end. So each
 *          waiter wakes another when it is served, and no waiter sleeps beside an element.
 *  POOL-5  A free may give its element to free_fn, whose memory no lock of ours orders. It looks for
 *          waiters behind that, and a waiter asks alloc_fn behind its announcement: so either the
 *          waiter is served, or the free wakes it. Without that look it would sleep beside what a
 *          free gave back between its failed request and its announcement.
 *
 * All pools share a few locks, by address, so fork can take the locks of pools that only the
 * program knows (heap/pool_locks.h). While a pool's lock is held, alloc_fn and free_fn are not
 * called and no other lock is taken.
 *
 * In a forked child, waiters of the parent stay counted in the pool's event, so the child's frees
 * make a system call that wakes nobody.
 */
#include "api/owner.h"

#include "heap/pool_locks.h"
#include "machine/event.h"
#include "machine/message.h"

#include <errno.h>
#include <string.h>

enum {
        WAIT_MS = 5000,
};

_Static_assert(sizeof(struct event) == sizeof(((mempool_t *)NULL)->wait), "the event fits");

static struct event *pool_event(mempool_t *pool)
{
        return (struct event *)&pool->wait;
}

/* Two libraries of a process may use the same pool, so its lock is the heap owner's. */
static struct lock *owner_lock(const mempool_t *pool)
{
        return heap_is_foreign() ? bound.calls->pool_lock(pool) : pool_lock(pool);
}

static void pool_add_locked(mempool_t *pool, void *element)
{
        check_or_die(pool->curr_nr < max_of(pool->min_nr, 1));
        pool->elements[pool->curr_nr] = element;
        store_relaxed(&pool->curr_nr, pool->curr_nr + 1);
}

/* The newest element, or NULL. */
static void *pool_remove_locked(mempool_t *pool)
{
        if (pool->curr_nr == 0)
                return NULL;
        store_relaxed(&pool->curr_nr, pool->curr_nr - 1);
        return pool->elements[pool->curr_nr];
}

/*
 * The functions of pools are compared as they are bound: in a program that is not
 * position-independent, the address of a function may be the program's own entry for it.
 */
static bool has_constructor(mempool_alloc_t *alloc_fn, void *pool_data)
{
        /* A reused element is not in constructed state. */
        return alloc_fn == bound.alloc_slab && ((struct kmem_cache *)pool_data)->ctor;
}

KMEM_PUBLIC void mempool_exit(mempool_t *pool)
{
        while (pool->curr_nr)
                pool->free(pool_remove_locked(pool), pool->pool_data);
        kfree(pool->elements);
        pool->elements = NULL;
}

KMEM_PUBLIC int mempool_init(mempool_t *pool, int min_nr, mempool_alloc_t *alloc_fn,
                             mempool_free_t *free_fn, void *pool_data)
{
        memset(pool, 0, sizeof(*pool));
        if (min_nr < 0) {
                message("mempool of %d elements: expected 0 or more; no pool", min_nr);
                return -EINVAL;
        }
        if (has_constructor(alloc_fn, pool_data)) {
                message("mempool of cache %s: expected one without constructor; no pool",
                        ((struct kmem_cache *)pool_data)->name);
                return -EINVAL;
        }
        if (alloc_fn == bound.alloc_pages && (uintptr_t)pool_data > ORDER_MAX) {
                message("mempool of pages of order %ld: expected 0 to %d; no pool", (long)pool_data,
                        ORDER_MAX);
                return -EINVAL;
        }
        pool->min_nr = min_nr;
        pool->pool_data = pool_data;
        pool->alloc = alloc_fn;
        pool->free = free_fn;
        pool->elements = kmalloc_array((size_t)max_of(min_nr, 1), sizeof(void *), GFP_KERNEL);
        if (!pool->elements)
                return -ENOMEM;
        while (pool->curr_nr < pool->min_nr) {
                void *element = alloc_fn(GFP_KERNEL, pool_data);

                if (!element) {
                        mempool_exit(pool);
                        return -ENOMEM;
                }
                pool_add_locked(pool, element); /* nobody else knows the pool yet */
        }
        return 0;
}

KMEM_PUBLIC mempool_t *mempool_create(int min_nr, mempool_alloc_t *alloc_fn,
                                      mempool_free_t *free_fn, void *pool_data)
{
        mempool_t *pool = kmalloc(sizeof(*pool), GFP_KERNEL);
        int error;

        if (!pool)
                return NULL;
        error = mempool_init(pool, min_nr, alloc_fn, free_fn, pool_data);
        if (!error)
                return pool;
        kfree(pool);
        errno = -error;
        return NULL;
}

KMEM_PUBLIC void mempool_destroy(mempool_t *pool)
{
        if (pool) {
                mempool_exit(pool);
                kfree(pool);
        }
}

/* Frees the elements above the new number, then lowers min_nr. */
static void pool_shrink(mempool_t *pool, int new_min_nr)
{
        lock_take(owner_lock(pool));
        while (pool->curr_nr > new_min_nr) {
                void *element = pool_remove_locked(pool);

                lock_drop(owner_lock(pool));
                pool->free(element, pool->pool_data);
                lock_take(owner_lock(pool));
        }
        store_relaxed(&pool->min_nr, new_min_nr);
        lock_drop(owner_lock(pool));
}

/*
 * Allocates until the reserve is full or memory is out; frees by other threads fill it meanwhile.
 */
static void pool_fill(mempool_t *pool)
{
        for (;;) {
                void *element;
                bool added = false;

                if (mempool_is_saturated(pool))
                        return;
                element = pool->alloc(GFP_KERNEL, pool->pool_data);
                if (!element)
                        return;
                lock_take(owner_lock(pool));
                if (pool->curr_nr < pool->min_nr) {
                        pool_add_locked(pool, element);
                        added = true;
                }
                lock_drop(owner_lock(pool));
                if (!added) {
                        pool->free(element, pool->pool_data);
                        return;
                }
                event_wake(pool_event(pool), 1);
        }
}

KMEM_PUBLIC int mempool_resize(mempool_t *pool, int new_min_nr)
{
        void **elements;
        void **old;

        if (new_min_nr < 1) {
                message("mempool_resize(%d): expected 1 element or more; nothing changed",
                        new_min_nr);
                return -EINVAL;
        }
        if (new_min_nr <= load_relaxed(&pool->min_nr)) {
                pool_shrink(pool, new_min_nr);
                return 0;
        }
        elements = kmalloc_array((size_t)new_min_nr, sizeof(*elements), GFP_KERNEL);
        if (!elements)
                return -ENOMEM;
        lock_take(owner_lock(pool));
        old = pool->elements;
        memcpy(elements, old, (size_t)pool->curr_nr * sizeof(*elements));
        pool->elements = elements;
        store_relaxed(&pool->min_nr, new_min_nr);
        lock_drop(owner_lock(pool));
        kfree(old);
        pool_fill(pool);
        return 0;
}

KMEM_PUBLIC void *mempool_alloc_preallocated(mempool_t *pool)
{
        void *element;

        lock_take(owner_lock(pool));
        element = pool_remove_locked(pool);
        lock_drop(owner_lock(pool));
        if (!element)
                errno = ENOMEM;
        return element;
}

/*
 * Tries the reserve and the allocator once more. If both have nothing, sleeps until an element comes
 * (POOL-3, POOL-5), but at most WAIT_MS, in case the allocator has memory again and nobody frees.
 */
static void *pool_wait(mempool_t *pool, gfp_t flags)
{
        struct event *event = pool_event(pool);
        uint32_t sequence;
        void *element;

        lock_take(owner_lock(pool));
        element = pool_remove_locked(pool);
        sequence = event_announce(event);
        lock_drop(owner_lock(pool));
        if (!element)
                element = pool->alloc(flags, pool->pool_data);
        if (element)
                event_retreat(event);
        else
                event_sleep(event, sequence, WAIT_MS);
        return element;
}

static KMEM_COLD void *refuse_zero(void)
{
        message("mempool_alloc: __GFP_ZERO is not supported, because reserved elements are not "
                "cleared");
        errno = EINVAL;
        return NULL;
}

KMEM_PUBLIC void *mempool_alloc(mempool_t *pool, gfp_t flags)
{
        /*
         * __GFP_NOFAIL is meant for the pool's call; a refusal of the allocator behind it is no
         * reason to stop the process.
         */
        gfp_t patient = (flags & ~__GFP_NOFAIL) | __GFP_NOMEMALLOC | __GFP_NORETRY | __GFP_NOWARN;
        gfp_t hasty = patient & ~(__GFP_DIRECT_RECLAIM | __GFP_IO);
        int saved_errno = errno;
        bool has_waited = false;
        void *element;

        if (unlikely(flags & __GFP_ZERO))
                return refuse_zero();
        element = pool->alloc(hasty, pool->pool_data);
        while (unlikely(!element)) {
                element = mempool_alloc_preallocated(pool);
                if (!element && patient != hasty)
                        element = pool->alloc(patient, pool->pool_data);
                if (element)
                        break;
                if (!(flags & __GFP_DIRECT_RECLAIM)) {
                        if (flags & __GFP_NOFAIL)
                                message_fatal("mempool_alloc: out of memory with __GFP_NOFAIL, "
                                              "and not allowed to wait");
                        errno = ENOMEM;
                        return NULL;
                }
                element = pool_wait(pool, hasty);
                has_waited = true;
                if (!element)
                        element = pool->alloc(hasty, pool->pool_data);
        }
        if (unlikely(has_waited))
                event_wake(pool_event(pool), 1); /* POOL-4 */
        errno = saved_errno;
        return element;
}

KMEM_PUBLIC void mempool_free(void *element, mempool_t *pool)
{
        bool added = false;

        if (unlikely(!element))
                return;
        /* The unlocked look is enough by POOL-2. */
        if (unlikely(load_relaxed(&pool->curr_nr) < load_relaxed(&pool->min_nr))) {
                lock_take(owner_lock(pool));
                if (pool->curr_nr < pool->min_nr) {
                        pool_add_locked(pool, element);
                        added = true;
                }
                lock_drop(owner_lock(pool));
        }
        if (!added)
                pool->free(element, pool->pool_data);
        /* Also after free_fn: the waiters of a pool without reserve wait for that. */
        event_wake(pool_event(pool), 1);
}
