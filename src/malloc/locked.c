/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * mlockall in front of libc's. The kernel counts the heap's reservation as locked memory, although
 * there is nothing in it. A process without rights and with a limit (RLIMIT_MEMLOCK) could lock
 * nothing, and a process that gives up its rights later could map nothing any more.
 *
 * The library does not see a program that calls the system itself, without libc.
 */
#define _GNU_SOURCE
#include "malloc/malloc.h"

#include "engines/hardened/hardened.h"
#include "heap/reclaim.h"
#include "registry/registry.h"
#include "machine/system.h"
#include "page/page.h"
#include "process/fork.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Gives up reserved address space, so that all mappings fit the limit of mlockall: the reservation
 * counts although nothing is in it. False: mlockall would be refused all the same.
 */
static bool fit_lock_limit(void)
{
        size_t limit = system_lock_limit();
        size_t mapped = system_mapped_bytes();
        size_t ours, others;

        if (limit == SIZE_MAX || !mapped || !heap_await(heap_page_locks_free))
                return false;
        ours = pages_reserved_bytes() + registry_room_bytes();
        others = mapped > ours ? mapped - ours : 0;
        if (others >= limit || !pages_fit_room(limit - others))
                return false;
        registry_give_up_room();
        return true;
}

/*
 * A reservation that is locked and without access would count against the limit of the program's
 * later mappings.
 */
static void unlock_reservations(void)
{
        if (!heap_await(heap_page_locks_free))
                return;
        pages_unlock();
        if (hardened_is_on())
                hardened_unlock();
        registry_unlock();
}

/*
 * The heap grows inside a mapping that the kernel knows as locked or not. So the mapping is left
 * unlocked, and if later memory is to be locked, each part is locked as it becomes accessible.
 */
KMEM_PUBLIC int mlockall(int flags)
{
        int saved_errno = errno;
        bool ours = heap_ready();
        int result = (int)syscall(SYS_mlockall, flags);

        if (result != 0 && errno == ENOMEM && ours && flags & MCL_CURRENT && fit_lock_limit())
                result = (int)syscall(SYS_mlockall, flags);
        if (result != 0)
                return result;
        if (ours) {
                system_tell_locked(flags);
                if (flags & MCL_CURRENT)
                        unlock_reservations();
        }
        errno = saved_errno;
        return 0;
}

KMEM_PUBLIC int munlockall(void)
{
        int result = (int)syscall(SYS_munlockall);

        if (result == 0)
                system_tell_locked(0);
        return result;
}
