/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * All scenarios, by the file that has them.
 */
#include "scenario.h"

extern const struct scenario sheaf_scenarios[];
extern const struct scenario slab_scenarios[];
extern const struct scenario cache_scenarios[];
extern const struct scenario page_scenarios[];
extern const struct scenario grace_scenarios[];
extern const struct scenario group_scenarios[];
extern const struct scenario array_scenarios[];
extern const struct scenario engine_scenarios[];
extern const struct scenario figures_scenarios[];
extern const struct scenario locked_scenarios[];
extern const struct scenario lock_scenarios[];
extern const struct scenario fork_scenarios[];
extern const struct scenario refused_scenarios[];
extern const struct scenario cpu_scenarios[];
extern const struct scenario start_scenarios[];
extern const struct scenario request_scenarios[];
extern const struct scenario litmus_scenarios[];

const struct scenario *const scenario_tables[] = {
        sheaf_scenarios,   slab_scenarios,   cache_scenarios,
        page_scenarios,    grace_scenarios,  figures_scenarios,
        group_scenarios,   array_scenarios,  engine_scenarios,
        locked_scenarios,  lock_scenarios,   fork_scenarios,
        refused_scenarios, cpu_scenarios,    start_scenarios,
        request_scenarios, litmus_scenarios, NULL,
};
