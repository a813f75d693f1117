/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The heap's ties to its process: it starts with it, follows its forks, and reports at its end. A
 * simulated heap has other ties (src/simulator).
 */
#include "api/reclaim.h"

#include "api/heap.h"
#include "base/options.h"
#include "base/stack.h"
#include "introspect/at_exit.h"
#include "introspect/profile.h"
#include "introspect/requests.h"

void heap_started(void)
{
        fork_init();
        requests_init();
        reclaim_thread_init();
        at_exit_init();
        if (options.profile_interval)
                profile_init();
}

/* Early, so that our fork handlers come before those of others (they run in reverse order). */
__attribute__((constructor(101))) static void start_early(void)
{
        if (heap_ready() && (options_given(OPTION_DEBUG) || options.profile_interval))
                stack_prepare();
}
