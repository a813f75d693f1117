/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef KMEM_LINUX_MM_H
#define KMEM_LINUX_MM_H

#include <linux/bug.h>
#include <linux/gfp.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/slab.h>

#endif
