/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Fork. All locks are taken before, outermost first, so that the child's copy of everything they
 * protect is consistent; the child resets them. Our handlers are registered before those of the
 * program and its libraries, so that they run last before the fork and first after it: others'
 * handlers may allocate.
 */
#define _GNU_SOURCE
#include "api/rcu.h"

#include "base/metadata.h"
#include "base/rcu.h"
#include "page/deferred.h"
#include "page/large.h"
#include "page/purge.h"

#include <pthread.h>

static void prepare(void)
{
        call_rcu_fork_prepare();
        kfree_rcu_fork_prepare();
        lock_take(&cache_mutex);
        percpu_fork_prepare();
        lock_take(&release_lock);
        lock_take(&deferred_lock);
        rcu_fork_prepare();
        lock_take(&huge_lock);
        lock_take(&purge_lock);
        lock_take(&page_lock);
        lock_take(&metadata_lock);
}

static void parent(void)
{
        lock_drop(&metadata_lock);
        lock_drop(&page_lock);
        lock_drop(&purge_lock);
        lock_drop(&huge_lock);
        rcu_fork_parent();
        lock_drop(&deferred_lock);
        lock_drop(&release_lock);
        percpu_fork_parent();
        lock_drop(&cache_mutex);
        kfree_rcu_fork_parent();
        call_rcu_fork_parent();
}

static void child(void)
{
        lock_reset(&metadata_lock);
        lock_reset(&page_lock);
        lock_reset(&purge_lock);
        lock_reset(&huge_lock);
        rcu_fork_child();
        lock_reset(&deferred_lock);
        lock_reset(&release_lock);
        percpu_fork_child();
        lock_reset(&cache_mutex);
        kfree_rcu_fork_child();
        call_rcu_fork_child();
}

void fork_init(void)
{
        pthread_atfork(prepare, parent, child);
}
