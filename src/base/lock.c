/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The slow half of the futex mutex: spin shortly, then sleep.
 */
#define _GNU_SOURCE
#include "base/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Critical sections are tens to hundreds of cycles, so most waits end while spinning; on
 * fewer CPUs than threads the holder may be preempted, so the spin must stay short.
 */
enum { SPIN_ROUNDS = 64 };

void lock_wait(struct lock *lock)
{
        int saved_errno = errno;

        for (int round = 0; round < SPIN_ROUNDS; round++) {
                cpu_relax();
                if (load_relaxed(&lock->word) == 0 && lock_try(lock))
                        return;
        }
        /* Taking it as 2 may cost one needless wake-up later, never a lost one. */
        while (exchange_acquire(&lock->word, 2) != 0)
                syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
        errno = saved_errno;
}

void lock_wake(struct lock *lock)
{
        int saved_errno = errno;

        syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        errno = saved_errno;
}
