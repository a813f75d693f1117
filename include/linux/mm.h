/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The headers that kernel code expects from linux/mm.h; functions for pages are in linux/gfp.h. */
#ifndef KMEM_LINUX_MM_H
#define KMEM_LINUX_MM_H

#include <linux/bug.h>
#include <linux/gfp.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/slab.h>

#endif
