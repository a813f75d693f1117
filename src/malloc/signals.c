/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * sigaction and signal in front of libc's: while sampled guards watch for faults, a handler that the
 * program sets for SIGSEGV is kept beside ours, which calls it (FAULT-CHAIN-1). All other calls go
 * to libc.
 */
#define _GNU_SOURCE
#include "malloc/malloc.h"

#include "machine/fault.h"
#include "machine/system.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

typedef void (*handler_function)(int);
typedef int (*sigaction_function)(int, const struct sigaction *, struct sigaction *);
typedef handler_function (*signal_function)(int, handler_function);

/* Other names of libc's functions; musl has the second only. */
extern int libc_sigaction(int number, const struct sigaction *action,
                          struct sigaction *old) __asm__("__sigaction") __attribute__((weak));
extern handler_function libc_signal(int number, handler_function handler) __asm__("bsd_signal")
        __attribute__((weak));

static int real_sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
        sigaction_function real = libc_sigaction;

        if (unlikely(!real))
                real = (sigaction_function)dlsym(RTLD_NEXT, "sigaction");
        if (real)
                return real(number, action, old);
        errno = ENOSYS;
        return -1;
}

static handler_function real_signal(int number, handler_function handler)
{
        signal_function real = libc_signal;

        if (unlikely(!real))
                real = (signal_function)dlsym(RTLD_NEXT, "signal");
        if (real)
                return real(number, handler);
        errno = ENOSYS;
        return SIG_ERR;
}

/*
 * Whether the call is about the handler that stands behind ours. A child of vfork has actions of its
 * own in the kernel, but its memory is its parent's.
 */
static bool is_watched(int number)
{
        return unlikely(number == SIGSEGV && fault_is_watched()) && !system_is_lent();
}

static void tell(const struct fault_action *action, struct sigaction *to)
{
        memset(to, 0, sizeof(*to));
        to->sa_flags = action->flags;
        memcpy(&to->sa_mask, &action->mask, sizeof(action->mask));
        to->sa_handler = action->handler.plain;
}

static struct fault_action action_of(const struct sigaction *from)
{
        struct fault_action action = {
                .handler.plain = from->sa_handler,
                .flags = from->sa_flags,
        };

        memcpy(&action.mask, &from->sa_mask, sizeof(action.mask));
        return action;
}

KMEM_PUBLIC int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
        struct fault_action before, after;

        if (likely(!is_watched(number)))
                return real_sigaction(number, action, old);
        before = fault_action();
        if (action) {
                after = action_of(action);
                fault_set_action(&after);
        }
        if (old)
                tell(&before, old);
        return 0;
}

KMEM_PUBLIC handler_function signal(int number, handler_function handler)
{
        struct fault_action before;

        if (likely(!is_watched(number)))
                return real_signal(number, handler);
        if (handler == SIG_ERR) {
                errno = EINVAL;
                return SIG_ERR;
        }
        before = fault_action();
        fault_set_action(&(struct fault_action){
                .handler.plain = handler,
                .flags = SA_RESTART,
                .mask = fault_mask(SIGSEGV),
        });
        return before.handler.plain;
}
