/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Memory pools are in kmem.h. */
#ifndef KMEM_LINUX_MEMPOOL_H
#define KMEM_LINUX_MEMPOOL_H

#include <linux/compiler.h>
#include <linux/types.h>

#include <kmem.h>

struct kmem_cache;

#endif
