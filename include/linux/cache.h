/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Alignment to lines of the processor's cache. */
#ifndef KMEM_LINUX_CACHE_H
#define KMEM_LINUX_CACHE_H

#include <linux/compiler.h>

#define L1_CACHE_SHIFT 6
#define L1_CACHE_BYTES (1 << L1_CACHE_SHIFT)
#define SMP_CACHE_BYTES L1_CACHE_BYTES
#define L1_CACHE_ALIGN(bytes) (((bytes) + L1_CACHE_BYTES - 1) & ~(L1_CACHE_BYTES - 1))
#define ____cacheline_aligned __attribute__((__aligned__(L1_CACHE_BYTES)))
#define ____cacheline_aligned_in_smp ____cacheline_aligned
#define __cacheline_aligned ____cacheline_aligned
#define __cacheline_aligned_in_smp ____cacheline_aligned

#endif
