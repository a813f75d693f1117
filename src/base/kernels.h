/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The policies of released kernels, as options of ours (docs/kernels.md).
 */
#ifndef KMEM_BASE_KERNELS_H
#define KMEM_BASE_KERNELS_H

#include "lang/compiler.h"

#include <stdint.h>

/* The values of option kernel, in the order of the table; the first stands for none. */
#define KERNEL_VERSIONS "none 2.6.24 5.14 5.15 5.16 5.17 6.1 6.7 6.8 6.12 6.18 7.2"

/* The options of a kernel by its position in KERNEL_VERSIONS, as KMEM_OPTIONS has them. */
KMEM_HIDDEN const char *kernel_options(uint64_t position);

#endif
