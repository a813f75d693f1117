/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Replays a trace in real time, for `kmem replay --real-time`: the library that ships, a thread for
 * each CPU of the trace, the machine's clock and memory. It writes a JSON document to standard
 * output. Options of the library are in KMEM_OPTIONS.
 *
 *   replay-real-time TRACE [NAME=VALUE]...
 *
 *   cpus=N     threads, each with the events of the CPUs that are its number modulo N; as many as
 *              the trace has CPUs. Thread t runs only on usable CPU t modulo their number
 *   window=W   events by which a thread may be ahead, 1024
 *   touch=1    write all bytes that an object was asked for, and look at its first and last byte
 *              before it is freed
 *
 * Order. A thread takes its events in the trace's order, as fast as it can. Two rules order the
 * events of different threads:
 *  R1  The free of an object comes after its allocation.
 *  R2  No event begins before all events that stand more than W before it in the trace are done. So
 *      no thread allocates more than W objects further in advance than the recorded machine did.
 * Nothing else is ordered, so two runs interleave differently.
 *
 * The thread with the first of all remaining events never waits: other threads have done the events
 * that R1 and R2 require, and they publish their position (`progress`) before they wait.
 */
#define _GNU_SOURCE
#include "bench/cycles.h"
#include "process/start.h"
#include "tools/replay/heap.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        THREADS_MOST = 1024,
        WINDOW = 1024,
        WINDOW_MOST = 1 << 30,
        PUBLISH_EVERY = 16,   /* events: how often a thread publishes its position */
        SPINS = 200,          /* looks before a waiting thread gives up its CPU */
        SPIN_NS_MOST = 20000, /* longest time of these looks that counts; the rest was another
                                 program's */
};

struct worker {
        /*
         * Number of the next event in the trace, or of the event before it. Written by its thread
         * alone.
         */
        uint64_t progress __attribute__((aligned(CACHE_LINE)));

        pthread_t thread __attribute__((aligned(CACHE_LINE)));
        struct machine *machine;
        unsigned int cpu;
        uint32_t *numbers; /* of its events in the trace */
        size_t count;
        uint64_t bound; /* R2: the first event that it may not begin, as of its last look */
        /* Results. */
        uint64_t started_ns;
        uint64_t ended_ns;
        uint64_t cpu_ns;     /* CPU time, waiting included */
        uint64_t waiting_ns; /* CPU time of waiting */
        uint64_t waits;
};

struct machine {
        const struct replay *replay;
        void **objects; /* by place; NULL until allocated */
        struct worker *workers;
        unsigned int threads;
        unsigned int usable; /* CPUs */
        unsigned int window;
        bool touch;
        pthread_barrier_t start;
};

struct memory {
        uint64_t resident;
        uint64_t peak; /* 0: the kernel did not let us count from here */
};

/* ---- Order -------------------------------------------------------------------------------- */

