/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * CPUs with clocks, and the tasks that run on them.
 *
 * The CPU with the least clock is next: CPUs that have something to do stand in a wheel of buckets,
 * by clock. A CPU chooses its tasks as Linux's fair scheduler did up to 6.5: it runs the task that
 * has run least (`ran`), for its share of latency_ns, at least slice_ns. A task that wakes gets the
 * least `ran` of its queue, less half of latency_ns if it slept that long, and takes the place of a
 * task that ran more by granule_ns. A CPU that has nothing to do takes a waiting task of its node,
 * and else is idle. A task that wakes is drawn to the waker's CPU if nothing else waits there, as
 * the waker will sleep soon (sockets' wake-ups are synchronous). Otherwise it stays with its last
 * CPU if that is idle, or else goes where less is to do. If its last CPU is idle and shares a cache
 * with the chosen CPU, the task runs there; if another idle CPU shares a cache, it runs on that.
 */
#include "tools/loads/loads.h"

#include "simulator/machine/state.h"

#include <stdlib.h>

enum {
        BUCKET_SHIFT = 15, /* 32.8 ns in picoseconds */
        BUCKETS = 1 << 16, /* 2.1 ms */
        NONE = UINT16_MAX,
        BITS = 64,
};

struct cpu {
        uint64_t clock; /* picoseconds, as all times here */
        uint64_t slice_start;
        struct task *current;
        const struct task *last; /* the previous task, to see whether the next is another */
        struct task *first;      /* of the waiting tasks; the task that ran least comes first */
        unsigned int waits;      /* how many */
        uint64_t least_ran;      /* of all tasks here; never falls */
        uint16_t next;           /* in its bucket */
        uint16_t node;
        bool idle;
        bool preempted;
        unsigned int forked; /* tasks that started here */
};

static struct cpu *cpus;
static uint16_t buckets[BUCKETS];
static uint64_t bucket_map[BUCKETS / BITS];
static uint64_t bucket_now; /* clock of the bucket looked at last, in buckets */
static unsigned int cpus_in_wheel;
static uint64_t *idle_map; /* by CPU */
static unsigned int waiting[SIM_NODES_MAX];
static uint64_t latest;
static uint64_t busy;
static bool stopped;
static uint64_t random_state = 1; /* until machine_start */

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

        /* Beyond the wheel's reach: the CPU is looked at in the last bucket, and put on again. */
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

/* Goes to the first bucket that has a CPU; at least one has. */
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
        struct task **place = &cpu->first;

        while (*place && (*place)->ran <= task->ran)
                place = &(*place)->next;
        task->next = *place;
        *place = task;
        cpu->waits++;
        waiting[cpu->node]++;
}

static struct task *queue_take(struct cpu *cpu)
{
        struct task *task = cpu->first;

        if (!task)
                return NULL;
        cpu->first = task->next;
        cpu->waits--;
        waiting[cpu->node]--;
        return task;
}

/* Puts a task in front, however long it ran. */
static void queue_add_first(struct cpu *cpu, struct task *task)
{
        task->next = cpu->first;
        cpu->first = task;
        cpu->waits++;
        waiting[cpu->node]++;
}

/* A task's `ran` counts only among the tasks of its CPU, so it changes with the move. */
static void move_task(struct task *task, struct cpu *to)
{
        const struct cpu *from = &cpus[task->cpu];

        task->ran += to->least_ran - from->least_ran;
        task->cpu = (uint16_t)(to - cpus);
}

