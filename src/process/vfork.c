/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "process/vfork.h"

#include "process/start.h"
#include "machine/system.h"

#include <errno.h>

/*
 * A heap that started in a child would find the area unregistered, and do without restartable sequences
 * for good: it starts before. Not in a sandbox, where a program that never allocated may be killed for what
 * a start asks of the kernel; nor where it is starting at this moment, maybe in the call that a handler of
 * a signal interrupted to come here.
 */
static void start_heap(void)
{
        int saved_errno = errno;

        if (!system_sandbox_was_told() && !lock_is_held(&heap_start_lock))
                heap_ready();
        errno = saved_errno;
}

enum area_lent vfork_prepare(void)
{
        start_heap();
        return area_lend();
}

void vfork_begin_child(void)
{
        system_lend_process(true);
}

void vfork_end(enum area_lent lent, bool born)
{
        area_take_back(lent);
        if (born)
                system_lend_process(false);
}
