/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The machine behind machine/system.h: Linux, by system calls of our own, so that nothing here
 * depends on libc being ready or changes errno. Its services for the process are in process.c.
 *
 * Everything read by system_init but the CPUs is constant afterwards, so any thread may ask at any
 * time. The figures of CPUs that are read again are single words, each stored whole; a reader that
 * gets an old word acts as it would have acted a moment before.
 */
#define _GNU_SOURCE
#include "machine/system.h"

#include "lang/atomic.h"
#include "lang/bits.h"
#include "machine/clock.h"
#include "machine/cpus.h"
#include "machine/message.h"
#include "machine/nodes.h"
#include "machine/syscall.h"
#include "machine/vdso.h"

#include <elf.h>
#include <linux/mempolicy.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

/* The values that callers see before system_init: among them a single CPU. */
static struct {
        size_t page_bytes;
        size_t memory_bytes;
} machine = {
        .page_bytes = 4096,
        .memory_bytes = (size_t)1 << 30,
};
static struct cpus cpus;

/* The real NUMA nodes if there are several, else all zero, and never touched. */
static struct nodes nodes;
static unsigned int fake_nodes = 1;

void system_init(void)
{
        struct sysinfo info = {0};
        size_t page_bytes = system_auxv(AT_PAGESZ);

        if (is_power_of_two(page_bytes) && page_bytes >= PAGE_SIZE)
                machine.page_bytes = page_bytes;
        if (!system_call_failed(system_call(SYS_sysinfo, (long)&info, 0, 0)))
                machine.memory_bytes = (size_t)info.totalram * max_of(info.mem_unit, 1u);
        cpus_read(&cpus);
}

size_t system_page_bytes(void)
{
        return machine.page_bytes;
}

size_t system_memory_bytes(void)
{
        return machine.memory_bytes;
}

uint64_t system_faults(void)
{
        struct rusage usage = {0};

        if (!system_entered_sandbox())
                system_call(SYS_getrusage, RUSAGE_SELF, (long)&usage, 0);
        return (uint64_t)usage.ru_minflt;
}

size_t system_resident(const void *start, size_t bytes)
{
        unsigned char in_core[RESIDENT_MOST / PAGE_SIZE + 1];
        uintptr_t first = round_down((uintptr_t)start, machine.page_bytes);
        size_t length = round_up((uintptr_t)start + bytes - first, machine.page_bytes);
        size_t pages = length / machine.page_bytes;
        size_t resident = 0;

        check_or_die(pages <= sizeof(in_core));
        if (system_call_failed(system_call(SYS_mincore, (long)first, (long)length, (long)in_core)))
                return bytes;
        for (size_t page = 0; page < pages; page++)
                resident += in_core[page] & 1;
        return min_of(resident * machine.page_bytes, bytes);
}

uint64_t system_time_ms(void)
{
        struct timespec now = clock_read(CLOCK_MONOTONIC_COARSE);

        return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t system_time_ns(void)
{
        struct timespec now = clock_read(CLOCK_MONOTONIC);

        return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

unsigned int system_cpus(enum cpu_count which)
{
        return max_of(load_relaxed(&cpus.counts[which]), 1u);
}

bool system_cpus_reread(void)
{
        static KMEM_SPARSE struct cpus now; /* too large for a small stack */
        bool left;

        if (system_sandbox_was_told())
                return false;
        cpus_read(&now);
        left = now.counts[CPUS_USABLE] < system_cpus(CPUS_USABLE);
        for (unsigned int which = 0; which < CPUS_POSSIBLE; which++)
                store_relaxed(&cpus.counts[which], now.counts[which]);
        for (unsigned int word = 0; word < CPU_MASK_WORDS; word++) {
                left |= (cpus.mask[word] & ~now.mask[word]) != 0;
                store_relaxed(&cpus.mask[word], now.mask[word]);
        }
        return left;
}

bool system_cpu_is_usable(unsigned int cpu)
{
        return cpu / 64 >= CPU_MASK_WORDS || load_relaxed(&cpus.mask[cpu / 64]) >> cpu % 64 & 1;
}

typedef long getcpu_function(unsigned int *cpu, unsigned int *node, void *unused);

static long call_getcpu(unsigned int *cpu, unsigned int *node, void *unused)
{
        return system_sandbox_was_told()
                       ? 0
                       : system_call(SYS_getcpu, (long)cpu, (long)node, (long)unused);
}

/*
 * CPU and node that the calling thread runs on; zeros if they cannot be told. Not libc's
 * sched_getcpu: it may read a restartable-sequence area that is not set up.
 */
static void read_place(unsigned int *cpu, unsigned int *node)
{
        static getcpu_function *function; /* relaxed; NULL: not yet looked for */
        getcpu_function *read = load_relaxed(&function);

        if (unlikely(!read)) {
                read = (getcpu_function *)vdso_find("__vdso_getcpu");
                if (!read)
                        read = call_getcpu;
                store_relaxed(&function, read);
        }
        *cpu = *node = 0;
        read(cpu, node, NULL);
}

unsigned int system_current_cpu(void)
{
        unsigned int cpu, node;

        read_place(&cpu, &node);
        return cpu;
}

void system_nodes_init(bool real, unsigned int fake)
{
        fake_nodes = fake;
        if (real && fake == 1)
                nodes_read(&nodes);
}

/* The nodes asked for are the machine's own, and there are several. */
static bool nodes_are_real(void)
{
        return nodes.count > 1;
}

unsigned int system_nodes(void)
{
        return nodes_are_real() ? nodes.count : fake_nodes;
}

unsigned int system_node_cpus(unsigned int node)
{
        unsigned int count = system_nodes();

        return nodes_are_real() ? nodes.cpus[node]
                                : (system_cpus(CPUS_ONLINE) + count - 1 - node) / count;
}

unsigned int system_near_node(unsigned int node, unsigned int step)
{
        if (step == 0)
                return node;
        return nodes_are_real() ? nodes.near[node][step] : (node + step) % system_nodes();
}

int system_find_node(int number)
{
        if (!nodes_are_real())
                return number >= 0 && (unsigned int)number < system_nodes() ? number : NODE_ANY;
        for (unsigned int node = 0; node < nodes.count; node++)
                if (nodes.number[node] == number)
                        return (int)node;
        return NODE_ANY;
}

unsigned int system_node_number(unsigned int node)
{
        return nodes_are_real() ? nodes.number[node] : node;
}

int system_bind(void *start, size_t bytes, unsigned int node)
{
        uint64_t mask[NODE_MASK_WORDS] = {0};
        unsigned int number;
        long result;

        if (!nodes_are_real() || system_sandbox_was_told())
                return 0;
        number = nodes.number[node];
        mask[number / 64] = (uint64_t)1 << number % 64;
        /* The kernel reads one bit of the mask less than it is told. */
        result = system_call6(SYS_mbind, (long)start, (long)bytes, MPOL_PREFERRED, (long)mask,
                              NODE_NUMBERS + 1, 0);
        return system_call_failed(result) ? (int)-result : 0;
}

/*
 * Fake nodes get the CPUs in turn, not in blocks: then neighbours differ, and two CPUs of a large
 * machine that a process is bound to are on two nodes.
 */
unsigned int system_current_node(void)
{
        unsigned int cpu, node;

        if (nodes_are_real()) {
                read_place(&cpu, &node);
                return nodes.of[node % NODE_NUMBERS];
        }
        return system_nodes() > 1 ? system_current_cpu() % system_nodes() : 0;
}