/* Whether a task waits that the CPU does not run at once: its only task is not taken from it. */
static bool has_two_tasks(const struct cpu *cpu)
{
        return cpu->waits + (cpu->current != NULL) > 1;
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

                if (other->node != cpu->node)
                        continue;
                if (has_two_tasks(other) && !(other->first && other->first->pinned))
                        return queue_take(other);
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

/* An idle CPU that shares a cache with @near, searched from @near on; NONE if there is none. */
static unsigned int find_idle(unsigned int near)
{
        unsigned int count = settings.cache_cpus;
        unsigned int first = near - near % count;
        unsigned int end = min_of(first + count, settings.load_cpus);

        for (unsigned int number = near; number < end;) {
                uint64_t bits = idle_map[number / BITS] >> number % BITS;

                if (bits) {
                        number += (unsigned int)__builtin_ctzll(bits);
                        return number < end ? number : near > first ? find_idle(first) : NONE;
                }
                number += BITS - number % BITS;
        }
        return near > first ? find_idle(first) : NONE;
}

/* ---- Tasks ------------------------------------------------------------------------------- */

void machine_add(struct task *task, unsigned int cpu)
{
        task->cpu = (uint16_t)cpu;
        task->ran = cpus[cpu].least_ran;
        task->sleeps = true;
}

unsigned int machine_fork_cpu(void)
{
        unsigned int first = pick(settings.load_cpus);
        unsigned int chosen = first;

        for (unsigned int i = 1; i < settings.load_cpus; i++) {
                unsigned int number = (first + i) % settings.load_cpus;

                if (cpus[number].forked < cpus[chosen].forked)
                        chosen = number;
        }
        cpus[chosen].forked++;
        return chosen;
}

/* Whether the task that wakes is drawn to the waker's CPU, as wake_affine decides. */
static bool is_drawn(const struct cpu *here, const struct cpu *there)
{
        unsigned int busy_there = there->waits + (there->current != NULL);

        if (!here->waits)
                return true;
        /* The scheduler's factor of 108 percent is for the task's old CPU. */
        return !there->idle && here->waits * 100 < busy_there * 108;
}

/* Chooses as wake_affine and select_idle_sibling do for a synchronous wake-up. */
static unsigned int choose_cpu(const struct task *task)
{
        const struct cpu *there = &cpus[task->cpu];
        unsigned int near = is_drawn(&cpus[sim.cpu], there) ? sim.cpu : task->cpu;
        unsigned int idle;

        if (there->idle && near / settings.cache_cpus == task->cpu / settings.cache_cpus)
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
        number = task->pinned ? task->cpu : choose_cpu(task);
        cpu = &cpus[number];
        if (number != task->cpu)
                move_task(task, cpu);
        /* Signed: either number may be the larger. */
        if ((int64_t)(task->ran + settings.latency_ns / 2 * PS - cpu->least_ran) < 0)
                task->ran = cpu->least_ran - settings.latency_ns / 2 * PS;
        task->sleeps = false;
        task->woken_at = sim.clock;
        queue_add(cpu, task);
        if (cpu->current &&
            (int64_t)(cpu->current->ran - task->ran) > (int64_t)(settings.granule_ns * PS))
                cpu->preempted = true;
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
        if (task->cpu != number)
                move_task(task, cpu);
        /* The waker's clock is ahead: this CPU was idle until then. */
        if (cpu->clock < task->woken_at)
                cpu->clock = task->woken_at;
        if (task->ran > cpu->least_ran)
                cpu->least_ran = task->ran;
        if (task != cpu->last) {
                cpu->clock += settings.switch_ns * PS;
                busy += settings.switch_ns * PS;
        }
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

/* A share of the latency, but not less than a slice. */
static bool had_its_share(const struct cpu *cpu)
{
        uint64_t share = settings.latency_ns * PS / (cpu->waits + 1);

        return cpu->clock - cpu->slice_start > max_of(share, settings.slice_ns * PS);
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
        busy += sim.clock - cpu->clock;
        task->ran += sim.clock - cpu->clock;
        cpu->clock = sim.clock;
        if (cpu->clock > latest)
                latest = cpu->clock;
        if (result == TASK_SLEEPS)
                task->sleeps = true;
        if (result == TASK_SLEEPS || result == TASK_ENDS) {
                leave(cpu);
        } else if (cpu->first && (cpu->preempted || result == TASK_YIELDS || had_its_share(cpu))) {
                struct task *next = queue_take(cpu);

                queue_add(cpu, task);
                queue_add_first(cpu, next);
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

uint64_t machine_busy(void)
{
        return busy;
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
                cpus[i].least_ran = latest;
                cpus[i].node = sim.node_of[i];
                set_idle(i, true);
        }
}
