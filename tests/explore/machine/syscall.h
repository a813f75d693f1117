/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In front of machine/syscall.h: the calls that fence and that give way are the explorer's.
 */
#ifndef KMEM_EXPLORE_SYSCALL_H
#define KMEM_EXPLORE_SYSCALL_H

#include_next "machine/syscall.h"

#include "place.h"

#include <linux/membarrier.h>

static inline long explore_system_call(long number, long a, long b, long c)
{
        if (number == SYS_membarrier && a == MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
                explore_membarrier(PLACE("membarrier()"));
                return 0;
        }
        if (number == SYS_sched_yield) {
                explore_call(PLACE("sched_yield()"));
                explore_yield(PLACE("sched_yield()"));
                return 0;
        }
        return system_call(number, a, b, c);
}

#define system_call(number, a, b, c) explore_system_call(number, a, b, c)

#endif
