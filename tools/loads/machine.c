/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * CPUs with clocks, and the tasks that run on them.
 *
 * The CPU whose clock is least is next: CPUs that have something to do stand in a wheel of buckets,
 * by clock. A CPU runs a task until it sleeps, ends, has had its slice while others wait, or is
 * preempted by one that wakes; then the first of its queue, then the first of another queue of its
 * node, and then it is idle. A task that wakes goes where it was if that CPU is idle, else to an
 * idle CPU of that node, else where it was, or for a share of wake-ups to the waker's CPU.
 */
#include "tools/loads/loads.h"

#include "simulator/base/state.h"

#include <stdlib.h>

enum {
        BUCKET_SHIFT = 15, /* 32.8 ns in picoseconds */
        BUCKETS = 1 << 16, /* 2.1 ms */
        NONE = UINT16_MAX,
        BITS = 64,
        SEARCHES_MOST = 16, /* queues that an idle CPU looks at */
};

struct cpu {
        uint64_t clock; /* picoseconds */
        uint64_t slice_start;
        struct task *current;
        const struct task *last; /* the one before, to see whether this one is another */
        struct task *first;      /* of those that wait, oldest first */
        struct task **end;
        uint16_t next; /* in its bucket */
        uint16_t node;
        bool idle;
        bool preempted;
};

static struct cpu *cpus;
static uint16_t buckets[BUCKETS];
static uint64_t bucket_map[BUCKETS / BITS];
static uint64_t bucket_now; /* clock of the bucket looked at last, in buckets */
static unsigned int cpus_in_wheel;
static uint64_t *idle_map; /* by CPU */
static unsigned int waiting[SIM_NODES_MAX];
static uint64_t latest;
static bool stopped;
static uint64_t random_state;

static const uint64_t PS = 1000; /* in a nanosecond */

unsigned int pick(unsigned int limit)
{
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        return (unsigned int)(((random_state >> 32) * limit) >> 32);
}

/* ---- The wheel --------------------------------------------------------------------------- */

static void wheel_add(uint16_t number)
{
        struct cpu *cpu = &cpus[number];
        uint64_t at = cpu->clock >> BUCKET_SHIFT;
        size_t bucket;

        /* Later than the wheel reaches: it is looked at there, and put on again. */
        if (at >= bucket_now + BUCKETS)
                at = bucket_now + BUCKETS - 1;
        if (at < bucket_now)
                at = bucket_now;
        bucket = at % BUCKETS;
        cpu->next = buckets[bucket];
        buckets[bucket] = number;
        bucket_map[bucket / BITS] |= 1ull << bucket % BITS;
        cpus_in_wheel++;
}

/* Goes to the first bucket that has a CPU; there is one. */
static size_t wheel_seek(void)
{
        size_t bucket = bucket_now % BUCKETS;
        size_t word = bucket / BITS;
        uint64_t bits = bucket_map[word] & (~0ull << bucket % BITS);

        while (!bits) {
                word = (word + 1) % (BUCKETS / BITS);
                bits = bucket_map[word];
        }
        word = word * BITS + (size_t)__builtin_ctzll(bits);
        bucket_now += (word - bucket) % BUCKETS;
        return word;
}

static uint16_t wheel_take(void)
{
        for (;;) {
                size_t bucket = wheel_seek();
                uint16_t number = buckets[bucket];

                buckets[bucket] = cpus[number].next;
                if (buckets[bucket] == NONE)
                        bucket_map[bucket / BITS] &= ~(1ull << bucket % BITS);
                cpus_in_wheel--;
                if (cpus[number].clock >> BUCKET_SHIFT <= bucket_now)
                        return number;
                wheel_add(number);
        }
}

/* ---- Queues ------------------------------------------------------------------------------ */

static void queue_add(struct cpu *cpu, struct task *task)
{
        task->next = NULL;
        *cpu->end = task;
        cpu->end = &task->next;
        waiting[cpu->node]++;
}

static struct task *queue_take(struct cpu *cpu)
{
        struct task *task = cpu->first;

        if (!task)
                return NULL;
        cpu->first = task->next;
        if (!cpu->first)
                cpu->end = &cpu->first;
        waiting[cpu->node]--;
        return task;
}

static void queue_add_first(struct cpu *cpu, struct task *task)
{
        task->next = cpu->first;
        if (!cpu->first)
                cpu->end = &task->next;
        cpu->first = task;
        waiting[cpu->node]++;
}

/* A task that waits elsewhere in the node, for a CPU that has nothing to do. */
static struct task *steal(const struct cpu *cpu)
{
        unsigned int node_cpus = (settings.load_cpus + settings.nodes - 1) / settings.nodes;
        unsigned int from = pick(settings.load_cpus);

        if (!waiting[cpu->node])
                return NULL;
        for (unsigned int i = 0; i < settings.load_cpus && node_cpus; i++) {
                struct cpu *other = &cpus[(from + i) % settings.load_cpus];
                struct task *task;

                if (other->node != cpu->node)
                        continue;
                task = queue_take(other);
                if (task)
                        return task;
                node_cpus--;
        }
        return NULL;
}

