/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Time in ticks of a millisecond since some moment of the past. */
#ifndef KMEM_LINUX_JIFFIES_H
#define KMEM_LINUX_JIFFIES_H

#include <linux/compiler.h>
#include <linux/types.h>

#include <time.h>

#undef HZ /* of <sys/param.h> */
#define HZ 1000
#define jiffies kmem_jiffies()

static inline unsigned long kmem_jiffies(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        return (unsigned long)now.tv_sec * 1000 + (unsigned long)now.tv_nsec / 1000000;
}

#define time_after(a, b) ((long)((b) - (a)) < 0)
#define time_before(a, b) time_after(b, a)
#define time_after_eq(a, b) ((long)((a) - (b)) >= 0)
#define time_before_eq(a, b) time_after_eq(b, a)
#define msecs_to_jiffies(milliseconds) ((unsigned long)(milliseconds))
#define jiffies_to_msecs(ticks) ((unsigned int)(ticks))

#endif