static uint64_t thread_cpu_ns(void)
{
        struct timespec now;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* R2 for event @number; looks at the other threads only when it has to. */
static bool within_window(struct worker *worker, uint64_t number)
{
        const struct machine *machine = worker->machine;
        uint64_t least = UINT64_MAX;

        if (number < worker->bound)
                return true;
        for (unsigned int i = 0; i < machine->threads; i++)
                if (&machine->workers[i] != worker)
                        /* Acquire: pairs with publish, so the events up to there are done. */
                        least = min_of(least, load_acquire(&machine->workers[i].progress));
        worker->bound = least > UINT64_MAX - machine->window ? UINT64_MAX : least + machine->window;
        return number < worker->bound;
}

static void publish(struct worker *worker, uint64_t number)
{
        store_release(&worker->progress, number);
}

/*
 * R1: the object in a place, NULL before it is allocated. Acquire: pairs with the store in
 * take_event.
 */
static void *object_in(const struct machine *machine, const struct step *step)
{
        return load_acquire(&machine->objects[step->place]);
}

static bool may_begin(struct worker *worker, uint64_t number)
{
        const struct machine *machine = worker->machine;
        const struct step *step = &machine->replay->steps[number];

        return within_window(worker, number) && (!step->frees || object_in(machine, step));
}

/*
 * Waits until R1 and R2 allow the event. CPU time of waiting is counted separately: for a short
 * look by the clock, for a long wait exactly.
 */
static KMEM_NOINLINE void wait_for_turn(struct worker *worker, uint64_t number)
{
        uint64_t from = now_ns();
        uint64_t from_cpu;
        bool ready = false;

        worker->waits++;
        publish(worker, number);
        for (int spin = 0; spin < SPINS && !ready; spin++) {
                cpu_relax();
                ready = may_begin(worker, number);
        }
        worker->waiting_ns += min_of(now_ns() - from, (uint64_t)SPIN_NS_MOST);
        if (ready)
                return;
        from_cpu = thread_cpu_ns();
        while (!may_begin(worker, number))
                sched_yield();
        worker->waiting_ns += thread_cpu_ns() - from_cpu;
}

/* ---- Events ------------------------------------------------------------------------------- */

static void fill(const struct step *step, void *object)
{
        memset(object, (int)(step->place & 0xff), step->bytes);
}

static void check_fill(const struct step *step, const void *object)
{
        const unsigned char *bytes = object;
        unsigned char written = (unsigned char)(step->place & 0xff);

        if (step->bytes && (bytes[0] != written || bytes[step->bytes - 1] != written))
                die("an object of %lu bytes at %p was changed by somebody else",
                    (unsigned long)step->bytes, object);
}

static inline void take_event(const struct machine *machine, const struct step *step)
{
        void *object;

        if (step->frees) {
                object = object_in(machine, step);
                if (machine->touch)
                        check_fill(step, object);
                step_free(machine->replay, step, object);
                return;
        }
        object = step_alloc(machine->replay, step);
        if (unlikely(!object))
                die("out of memory at step %lu, for %lu bytes",
                    (unsigned long)(step - machine->replay->steps), (unsigned long)step->bytes);
        if (machine->touch)
                fill(step, object);
        /* Release: pairs with object_in on any thread that frees the object. */
        store_release(&machine->objects[step->place], object);
}

static void take_events(struct worker *worker)
{
        const struct machine *machine = worker->machine;
        const struct step *steps = machine->replay->steps;

        for (size_t i = 0; i < worker->count; i++) {
                uint64_t number = worker->numbers[i];

                if (i % PUBLISH_EVERY == 0)
                        publish(worker, number);
                if (unlikely(!may_begin(worker, number)))
                        wait_for_turn(worker, number);
                take_event(machine, &steps[number]);
        }
        publish(worker, UINT64_MAX);
}

static void *run_worker(void *argument)
{
        struct worker *worker = argument;
        uint64_t from_cpu;

        pthread_barrier_wait(&worker->machine->start);
        from_cpu = thread_cpu_ns();
        worker->started_ns = now_ns();
        take_events(worker);
        worker->ended_ns = now_ns();
        worker->cpu_ns = thread_cpu_ns() - from_cpu;
        return NULL;
}

/* ---- Preparations ------------------------------------------------------------------------- */

/*
 * CPU number @index of the process's usable CPUs; beyond the last it begins again with the first.
 */
static unsigned int usable_cpu(const cpu_set_t *usable, unsigned int index)
{
        unsigned int left = index % (unsigned int)CPU_COUNT(usable);

        for (unsigned int cpu = 0; cpu < CPU_SETSIZE; cpu++)
                if (CPU_ISSET(cpu, usable) && left-- == 0)
                        return cpu;
        return 0;
}

/* Memory with its pages present, so that the clock sees only the allocator's page faults. */
static void *need_touched(size_t bytes)
{
        return memset(need(malloc(bytes + 1)), 0, bytes + 1);
}

static struct worker *worker_of(const struct machine *machine, const struct step *step)
{
        return &machine->workers[step->cpu % machine->threads];
}

/*
 * Gives the objects of each thread places side by side, and the objects of two threads places in
 * different lines, so that a thread which notes its objects does not disturb another.
 */
static void separate_places(struct machine *machine, struct replay *replay)
{
        enum { PLACES_IN_LINE = CACHE_LINE / sizeof(void *) };
        uint32_t *place_of = need_touched((size_t)replay->places * sizeof(*place_of));
        uint64_t *next = need(calloc(machine->threads + 1, sizeof(*next)));

        for (uint64_t i = 0; i < replay->steps_count; i++)
                if (!replay->steps[i].frees)
                        next[replay->steps[i].cpu % machine->threads + 1]++;
        for (unsigned int i = 0; i < machine->threads; i++)
                next[i + 1] = round_up(next[i] + next[i + 1], (uint64_t)PLACES_IN_LINE);
        if (next[machine->threads] > INT32_MAX)
                die("more than %d objects", INT32_MAX);
        replay->places = (uint32_t)next[machine->threads];
        for (uint64_t i = 0; i < replay->steps_count; i++) {
                struct step *step = &replay->steps[i];

                if (!step->frees)
                        place_of[step->place] = (uint32_t)next[step->cpu % machine->threads]++;
                step->place = place_of[step->place] & INT32_MAX;
        }
        free(place_of);
        free(next);
}

static void deal_steps(struct machine *machine)
{
        const struct replay *replay = machine->replay;

        if (replay->steps_count > UINT32_MAX)
                die("the trace has %lu events; expected at most %u",
                    (unsigned long)replay->steps_count, UINT32_MAX);
        for (uint64_t i = 0; i < replay->steps_count; i++)
                worker_of(machine, &replay->steps[i])->count++;
        for (unsigned int i = 0; i < machine->threads; i++) {
                struct worker *worker = &machine->workers[i];

                worker->numbers = need_touched(worker->count * sizeof(*worker->numbers));
                worker->count = 0;
        }
        for (uint64_t i = 0; i < replay->steps_count; i++) {
                struct worker *worker = worker_of(machine, &replay->steps[i]);

                worker->numbers[worker->count++] = (uint32_t)i;
        }
}

static void start_workers(struct machine *machine)
{
        cpu_set_t usable;

        if (sched_getaffinity(0, sizeof(usable), &usable))
                die("cannot read which CPUs are usable: %m");
        machine->usable = (unsigned int)CPU_COUNT(&usable);
        pthread_barrier_init(&machine->start, NULL, machine->threads + 1);
        for (unsigned int i = 0; i < machine->threads; i++) {
                struct worker *worker = &machine->workers[i];
                pthread_attr_t attributes;
                cpu_set_t one;
                int error;

                worker->machine = machine;
                worker->cpu = usable_cpu(&usable, i);
                CPU_ZERO(&one);
                CPU_SET(worker->cpu, &one);
                pthread_attr_init(&attributes);
                pthread_attr_setaffinity_np(&attributes, sizeof(one), &one);
                error = pthread_create(&worker->thread, &attributes, run_worker, worker);
                if (error)
                        die("cannot start thread %u of %u on CPU %u: %s", i + 1, machine->threads,
                            worker->cpu, strerror(error));
                pthread_attr_destroy(&attributes);
        }
}

/* ---- Figures ------------------------------------------------------------------------------ */

static uint64_t status_bytes(const char *name)
{
        FILE *file = fopen("/proc/self/status", "re");
        size_t length = strlen(name);
        char line[256];
        uint64_t kib = 0;

        if (!file)
                return 0;
        while (fgets(line, sizeof(line), file))
                if (!strncmp(line, name, length) && line[length] == ':')
                        kib = strtoull(line + length + 1, NULL, 10);
        fclose(file);
        return kib << 10;
}

/* Makes the kernel count the peak from here on. */
static bool reset_peak(void)
{
        FILE *file = fopen("/proc/self/clear_refs", "we");
        bool done;

        if (!file)
                return false;
        done = fputs("5", file) >= 0;
        return (fclose(file) == 0) & done;
}

/* A place has its object's address for good, so what is counted at its begin is so at its end. */
static struct asked asked_at_end(const struct machine *machine)
{
        const struct replay *replay = machine->replay;
        struct asked asked = {0};

        for (uint64_t i = 0; i < replay->steps_count; i++) {
                const struct step *step = &replay->steps[i];
                bool large = step_is_large(replay, step, machine->objects[step->place]);
                uint64_t *bytes = large ? &asked.large_bytes : &asked.bytes;

                *bytes += step->frees ? -step->bytes : step->bytes;
        }
        return asked;
}

static void print_times(const struct machine *machine)
{
        uint64_t started = UINT64_MAX;
        uint64_t ended = 0;
        uint64_t cpu = 0;
        uint64_t waiting = 0;
        uint64_t waits = 0;

        for (unsigned int i = 0; i < machine->threads; i++) {
                const struct worker *worker = &machine->workers[i];

                started = min_of(started, worker->started_ns);
                ended = max_of(ended, worker->ended_ns);
                cpu += worker->cpu_ns;
                waiting += worker->waiting_ns;
                waits += worker->waits;
        }
        print_number("events", machine->replay->steps_count, ", ");
        print_number("ns", ended - started, ", ");
        print_number("cpu_ns", cpu - min_of(waiting, cpu), ", ");
        print_number("waiting_cpu_ns", waiting, ", ");
        print_number("waits", waits, ", ");
}

static void print_document(const struct machine *machine, const struct trace *trace,
                           const struct memory *memory)
{
        const char *given = getenv("KMEM_OPTIONS");
        struct asked asked = asked_at_end(machine);

        print_trace(machine->replay, trace);
        printf(" \"machine\": {");
        print_number("threads", machine->threads, ", ");
        print_number("usable_cpus", machine->usable, ", ");
        print_number("window", machine->window, ", ");
        printf("\"touch\": %s, ", machine->touch ? "true" : "false");
        print_number("page_bytes", PAGE_SIZE, ", \"options\": ");
        print_text(given ? given : "");
        printf("},\n \"real_time\": {");
        print_times(machine);
        if (memory->peak)
                print_number("peak_resident_bytes",
                             memory->peak - min_of(memory->peak, memory->resident), "},\n");
        else
                printf("\"peak_resident_bytes\": null},\n");
        lock_take(&cache_mutex);
        print_heap_end(&asked);
        print_heap_statistics();
        print_heap(&asked);
        lock_drop(&cache_mutex);
        /* The last member shows readers that the document is whole. */
        printf(" \"whole\": true}\n");
}

static void read_argument(struct machine *machine, const char *argument)
{
        const char *value = strchr(argument, '=');
        size_t length = value ? (size_t)(value++ - argument) : 0;

        if (length == 4 && !strncmp(argument, "cpus", length))
                machine->threads = number_of("cpus", value, THREADS_MOST);
        else if (length == 6 && !strncmp(argument, "window", length))
                machine->window = number_of("window", value, WINDOW_MOST);
        else if (length == 5 && !strncmp(argument, "touch", length))
                machine->touch = number_of("touch", value, 1);
        else
                refuse("expected cpus=N, window=W or touch=1, not %s", argument);
}

int main(int argc, char **argv)
{
        /*
         * A worker has the numbers of its steps, and a place for each object, before and after the
         * move.
         */
        static const struct trace_demand demand = {
                .record = STEPS_RECORD_BYTES + sizeof(uint32_t),
                .object = STEPS_OBJECT_BYTES + sizeof(uint32_t) + sizeof(void *),
        };
        struct machine machine = {.window = WINDOW};
        struct memory memory = {0};
        struct trace trace;
        struct replay replay;
        bool counted;

        if (argc < 2)
                refuse("expected a trace, then NAME=VALUE");
        for (int i = 2; i < argc; i++)
                read_argument(&machine, argv[i]);
        load_or_die(argv[1], &demand, &trace);
        if (!heap_ready())
                die("the heap cannot be set up");
        replay_prepare(&replay, &trace, PLACES_OF_LIVES);
        if (!machine.threads)
                machine.threads = min_of(replay.trace_cpus, (uint32_t)THREADS_MOST);
        machine.replay = &replay;
        machine.workers = need(aligned_alloc(CACHE_LINE, machine.threads * sizeof(struct worker)));
        memset(machine.workers, 0, machine.threads * sizeof(struct worker));
        separate_places(&machine, &replay);
        deal_steps(&machine);
        machine.objects = need_touched(replay.places * sizeof(void *));
        start_workers(&machine);
        counted = reset_peak();
        memory.resident = status_bytes("VmRSS");
        pthread_barrier_wait(&machine.start);
        for (unsigned int i = 0; i < machine.threads; i++)
                pthread_join(machine.workers[i].thread, NULL);
        memory.peak = counted ? status_bytes("VmHWM") : 0;
        print_document(&machine, &trace, &memory);
        if (fflush(stdout) || ferror(stdout))
                die("cannot write the document");
        return 0;
}
