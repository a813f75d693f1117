/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The driver's side of the simulated machine: its start, its CPUs, time and clocks, and its counts.
 */
#include "simulator/simulator.h"

#include "base/options.h"
#include "heap/heap.h"
#include "machine/message.h"
#include "machine/system.h"
#include "process/at_exit.h"
#include "process/start.h"
#include "introspect/slabinfo.h"
#include "simulator/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t START_NS = 1000000000000;
static const uint64_t MEMORY_BYTES = (uint64_t)64 << 30;

_Static_assert(sizeof(struct page) == 1 << SIM_WORD_SHIFT,
               "sim_touch finds descriptors by address");
_Static_assert(SIM_CPUS_MAX <= SLOTS_MAX && SIM_CPUS_MAX < UINT16_MAX, "marks are 16 bits");
_Static_assert(SIM_NODES_MAX == NODES_MAX, "the caches have lists for every node");

/* ---- Places that take locks -------------------------------------------------------------- */

/* All places that take locks, gathered by the linker (machine/lock.h). */
extern struct sim_lock_place *const __start_sim_locks[] KMEM_HIDDEN;
extern struct sim_lock_place *const __stop_sim_locks[] KMEM_HIDDEN;

static bool ends_with(const char *text, const char *end)
{
        size_t length = strlen(text);
        size_t end_length = strlen(end);

        return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* A lock's kind by the expression that names it. */
static enum sim_lock_kind kind_of(const char *lock)
{
        static const struct {
                const char *end;
                enum sim_lock_kind kind;
        } kinds[] = {
                {"slot->lock", SIM_LOCK_SLOT},    {"engine.lock", SIM_LOCK_SLOT},
                {"list_lock", SIM_LOCK_LIST},     {"barn->lock", SIM_LOCK_BARN},
                {"alien->lock", SIM_LOCK_ALIEN},  {"slob_lock", SIM_LOCK_SLOB},
                {"zone->lock", SIM_LOCK_PAGE},    {"].lock", SIM_LOCK_PAGE},
                {"frontier.lock", SIM_LOCK_PAGE}, {"metadata_lock", SIM_LOCK_METADATA},
        };

        for (size_t i = 0; i < array_size(kinds); i++)
                if (ends_with(lock, kinds[i].end))
                        return kinds[i].kind;
        return SIM_LOCK_OTHER;
}

static size_t places_count(void)
{
        return (size_t)(hide_address(__stop_sim_locks) - hide_address(__start_sim_locks));
}

static void name_places(void)
{
        for (size_t number = 0; number < places_count(); number++)
                __start_sim_locks[number]->kind = kind_of(__start_sim_locks[number]->lock);
}

/* ---- Start ------------------------------------------------------------------------------- */

/*
 * The message about a field that cannot be, after defaults are filled in; NULL: the machine is
 * valid.
 */
static const char *wrong_machine(const struct sim_machine *wanted)
{
        if (wanted->cpus_present < wanted->cpus_online)
                return "cpus_present is less than cpus_online";
        if (wanted->cpus_possible < wanted->cpus_present)
                return "cpus_possible is less than cpus_present";
        if (wanted->cpus_possible > SIM_CPUS_MAX)
                return "expected at most 8192 possible CPUs";
        if (wanted->nodes > SIM_NODES_MAX || wanted->nodes > wanted->cpus_possible)
                return "expected at most 8 nodes, and no more than possible CPUs";
        return NULL;
}

static struct sim_machine with_defaults(const struct sim_machine *given)
{
        struct sim_machine wanted = given ? *given : (struct sim_machine){0};

        wanted.cpus_online = max_of(wanted.cpus_online, 1u);
        if (!wanted.cpus_present)
                wanted.cpus_present = wanted.cpus_online;
        if (!wanted.cpus_possible)
                wanted.cpus_possible = wanted.cpus_present;
        wanted.nodes = max_of(wanted.nodes, 1u);
        if (!wanted.memory_bytes)
                wanted.memory_bytes = MEMORY_BYTES;
        return wanted;
}

static void describe(const struct sim_machine *wanted)
{
        name_places();
        machine.cpus_online = wanted->cpus_online;
        machine.cpus_present = wanted->cpus_present;
        machine.cpus_possible = wanted->cpus_possible;
        machine.nodes = wanted->nodes;
        machine.memory_bytes = wanted->memory_bytes;
        for (unsigned int cpu = 0; cpu < machine.cpus_possible; cpu++) {
                machine.online[cpu] = cpu < machine.cpus_online;
                machine.present[cpu] = cpu < machine.cpus_present;
                sim.node_of[cpu] = (uint16_t)(cpu * machine.nodes / machine.cpus_possible);
        }
        sim.mark = 1;
        sim.nanoseconds = START_NS;
}

/* From here on the simulator knows which CPU changed each page descriptor last. */
static bool watch_descriptors(void)
{
        size_t pages = heap.reserved_bytes >> PAGE_SHIFT;
        uint16_t *last = system_reserve(pages * sizeof(*last));

        if (!last || !system_commit(last, pages * sizeof(*last)))
                return false;
        sim.words_last = last;
        sim.words = (uintptr_t)heap.pages;
        sim.words_bytes = pages * sizeof(struct page);
        return true;
}

/*
 * The default of option classes is fine: the figures that runs are compared with were taken with it.
 * Option kernel has classes of its own, and may stand in a file that the options name.
 */
static bool set_options(const char *wanted)
{
        options.classes = CLASSES_FINE;
        return !setenv("KMEM_OPTIONS", wanted ? wanted : "", 1);
}

KMEM_PUBLIC int sim_start(const struct sim_machine *given)
{
        struct sim_machine wanted = with_defaults(given);
        const char *wrong = wrong_machine(&wanted);
        int error = EINVAL;

        if (machine.cpus_possible) {
                wrong = "the machine has been started already";
                error = EBUSY;
        }
        if (!wrong) {
                describe(&wanted);
                if (!set_options(wanted.options))
                        wrong = "out of memory for the options";
                else if (!heap_ready() || !watch_descriptors())
                        wrong = "no address space for the heap";
                error = ENOMEM;
        }
        if (!wrong)
                return 0;
        message("sim_start: %s (CPUs %u online, %u present, %u possible; %u nodes)", wrong,
                wanted.cpus_online, wanted.cpus_present, wanted.cpus_possible, wanted.nodes);
        return error;
}

/* No handlers around fork: they would take locks, and a process of a single thread needs none. */
bool process_start_heap(void)
{
        if (heap_start())
                at_exit_init();
        return heap_is_up();
}

/* ---- CPUs and time ----------------------------------------------------------------------- */

KMEM_PUBLIC size_t sim_page_bytes(void)
{
        return PAGE_SIZE;
}

KMEM_PUBLIC void sim_set_cpu(unsigned int cpu)
{
        if (unlikely(cpu >= SIM_CPUS_MAX || !machine.online[cpu]))
                message_fatal("sim_set_cpu(%u): expected an online CPU of the simulated machine",
                              cpu);
        sim.cpu = cpu;
        sim.mark = (uint16_t)(cpu + 1);
        sim.node = sim.node_of[cpu];
        sim.slot = slot_at(cpu);
}

KMEM_PUBLIC unsigned int sim_cpu(void)
{
        return sim.cpu;
}

KMEM_PUBLIC unsigned int sim_node_of(unsigned int cpu)
{
        return cpu < SIM_CPUS_MAX ? sim.node_of[cpu] : 0;
}

KMEM_PUBLIC uint64_t sim_time(void)
{
        return sim.nanoseconds;
}

KMEM_PUBLIC void sim_time_set(uint64_t nanoseconds)
{
        if (unlikely(nanoseconds < sim.nanoseconds))
                message_fatal("sim_time_set(%lu): expected no time before the present one, %lu ns",
                              (unsigned long)nanoseconds, (unsigned long)sim.nanoseconds);
        sim.nanoseconds = nanoseconds;
}

KMEM_PUBLIC void sim_time_advance(uint64_t nanoseconds)
{
        sim_time_set(sim.nanoseconds + nanoseconds);
}

KMEM_PUBLIC int sim_cpu_online(unsigned int cpu, bool online)
{
        if (cpu >= machine.cpus_possible) {
                message("sim_cpu_online(%u): expected a CPU below %u", cpu, machine.cpus_possible);
                return EINVAL;
        }
        if (machine.online[cpu] == online)
                return 0;
        if (cpu == sim.cpu) {
                message("sim_cpu_online(%u): the CPU that calls are made on cannot leave", cpu);
                return EBUSY;
        }
        machine.online[cpu] = online;
        if (online) {
                machine.cpus_online++;
                machine.cpus_present += !machine.present[cpu];
                machine.present[cpu] = true;
                hotplug_came(cpu);
        } else {
                machine.cpus_online--;
                machine.left = true;
                hotplug_left(cpu);
        }
        return 0;
}

/* ---- Clocks ------------------------------------------------------------------------------ */

/* For each list lock, by its queue number: since when it is free, and the last span it was held. */
static struct {
        const struct lock *lock; /* the lock that has this entry, as long as the lock's own queue
                                    number agrees */
        struct sim_lock_place *place; /* where it was taken last */
        uint64_t free_at;
        uint64_t taken_at;
} queues[1 << 15];
static unsigned int queue_latest;

/*
 * A number that no lock has; 0 means that the lock has no number. There are enough for all nodes of
 * 4,095 caches. Caches come and go; the record of a lock that is gone is never unmapped, and begins
 * as zero when it is used again.
 */
static unsigned int queue_for(const struct lock *lock)
{
        for (unsigned int tried = 1; tried < array_size(queues); tried++) {
                unsigned int number = queue_latest = queue_latest % (array_size(queues) - 1) + 1;

                if (!queues[number].lock || queues[number].lock->queue != number) {
                        queues[number].lock = lock;
                        queues[number].free_at = 0;
                        return number;
                }
        }
        message_fatal("simulated: more than %zu list locks", array_size(queues) - 1);
}

void sim_lock_wait(struct lock *lock, struct sim_lock_place *place)
{
        if (!lock->queue)
                lock->queue = queue_for(lock) & 0x7fff;
        if (queues[lock->queue].free_at > sim.clock) {
                bool other_node = sim_other_node(lock->last);

                place->counts.waits++;
                place->counts.waits_node += other_node;
                place->counts.wait_ps += queues[lock->queue].free_at - sim.clock;
                sim.clock = queues[lock->queue].free_at + sim.costs.waited[place->kind] +
                            other_node * sim.costs.waited_node[place->kind];
        }
        queues[lock->queue].place = place;
        queues[lock->queue].taken_at = sim.clock;
}

void sim_lock_leave(const struct lock *lock)
{
        queues[lock->queue].place->counts.hold_ps += sim.clock - queues[lock->queue].taken_at;
        queues[lock->queue].free_at = sim.clock;
}

KMEM_PUBLIC void sim_set_costs(const struct sim_costs *costs)
{
        sim.costs = *costs;
        sim.waits = true;
}

KMEM_PUBLIC uint64_t sim_clock(void)
{
        return sim.clock;
}

KMEM_PUBLIC void sim_set_clock(uint64_t picoseconds)
{
        sim.clock = picoseconds;
}

KMEM_PUBLIC void sim_slabinfo(int file)
{
        slabinfo_write(file);
}

/* ---- Counts ------------------------------------------------------------------------------ */

KMEM_PUBLIC bool sim_lock_place(size_t number, struct sim_lock_place *place)
{
        if (number >= places_count())
                return false;
        *place = *__start_sim_locks[number];
        return true;
}

KMEM_PUBLIC void sim_counts(struct sim_counts *counts)
{
        struct sim_lock_place place;

        *counts = sim.counts;
        for (size_t number = 0; sim_lock_place(number, &place); number++) {
                struct sim_lock_counts *sum = &counts->locks[place.kind];

                sum->taken += place.counts.taken;
                sum->handed_over += place.counts.handed_over;
                sum->handed_over_node += place.counts.handed_over_node;
                sum->waits += place.counts.waits;
                sum->waits_node += place.counts.waits_node;
                sum->wait_ps += place.counts.wait_ps;
                sum->hold_ps += place.counts.hold_ps;
        }
}

KMEM_PUBLIC void sim_reset(void)
{
        sim.counts = (struct sim_counts){0};
        for (size_t number = 0; number < places_count(); number++)
                __start_sim_locks[number]->counts = (struct sim_lock_counts){0};
}
