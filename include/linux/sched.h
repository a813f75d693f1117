/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The system's <linux/sched.h>, and for kernel code the functions that wait and yield. */
#include_next <linux/sched.h>

#if defined(KMEM_KERNEL_HEADERS) && !defined(KMEM_LINUX_SCHED_H) && !defined(__cplusplus)
#define KMEM_LINUX_SCHED_H

#include <sched.h>

#define cond_resched() ((void)sched_yield())

#endif
