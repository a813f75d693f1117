/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A counter that runs with time, and the CPU. Only for the times of events: their order does not
 * depend on it, so it need not agree between CPUs to the last tick.
 */
#ifndef KMEM_RECORD_CLOCK_H
#define KMEM_RECORD_CLOCK_H

#include "machine/system.h"

#if defined(__x86_64__)

/* Linux keeps the CPU's number in the low 12 bits of TSC_AUX. */
static inline uint64_t record_clock(uint16_t *cpu)
{
        unsigned int auxiliary;
        uint64_t clock = __builtin_ia32_rdtscp(&auxiliary);

        *cpu = auxiliary & 0xfff;
        return clock;
}

#else

static inline uint64_t record_clock(uint16_t *cpu)
{
        uint64_t clock = system_time_ns();

        *cpu = (uint16_t)system_current_cpu();
        return clock;
}

#endif
#endif
