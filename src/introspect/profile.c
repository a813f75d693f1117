/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sets the interval and the slices of a profile, and ends a profile when its lease is over. */
#include "introspect/profile.h"

#include "heap/heap.h"
#include "machine/message.h"
#include "base/options.h"
#include "profile/sample.h"

#include <errno.h>

int profile_set_locked(uint64_t interval)
{
        bool other = interval != load_relaxed(&profile_interval);

        debug_check(lock_is_held(&cache_mutex));
        if (interval && (interval < PROFILE_INTERVAL_LEAST || interval > PROFILE_INTERVAL_MOST))
                return ERANGE;
        if (interval && !samples_init())
                return ENOMEM;
        /* Release: pairs with is_profiling. */
        store_release(&profile_interval, interval);
        store_relaxed(&registry_head()->profile_interval, interval);
        if (!interval || !profile_since_ms)
                store_relaxed(&profile_since_ms, interval ? system_time_ms() : 0);
        store_relaxed(&registry_head()->profile_since_ms, profile_since_ms);
        /*
         * Objects that rest in sheaves were not decided when they came there, or by another
         * interval.
         */
        if (interval && other)
                percpu_flush_all();
        return 0;
}

int profile_slices_set_locked(uint64_t percent)
{
        debug_check(lock_is_held(&cache_mutex));
        if (percent > PROFILE_SLICES_MOST)
                return ERANGE;
        store_relaxed(&profile_slices, percent);
        store_relaxed(&registry_head()->profile_slices, percent);
        return 0;
}

void profile_renew_locked(void)
{
        bool leased = load_relaxed(&profile_interval) != options.profile_interval ||
                      load_relaxed(&profile_slices) != options.profile_slices;

        debug_check(lock_is_held(&cache_mutex));
        store_relaxed(&profile_lease_ends_ms, leased ? system_time_ms() + PROFILE_LEASE_MS : 0);
}

/*
 * Ends the lease. The lock is only tried, because the caller may hold it: the next slow path comes
 * here again. Under the lock the time is looked at once more, as another thread may have ended or
 * renewed the lease.
 */
void profile_lease_over(void)
{
        uint64_t ends;

        if (!lock_try(&cache_mutex))
                return;
        ends = load_relaxed(&profile_lease_ends_ms);
        if (ends && system_time_ms() >= ends) {
                profile_set_locked(options.profile_interval);
                profile_slices_set_locked(options.profile_slices);
                store_relaxed(&profile_lease_ends_ms, 0);
        }
        lock_drop(&cache_mutex);
}

void profile_init(void)
{
        lock_take(&cache_mutex);
        profile_set_locked(options.profile_interval);
        profile_slices_set_locked(options.profile_slices);
        lock_drop(&cache_mutex);
}
