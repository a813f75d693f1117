/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * clock_read, by the vDSO's clock_gettime where the kernel has it, else by a system call (clock.h).
 */
#include "machine/clock.h"

#include "lang/atomic.h"
#include "machine/syscall.h"
#include "machine/vdso.h"

typedef int clock_function(clockid_t clock, struct timespec *now);

static clock_function *function; /* relaxed; NULL: not yet looked for */

#if defined(__aarch64__)
static const char function_name[] = "__kernel_clock_gettime";
#else
static const char function_name[] = "__vdso_clock_gettime";
#endif

static int call_system(clockid_t clock, struct timespec *now)
{
        return (int)system_call(SYS_clock_gettime, clock, (long)now, 0);
}

struct timespec clock_read(clockid_t clock)
{
        clock_function *read = load_relaxed(&function);
        struct timespec now = {0};

        if (unlikely(!read)) {
                read = (clock_function *)vdso_find(function_name);
                if (!read)
                        read = call_system;
                store_relaxed(&function, read);
        }
        read(clock, &now);
        return now;
}
