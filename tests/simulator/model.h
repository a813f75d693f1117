/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A random workload on a simulated machine, against a model of the owner of all memory. */
#ifndef TESTS_SIMULATOR_MODEL_H
#define TESTS_SIMULATOR_MODEL_H

#include "../unit/child.h"
#include "simulator/simulator.h"

struct model {
        unsigned int cpus;
        unsigned int nodes;
        unsigned int steps;
        uint64_t seed;       /* not 0 */
        bool hotplug;        /* CPUs come and leave */
        const char *options; /* of the machine */
};

/*
 * Starts the machine, runs the workload, frees everything and checks that nothing is left. Ends the
 * process where anything is wrong.
 */
void model_run(const struct model *model);

#endif
