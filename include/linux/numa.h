/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Kernel code sees a single NUMA node. */
#ifndef KMEM_LINUX_NUMA_H
#define KMEM_LINUX_NUMA_H

#include <linux/compiler.h>

#include <kmem.h> /* NUMA_NO_NODE */

#define MAX_NUMNODES 1
#define numa_node_id() 0

#endif
