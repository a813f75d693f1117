/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The heap's ties to its process: the heap follows forks, and reports at the end of the process. A
 * simulated heap has other ties (src/simulator).
 */
#include "process/start.h"

#include "base/options.h"
#include "machine/message.h"
#include "machine/stack.h"
#include "heap/reclaim.h"
#include "heap/soft_limit.h"
#include "process/at_exit.h"
#include "process/fork.h"
#include "introspect/profile.h"
#include "process/requests.h"
#include "profile/guard.h"

static void guards_start(void)
{
        lock_take(&cache_mutex);
        if (!guards_init())
                message("guard_sampling: there is no address space for guards; nothing is guarded");
        lock_drop(&cache_mutex);
}

static void tie(void)
{
        system_claim_process(false);
        fork_init();
        requests_init();
        reclaim_thread_init();
        soft_limit_init();
        at_exit_init();
        if (options.profile_interval)
                profile_init();
        if (options_given(OPTION_GUARD_SAMPLING))
                guards_start();
}

bool process_start_heap(void)
{
        /* The ties come after the heap's state, because registering may allocate. */
        if (heap_start())
                tie();
        return heap_is_up();
}

/*
 * Runs early, so that our fork handlers come before those of others (they run in reverse order).
 * The heap starts with the first allocation: most of the cost of a start, files to read and pages
 * of libc and of this library, is wasted on a process that never allocates. With options it starts
 * at once, because an option may ask for a report of a process that allocates nothing, and bad
 * options are reported first.
 */
__attribute__((constructor(101))) static void start_early(void)
{
        fork_init();
        if (options_are_given() && heap_ready() &&
            (options_given(OPTION_DEBUG) || options.profile_interval ||
             options_given(OPTION_GUARD_SAMPLING)))
                stack_prepare();
}
