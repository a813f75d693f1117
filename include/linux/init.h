/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The kernel's marks of code and data for its start and end; they have no effect here. */
#ifndef KMEM_LINUX_INIT_H
#define KMEM_LINUX_INIT_H

#include <linux/compiler.h>

#define __init
#define __exit
#define __initdata
#define __initconst
#define __exitdata

#endif
