/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The public calls of RCU: read sections, waiting, functions and frees after a grace period.
 */
#include "api/owner.h"

#include "base/rcu.h"
#include "heap/rcu.h"

KMEM_PUBLIC void kmem_rcu_read_lock(void)
{
        if (unlikely(heap_is_foreign()))
                bound.calls->rcu_read_lock();
        else
                rcu_enter();
}

KMEM_PUBLIC void kmem_rcu_read_unlock(void)
{
        if (unlikely(heap_is_foreign()))
                bound.calls->rcu_read_unlock();
        else
                rcu_leave();
}

KMEM_PUBLIC bool kmem_rcu_read_lock_held(void)
{
        return heap_is_foreign() ? bound.calls->rcu_read_lock_held() : rcu_is_reading();
}

KMEM_PUBLIC void kmem_synchronize_rcu(void)
{
        if (heap_is_foreign())
                bound.calls->synchronize_rcu();
        else
                rcu_synchronize();
}

KMEM_PUBLIC void kmem_call_rcu(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head))
{
        if (heap_is_foreign())
                bound.calls->call_rcu(head, func);
        else
                rcu_call(head, func);
}

KMEM_PUBLIC void kmem_rcu_barrier(void)
{
        if (heap_is_foreign())
                bound.calls->rcu_barrier();
        else
                rcu_barrier();
}

KMEM_PUBLIC bool kmem_rcu_set_domain(void (*request)(uint64_t number))
{
        return heap_is_foreign() ? bound.calls->rcu_set_domain(request) : rcu_set_domain(request);
}

KMEM_PUBLIC void kmem_rcu_domain_done(uint64_t number)
{
        if (heap_is_foreign())
                bound.calls->rcu_domain_done(number);
        else
                rcu_domain_done(number);
}

/*
 * Const as in kfree, so that the macro needs no cast; a caller that gives a block up lets it be
 * written.
 */
KMEM_PUBLIC void kmem_free_rcu(const void *block, const void *head)
{
        if (ZERO_OR_NULL_PTR(block))
                return;
        if (heap_is_foreign())
                bound.calls->free_rcu(block, head);
        else
                kfree_rcu_add((void *)block, (void *)head);
}

KMEM_PUBLIC void kfree_rcu_barrier(void)
{
        if (heap_is_foreign())
                bound.calls->free_rcu_barrier();
        else
                kfree_rcu_wait();
}
