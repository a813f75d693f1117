/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A simulated or explored machine has no areas of restartable sequences that threads lend to programs.
 */
#include "percpu/area.h"

bool area_thread_is_ours(void)
{
        return false;
}

/* No process of the library's forks here; the explorer's own forks are none. */
void area_fork_child(void)
{
}

enum area_lent area_lend(void)
{
        return AREA_UNUSED;
}

void area_take_back(enum area_lent lent)
{
        (void)lent;
}