static void set_idle(unsigned int number, bool idle)
{
        cpus[number].idle = idle;
        if (idle)
                idle_map[number / BITS] |= 1ull << number % BITS;
        else
                idle_map[number / BITS] &= ~(1ull << number % BITS);
}

/* An idle CPU of the node, from @near on; NONE if there is none. */
static unsigned int find_idle(unsigned int near)
{
        unsigned int words = (settings.load_cpus + BITS - 1) / BITS;
        unsigned int word = near / BITS;

        for (unsigned int i = 0; i <= words; i++) {
                uint64_t bits = idle_map[word];

                if (!i)
                        bits &= ~0ull << near % BITS;
                for (; bits; bits &= bits - 1) {
                        unsigned int number = word * BITS + (unsigned int)__builtin_ctzll(bits);

                        if (cpus[number].node == cpus[near].node)
                                return number;
                }
                word = (word + 1) % words;
        }
        return NONE;
}

/* ---- Tasks ------------------------------------------------------------------------------- */

void machine_add(struct task *task, unsigned int cpu)
{
        task->cpu = (uint16_t)cpu;
        task->sleeps = true;
}

static unsigned int choose_cpu(const struct task *task)
{
        unsigned int affine = pick(100) < settings.affine;
        unsigned int near = affine ? sim.cpu : task->cpu;
        unsigned int idle;

        if (cpus[task->cpu].idle)
                return task->cpu;
        idle = find_idle(near);
        return idle != NONE ? idle : near;
}

void machine_wake(struct task *task)
{
        unsigned int number;
        struct cpu *cpu;

        if (!task->sleeps)
                return;
        machine_spend(settings.wake_ns);
        number = choose_cpu(task);
        cpu = &cpus[number];
        task->sleeps = false;
        task->cpu = (uint16_t)number;
        if (cpu->current && number != sim.cpu &&
            cpu->clock - cpu->slice_start > settings.granule_ns * PS) {
                queue_add_first(cpu, task);
                cpu->preempted = true;
                return;
        }
        queue_add(cpu, task);
        if (cpu->idle) {
                set_idle(number, false);
                if (cpu->clock < sim.clock)
                        cpu->clock = sim.clock;
                wheel_add((uint16_t)number);
        }
}

void machine_spend(unsigned int nanoseconds)
{
        sim.clock += nanoseconds * PS;
}

/* False if the CPU has nothing to do. */
static bool schedule(struct cpu *cpu, unsigned int number)
{
        struct task *task = queue_take(cpu);

        if (!task)
                task = steal(cpu);
        if (!task)
                return false;
        if (task != cpu->last)
                cpu->clock += settings.switch_ns * PS;
        task->cpu = (uint16_t)number;
        cpu->current = task;
        cpu->slice_start = cpu->clock;
        return true;
}

static void leave(struct cpu *cpu)
{
        cpu->last = cpu->current;
        cpu->current = NULL;
        cpu->preempted = false;
}

static void run_step(struct cpu *cpu, unsigned int number)
{
        struct task *task = cpu->current;
        enum task_result result;

        if (sim.cpu != number)
                sim_set_cpu(number);
        sim.clock = cpu->clock;
        if (settings.trace)
                record_thread(task->number);
        result = task->step(task);
        cpu->clock = sim.clock;
        if (cpu->clock > latest)
                latest = cpu->clock;
        if (result == TASK_SLEEPS)
                task->sleeps = true;
        if (result == TASK_SLEEPS || result == TASK_ENDS) {
                leave(cpu);
        } else if (cpu->first &&
                   (cpu->preempted || result == TASK_YIELDS ||
                    cpu->clock - cpu->slice_start > settings.slice_ns * PS)) {
                queue_add(cpu, task);
                leave(cpu);
        }
}

void machine_run(void)
{
        stopped = false;
        while (cpus_in_wheel && !stopped) {
                uint16_t number = wheel_take();
                struct cpu *cpu = &cpus[number];

                if (cpu->clock / PS > sim.nanoseconds)
                        sim.nanoseconds = cpu->clock / PS;
                if (!cpu->current && !schedule(cpu, number)) {
                        set_idle(number, true);
                        continue;
                }
                run_step(cpu, number);
                wheel_add(number);
        }
}

void machine_stop(void)
{
        stopped = true;
}

uint64_t machine_time(void)
{
        return latest;
}

void machine_start(void)
{
        random_state = 88172645463325252u + settings.seed * 0x9e3779b97f4a7c15u;
        cpus = need(calloc(settings.load_cpus, sizeof(*cpus)));
        idle_map = need(calloc(settings.load_cpus / BITS + 1, sizeof(*idle_map)));
        for (size_t i = 0; i < BUCKETS; i++)
                buckets[i] = NONE;
        latest = max_of(sim.clock, sim.nanoseconds * PS);
        sim.clock = latest;
        bucket_now = latest >> BUCKET_SHIFT;
        for (unsigned int i = 0; i < settings.load_cpus; i++) {
                cpus[i].clock = latest;
                cpus[i].end = &cpus[i].first;
                cpus[i].node = sim.node_of[i];
                set_idle(i, true);
        }
}
