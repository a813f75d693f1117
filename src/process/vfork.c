/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The heap's side of vfork: lends the parent's area to the child, and takes it back. */
#include "process/vfork.h"

#include "process/start.h"
#include "machine/system.h"

#include <errno.h>

/*
 * Starts the heap before the vfork: a heap that started in a child would find the area
 * unregistered, and do without restartable sequences for good. Not in a sandbox, where the start's
 * system calls may kill a program that never allocated; nor while the heap is starting, perhaps in
 * the call that this signal handler interrupted.
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
