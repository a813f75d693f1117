/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The system's <linux/errno.h>, which libc's <errno.h> includes too, and the numbers that only
 * the kernel has.
 */
#include_next <linux/errno.h>

#ifndef KMEM_LINUX_ERRNO_H
#define KMEM_LINUX_ERRNO_H

#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ENOIOCTLCMD 515
#define EPROBE_DEFER 517
#define ENOTSUPP 524

#endif
