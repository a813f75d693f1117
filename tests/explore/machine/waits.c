/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of pauses, and in front of the system calls that give memory back or make it accessible: each
 * is a scheduling point, and a fence (the linker's --wrap).
 */
#include "machine/system.h"
#include "races.h"

void __wrap_system_sleep_ns(long nanoseconds);
int __wrap_system_membarrier(int command);
bool __wrap_system_commit(void *start, size_t bytes);
bool __wrap_system_purge(void *start, size_t bytes);
bool __real_system_commit(void *start, size_t bytes);
bool __real_system_purge(void *start, size_t bytes);

void __wrap_system_sleep_ns(long nanoseconds)
{
        (void)nanoseconds;
        explore_call(PLACE("system_sleep_ns()"));
        explore_yield(PLACE("system_sleep_ns()"));
}

int __wrap_system_membarrier(int command)
{
        (void)command;
        sequences_fence(PLACE("system_membarrier()"));
        return 0;
}

bool __wrap_system_commit(void *start, size_t bytes)
{
        explore_point(PLACE("system_commit()"), start, ACCESS_LOCKED);
        explore_effect(start, bytes, true);
        races_forget(start, bytes);
        return __real_system_commit(start, bytes);
}

bool __wrap_system_purge(void *start, size_t bytes)
{
        explore_point(PLACE("system_purge()"), start, ACCESS_LOCKED);
        explore_flush_all(); /* as the kernel has every CPU forget the page */
        explore_effect(start, bytes, true);
        races_forget(start, bytes);
        return __real_system_purge(start, bytes);
}
