/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Functions of libc that the drop-in library stands in front of. */
#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS /* with it setrlimit is but another name of setrlimit64 */
#include "malloc/malloc.h"

#include "engines/hardened/hardened.h"
#include "heap/reclaim.h"
#include "registry/registry.h"
#include "machine/system.h"
#include "process/at_exit.h"
#include "page/page.h"
#include "process/fork.h"
#include "percpu/drain.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __GLIBC__
typedef __rlimit_resource_t resource_number;
#else
typedef int resource_number;
#endif
#ifndef RTLD_DEEPBIND
#define RTLD_DEEPBIND 0 /* musl has no such thing */
#endif

typedef void *(*dlopen_function)(const char *, int);
static dlopen_function real_dlopen;

static KMEM_NOINLINE dlopen_function find_dlopen(void)
{
        dlopen_function found = (dlopen_function)dlsym(RTLD_NEXT, "dlopen");

        store_relaxed(&real_dlopen, found);
        return found;
}

/*
 * A library opened with RTLD_DEEPBIND would free our blocks with libc's free, so the flag is
 * dropped. libc's dlopen uses the search path of its caller and must see the true caller: the call
 * is a jump.
 */
KMEM_PUBLIC void *dlopen(const char *file, int mode)
{
        dlopen_function real = load_relaxed(&real_dlopen);

        if (unlikely(!real))
                real = find_dlopen();
        if (unlikely(!real))
                return NULL; /* a libc without dynamic linker, or an old one (older_libc.c) */
        return real(file, mode & ~RTLD_DEEPBIND);
}

/*
 * Whether the process is not a child of vfork, which runs in its parent's memory. In a sandbox the
 * question itself may be the end of the process, so it is not asked.
 */
static bool is_own_process(void)
{
        return system_sandbox_was_told() || system_is_own_process();
}

/*
 * Makes, before a sandbox begins, the system calls that a slow path would make later. The sandbox
 * may kill for them, as libc's malloc does not make them.
 */
static bool may_prepare_for_sandbox(void)
{
        int saved_errno = errno;
        bool may = heap_ready() && is_own_process();

        if (may && !system_sandbox_was_told()) {
                percpu_after_fork();
                system_dump_reservation();
        }
        errno = saved_errno;
        return may;
}

/*
 * A program calls prctl to install a filter of system calls, or, except a few privileged programs,
 * to give up rights before it installs one.
 */
KMEM_PUBLIC int prctl(int option, ...)
{
        unsigned long argument[4];
        va_list arguments;
        bool told, stopped;
        int result;

        va_start(arguments, option);
        for (unsigned int i = 0; i < array_size(argument); i++)
                argument[i] = va_arg(arguments, unsigned long);
        va_end(arguments);
        told = (option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS) &&
               may_prepare_for_sandbox();
        /* The filter may apply to all threads (SECCOMP_FILTER_FLAG_TSYNC). */
        stopped = told && reclaim_thread_stop();
        result =
                (int)syscall(SYS_prctl, option, argument[0], argument[1], argument[2], argument[3]);
        if (told && result == 0)
                system_tell_sandbox();
        if (stopped)
                reclaim_thread_allow();
        return result;
}

static void fit_limit(size_t limit)
{
        if (!heap_await(heap_page_locks_free))
                return;
        pages_fit_limit(hardened_is_on() ? limit / 2 : limit);
        if (hardened_is_on())
                hardened_fit(limit / 4);
}

/*
 * Whether the kernel will take the limit, and it is lower than now. The function reads @limit only
 * if the kernel could read it: the kernel does so before it refuses a resource that does not exist.
 */
static bool is_lowering(const struct rlimit *limit)
{
        int saved_errno = errno;
        bool readable = syscall(SYS_prlimit64, 0, -1, limit, NULL) != 0 && errno == EINVAL;
        struct rlimit now; /* of 64 bits in each libc */

        if (readable && syscall(SYS_prlimit64, 0, RLIMIT_AS, NULL, &now) != 0)
                readable = false;
        errno = saved_errno;
        return readable && limit->rlim_cur <= limit->rlim_max && limit->rlim_max <= now.rlim_max &&
               limit->rlim_cur < now.rlim_cur;
}

/*
 * Sets a limit. A limit of the address space counts the reservation, which the program knows
 * nothing of. A child of vfork sets limits of its own, but the memory is its parent's. The heap
 * shrinks before the limit is set, so that no other thread is refused a mapping meanwhile; and
 * after it, by the limit that the process has now: @process may name a thread of this process, and
 * the old limit may have overwritten the new limit in the program's memory.
 */
static int limit_set(pid_t process, int resource, const void *limit, void *old)
{
        bool ours = limit && resource == RLIMIT_AS && is_own_process();
        int result;

        if (ours && (process == 0 || (uint32_t)process == system_process_id()) &&
            !system_entered_sandbox() && is_lowering(limit))
                fit_limit(((const struct rlimit *)limit)->rlim_cur);
        result = (int)syscall(SYS_prlimit64, process, resource, limit, old);
        if (ours && result == 0)
                fit_limit(system_address_space_limit());
        return result;
}

KMEM_PUBLIC int setrlimit(resource_number resource, const struct rlimit *limit)
{
        return limit_set(0, (int)resource, limit, NULL);
}

#ifdef __GLIBC__
KMEM_PUBLIC int setrlimit64(resource_number resource, const struct rlimit64 *limit)
{
        return limit_set(0, (int)resource, limit, NULL);
}
#endif

KMEM_PUBLIC int prlimit(pid_t process, resource_number resource, const struct rlimit *limit,
                        struct rlimit *old)
{
        return limit_set(process, (int)resource, limit, old);
}

#ifdef __GLIBC__
KMEM_PUBLIC int prlimit64(pid_t process, resource_number resource, const struct rlimit64 *limit,
                          struct rlimit64 *old)
{
        return limit_set(process, (int)resource, limit, old);
}
#endif

/*
 * The kernel refuses some namespaces to processes with more than one thread, or with threads that
 * share a root directory. The reclaim thread must not hinder a program that has ended its own
 * threads, so it is stopped and the call repeated.
 */
static int namespace_call(long number, long first, long second)
{
        int result = (int)syscall(number, first, second);

        if (result != 0 && (errno == EINVAL || errno == EUSERS) && reclaim_thread_stop()) {
                result = (int)syscall(number, first, second);
                reclaim_thread_allow();
        }
        return result;
}

KMEM_PUBLIC int unshare(int flags)
{
        return namespace_call(SYS_unshare, flags, 0);
}

KMEM_PUBLIC int setns(int descriptor, int kind)
{
        return namespace_call(SYS_setns, descriptor, kind);
}

static void leave(int status) __attribute__((noreturn));

/* Writes the reports of a program that leaves without running destructors. */
static void finish(void)
{
        if (at_exit_is_wanted() && heap_await(heap_locks_free))
                at_exit_write();
        at_exit_sweep();
        registry_close();
}

static void leave(int status)
{
        finish();
        for (;;)
                syscall(SYS_exit_group, status);
}

KMEM_PUBLIC void _exit(int status)
{
        leave(status);
}

KMEM_PUBLIC void _Exit(int status)
{
        leave(status);
}

/*
 * quick_exit in front of libc's, which calls libc's own _exit. The report shows the moment before
 * the functions of at_quick_exit run. A function of ours registered there would run behind them,
 * but every process would have to register it at its start.
 */
KMEM_PUBLIC void quick_exit(int status)
{
        void (*real)(int) = (void (*)(int))dlsym(RTLD_NEXT, "quick_exit");

        finish();
        if (real)
                real(status);
        leave(status);
}
