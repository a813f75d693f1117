/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * How many CPUs there are. Only system.c includes this; the rest of the library asks
 * system_cpus().
 */
#ifndef KMEM_MACHINE_CPUS_H
#define KMEM_MACHINE_CPUS_H

#include "machine/system.h"

enum { CPU_MASK_WORDS = 8192 / 64 }; /* the largest NR_CPUS of any kernel configuration */

struct cpus {
        unsigned int counts[CPUS_POSSIBLE + 1]; /* by enum cpu_count; each at least 1 */
        uint64_t mask[CPU_MASK_WORDS];          /* where threads may run; all set if unknown */
};

KMEM_HIDDEN void cpus_read(struct cpus *cpus);

/*
 * Parsers, here for their tests. All take text that ends in a zero byte.
 * A CPU list like "0-3,8": how many CPUs it names, and the highest number + 1; both 0 for text that
 * is no list.
 */
KMEM_HIDDEN void cpus_parse_list(const char *text, unsigned int *count, unsigned int *limit);
/* cpu.max of cgroup v2, "150000 100000" or "max 100000": CPUs rounded up, 0 for no quota. */
KMEM_HIDDEN unsigned int cpus_parse_quota(const char *text);

#endif
