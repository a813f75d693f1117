/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Annotations, single accesses and barriers, as kernel code spells them.
 *
 * This directory lets kernel sources that use the slab interface compile unchanged, in C. It stands
 * in front of the system's headers of these names. libc and user programs include some of them too
 * (errno.h, kernel.h, module.h, sched.h, string.h, types.h). These headers give the kernel's names
 * only to kernel code: to files that begin with a <linux/...> header, or that include any header
 * which only the kernel has.
 */
#ifndef KMEM_LINUX_COMPILER_H
#define KMEM_LINUX_COMPILER_H

#define KMEM_KERNEL_HEADERS 1

#include <stdbool.h>
#include <stddef.h>

#ifndef likely
#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)
#endif

#ifndef __always_inline
#define __always_inline inline __attribute__((__always_inline__))
#endif
#ifndef noinline
#define noinline __attribute__((__noinline__))
#endif
#define __must_check __attribute__((__warn_unused_result__))
#define __maybe_unused __attribute__((__unused__))
#define __always_unused __attribute__((__unused__))
#define __packed __attribute__((__packed__))
#define __aligned(bytes) __attribute__((__aligned__(bytes)))
#define __printf(string, first) __attribute__((__format__(printf, string, first)))
#define __cold __attribute__((__cold__))
#define __malloc __attribute__((__malloc__))
#define fallthrough __attribute__((__fallthrough__))

/* For static checkers of the kernel; nothing here. */
#define __user
#define __kernel
#define __iomem
#define __rcu
#define __percpu
#define __force
#define __bitwise
#define __acquires(lock)
#define __releases(lock)
#define __must_hold(lock)
#define __read_mostly
#define __ro_after_init
#define __acquire(lock) ((void)0)
#define __release(lock) ((void)0)

#define barrier() __asm__ volatile("" : : : "memory")
/* The optimizer knows nothing any more of the variable's value. */
#define OPTIMIZER_HIDE_VAR(variable) __asm__("" : "+r"(variable))

/* A single access to a scalar, not torn, merged or repeated. */
#define READ_ONCE(place) (*(const volatile __typeof__(place) *)&(place))
#define WRITE_ONCE(place, value) (*(volatile __typeof__(place) *)&(place) = (value))

#define smp_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define smp_rmb() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define smp_wmb() __atomic_thread_fence(__ATOMIC_RELEASE)
#define mb() smp_mb()
#define rmb() smp_rmb()
#define wmb() smp_wmb()
#define smp_mb__before_atomic() smp_mb()
#define smp_mb__after_atomic() smp_mb()

#define smp_load_acquire(pointer)                                                                  \
        ({                                                                                         \
                __typeof__(*(pointer)) kmem_loaded_ = READ_ONCE(*(pointer));                       \
                                                                                                   \
                __atomic_thread_fence(__ATOMIC_ACQUIRE);                                           \
                kmem_loaded_;                                                                      \
        })
#define smp_store_release(pointer, value)                                                          \
        do {                                                                                       \
                __atomic_thread_fence(__ATOMIC_RELEASE);                                           \
                WRITE_ONCE(*(pointer), value);                                                     \
        } while (0)

#endif
