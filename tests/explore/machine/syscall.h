/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In front of machine/syscall.h: the calls that fence, that give way, that sleep and that wake are the
 * explorer's.
 */
#ifndef KMEM_EXPLORE_SYSCALL_H
#define KMEM_EXPLORE_SYSCALL_H

#include_next "machine/syscall.h"

#include "place.h"

#include <linux/futex.h>
#include <linux/membarrier.h>

static inline long explore_system_call(long number, long a, long b, long c)
{
        if (number == SYS_membarrier && a == MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
                explore_membarrier(THIS_PLACE("membarrier()"));
                return 0;
        }
        if (number == SYS_sched_yield) {
                explore_call(THIS_PLACE("sched_yield()"));
                explore_yield(THIS_PLACE("sched_yield()"));
                return 0;
        }
        if (number == SYS_futex && b == FUTEX_WAKE_PRIVATE) {
                explore_futex_wake(THIS_PLACE("futex: wake"), (uint32_t *)a, (unsigned int)c);
                return 0;
        }
        return system_call(number, a, b, c);
}

static inline long explore_system_call6(long number, long a, long b, long c, long d, long e, long f)
{
        if (number == SYS_futex && b == FUTEX_WAIT_PRIVATE) {
                explore_futex_wait(THIS_PLACE("futex: wait"), (uint32_t *)a, (uint32_t)c, d != 0);
                return 0;
        }
        return system_call6(number, a, b, c, d, e, f);
}

#define system_call6(number, a, b, c, d, e, f) explore_system_call6(number, a, b, c, d, e, f)
#define system_call(number, a, b, c) explore_system_call(number, a, b, c)

#endif
