/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The simulated machine as the simulator's own source files use it.
 */
#ifndef KMEM_SIMULATOR_MACHINE_H
#define KMEM_SIMULATOR_MACHINE_H

#include "machine/state.h"

struct machine {
        unsigned int cpus_possible; /* 0 before sim_start */
        unsigned int cpus_present;
        unsigned int cpus_online;
        unsigned int nodes;
        size_t memory_bytes;
        bool left; /* a CPU has left since the library asked last */
        bool online[SIM_CPUS_MAX];
        bool present[SIM_CPUS_MAX]; /* also those that have left */
};
extern KMEM_HIDDEN struct machine machine;

/*
 * hotplug.c: every cache's work when a CPU has come or has left; machine.online is up to date
 * already.
 */
KMEM_HIDDEN void hotplug_came(unsigned int cpu);
KMEM_HIDDEN void hotplug_left(unsigned int cpu);

#endif
