/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The slow half of the futex mutex: spin shortly, then sleep.
 */
#define _GNU_SOURCE
#include "machine/lock.h"

#include "machine/syscall.h"

#include <linux/futex.h>

/*
 * Critical sections are tens to hundreds of cycles, so most waits end while spinning; on
 * fewer CPUs than threads the holder may be preempted, so the spin must stay short.
 */
enum { SPIN_ROUNDS = 64 };

void lock_wait(struct lock *lock)
{
        for (int round = 0; round < SPIN_ROUNDS; round++) {
                cpu_relax();
                if (load_relaxed(&lock->word) == 0 && lock_try(lock))
                        return;
        }
        /* Taking the lock as 2 may cost a needless wake-up later, but never loses a wake-up. */
        while (exchange_acquire(&lock->word, 2) != 0)
                system_call6(SYS_futex, (long)&lock->word, FUTEX_WAIT_PRIVATE, 2, 0, 0, 0);
}

void lock_wake(struct lock *lock)
{
        system_call(SYS_futex, (long)&lock->word, FUTEX_WAKE_PRIVATE, 1);
}
