/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Makes the slices of time without sheaves that a profile asks for; see slice.h. */
#include "process/slice.h"

#include "heap/heap.h"
#include "machine/event.h"
#include "registry/registry.h"
#include "machine/system.h"
#include "percpu/percpu.h"
#include "profile/sample.h"

unsigned int profile_slice_ms(unsigned int period_ms)
{
        uint64_t percent = is_profiling() ? load_relaxed(&profile_slices) : 0;

        return percent ? (unsigned int)max_of(period_ms * percent / 100, (uint64_t)1) : 0;
}

bool profile_slice(unsigned int period_ms)
{
        unsigned int slice_ms = profile_slice_ms(period_ms);
        unsigned int slots;
        uint64_t begun;
        bool stopped;

        if (!slice_ms)
                return false;
        lock_take(&cache_mutex);
        /*
         * The slice includes the emptying of the slots: a thread that waited for its CPU meanwhile
         * catches up after it.
         */
        begun = system_time_ns();
        store_relaxed(&profile_in_slice, true);
        stopped = percpu_stop(&slots);
        /*
         * Cleared before the lock is dropped: a child forked after it would believe that a slice
         * runs.
         */
        if (!stopped)
                store_relaxed(&profile_in_slice, false);
        lock_drop(&cache_mutex);
        if (!stopped)
                return false;
        event_pause(slice_ms);
        store_relaxed(&profile_in_slice, false);
        add_relaxed(&registry_head()->slice_ns, system_time_ns() - begun);
        percpu_go_on(slots);
        return true;
}
