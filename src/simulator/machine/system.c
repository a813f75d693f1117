/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of machine/system.c, cpus.c and thread.c: the machine that the driver describes.
 */
#include "machine/system.h"

#include "heap/reclaim.h"
#include "lang/bits.h"
#include "machine/message.h"
#include "machine/stack.h"
#include "simulator/machine.h"

#include <elf.h>

struct sim_state sim;
struct machine machine;

/* The heap starts by itself at the first call of all if the driver has described no machine. */
void system_init(void)
{
        if (!machine.cpus_possible)
                message_fatal("the simulated machine has not been started: call sim_start first");
}

/* A multiple of the host's page and of the simulated page: both are powers of two. */
size_t system_page_bytes(void)
{
        return max_of(PAGE_SIZE, (size_t)system_auxv(AT_PAGESZ));
}

size_t system_memory_bytes(void)
{
        return machine.memory_bytes;
}

uint64_t system_time_ms(void)
{
        return sim.nanoseconds / 1000000;
}

unsigned int system_cpus(enum cpu_count which)
{
        switch (which) {
        case CPUS_USABLE:
        case CPUS_ONLINE:
                return machine.cpus_online;
        case CPUS_PRESENT:
                return machine.cpus_present > 1 ? machine.cpus_present : machine.cpus_possible;
        case CPUS_POSSIBLE:
                break;
        }
        return machine.cpus_possible;
}

bool system_cpus_reread(void)
{
        bool left = machine.left;

        machine.left = false;
        return left;
}

bool system_cpu_is_usable(unsigned int cpu)
{
        return cpu < SIM_CPUS_MAX && machine.online[cpu];
}

bool system_cpus_known(void)
{
        return true;
}

unsigned int system_current_cpu(void)
{
        return sim.cpu;
}

unsigned int system_nodes(void)
{
        return machine.nodes;
}

unsigned int system_node_cpus(unsigned int node)
{
        unsigned int cpus = 0;

        for (unsigned int cpu = 0; cpu < machine.cpus_possible; cpu++)
                cpus += machine.online[cpu] && sim.node_of[cpu] == node;
        return cpus;
}

void system_nodes_init(bool real, unsigned int fake)
{
}

unsigned int system_node_number(unsigned int node)
{
        return node;
}

int system_find_node(int number)
{
        return number >= 0 && (unsigned int)number < machine.nodes ? number : NODE_ANY;
}

/* The simulator leaves out where the host places pages. */
int system_bind(void *start, size_t bytes, unsigned int node)
{
        (void)start;
        (void)bytes;
        (void)node;
        return 0;
}

unsigned int system_near_node(unsigned int node, unsigned int step)
{
        return (node + step) % machine.nodes;
}

unsigned int system_current_node(void)
{
        return sim.node;
}

/* The host's threads are no part of the machine; they must not change a simulation. */
enum threads system_threads(void)
{
        return THREADS_UNKNOWN;
}

enum threads system_threads_asked(void)
{
        return THREADS_UNKNOWN;
}

bool system_start_thread(void *(*run)(void *argument))
{
        (void)run;
        return false;
}

/* The host's faults differ from run to run. */
uint64_t system_faults(void)
{
        return 0;
}

/* Nobody writes to the objects of a simulation, and all count as used. */
size_t system_resident(const void *start, size_t bytes)
{
        (void)start;
        return bytes;
}

/* A stack of the driver would differ from run to run. */
void stack_prepare(void)
{
}

unsigned int stack_capture(uintptr_t *frames, unsigned int room)
{
        (void)room;
        return 0;
}

unsigned int stack_capture_from(uintptr_t instruction, uintptr_t frames[STACK_FRAMES])
{
        (void)instruction;
        return stack_capture(frames, STACK_FRAMES);
}

bool stack_is_refused(void)
{
        return false;
}

bool reclaim_thread_is_there(void)
{
        return false;
}
