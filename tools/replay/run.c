/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Takes the steps of a trace on the simulated machine, and watches how many pages are in use.
 *
 * Copies of a trace run at once: the first step of each, then the second of each and so on, at the
 * recorded times. CPU c of copy k is CPU (c + k * CPUs of the trace) modulo the number of CPUs.
 */
#include "tools/replay/replay.h"

#include "tools/replay/resident.h"

#include "base/metadata.h"

#include <stdlib.h>
#include <time.h>

struct running {
        const struct replay *replay;
        const struct plan *plan;
        struct outcome *outcome;
        void **objects; /* by place, the copies side by side */
        /* Pages of large blocks, without engine slob's. To ask the heap would take its locks. */
        size_t large_pages;
        size_t huge_pages; /* the part of large_pages outside the heap */
        struct resident resident;
        size_t moments; /* number of wanted moments */
};

/*
 * Pages in use for objects. The zones count freed blocks as in use that they keep for the next
 * request (KEPT-1); to free them, as heap.c does at the end, would change what comes after it.
 */
static size_t object_pages(const struct running *running)
{
        size_t large = running->huge_pages;

        for (unsigned int node = 0; node < system_nodes(); node++)
                large += zones[node].large_pages;
        return heap_pages() + running->huge_pages - (large - running->large_pages);
}

static KMEM_NOINLINE void note_peak(const struct running *running, uint64_t event)
{
        struct outcome *outcome = running->outcome;
        size_t pages = object_pages(running);

        if (pages <= outcome->peak_pages)
                return;
        outcome->peak_pages = pages;
        outcome->peak_event = event;
        outcome->peak_asked_bytes = outcome->asked.bytes;
        outcome->peak_allocated_bytes = slob_counts.allocated;
        outcome->peak_large_pages = running->large_pages + slob_counts.big_pages;
}

/* Counts the pages of a large block; @block may be gone already. */
static void count_large(struct running *running, const struct step *step, const void *block)
{
        size_t pages = pages_for(max_of(step->bytes, (uint64_t)1));
        size_t change = step->frees ? -pages : pages;

        running->large_pages += change;
        if (!heap_contains(block))
                running->huge_pages += change;
}

/*
 * Records that were freed stay with the library, resident, so their peak counts and not their end: a
 * program that frees all it has would seem to have had none. Each page has a descriptor and an entry
 * of the page map besides.
 */
static inline void note_records(struct running *running)
{
        struct outcome *outcome = running->outcome;
        size_t pages = heap_pages() + running->huge_pages;
        size_t bytes = metadata_used_bytes() + pages * (sizeof(struct page) + sizeof(uint16_t));

        outcome->peak_record_bytes = max_of(outcome->peak_record_bytes, bytes);
}

/* Huge blocks are written whole, as objects are. */
static inline void note_resident(struct running *running, const struct step *step, void *object)
{
        struct outcome *outcome = running->outcome;

        resident_note(&running->resident, object, step->bytes);
        outcome->peak_resident_pages =
                max_of(outcome->peak_resident_pages, running->resident.pages + running->huge_pages);
}

static inline uint64_t *asked_of(struct outcome *outcome, bool large)
{
        return large ? &outcome->asked.large_bytes : &outcome->asked.bytes;
}

static inline void take_step(struct running *running, const struct step *step, void **place)
{
        const struct replay *replay = running->replay;
        struct outcome *outcome = running->outcome;
        const struct source *source = &replay->sources[step->source];
        uint64_t slow_before = sim.counts.slow_paths;
        bool large;

        if (step->frees) {
                large = step_is_large(replay, step, *place);
                step_free(replay, step, *place);
                *asked_of(outcome, large) -= step->bytes;
        } else {
                *place = step_alloc(replay, step);
                if (unlikely(!*place))
                        die("out of memory at step %lu, for %lu bytes",
                            (unsigned long)(step - replay->steps), (unsigned long)step->bytes);
                large = step_is_large(replay, step, *place);
                *asked_of(outcome, large) += step->bytes;
        }
        outcome->slow_calls += (source->uncached && large == source->large) |
                               (sim.counts.slow_paths != slow_before);
        if (unlikely(large && !source->cache))
                count_large(running, step, *place);
        if (!step->frees) {
                note_resident(running, step, *place);
                note_records(running);
        }
        if (unlikely(heap_pages() + running->huge_pages > outcome->peak_pages))
                note_peak(running, (uint64_t)(step - replay->steps));
}

/* The number of steps before the next moment; the last moment is the end. */
static uint64_t next_moment(const struct running *running)
{
        uint64_t done = running->outcome->moment_count;

        if (done == running->moments)
                return UINT64_MAX;
        return (done + 1) * running->replay->steps_count / running->moments;
}

static KMEM_NOINLINE void note_moment(struct running *running, uint64_t steps, uint64_t time)
{
        struct outcome *outcome = running->outcome;

        outcome->moments[outcome->moment_count++] = (struct moment){
                .steps = steps,
                .time = time,
                .pages = object_pages(running),
                .large_pages = running->large_pages + slob_counts.big_pages,
                .asked_bytes = outcome->asked.bytes,
                .asked_large_bytes = outcome->asked.large_bytes,
        };
        moment_note(&outcome->moments[outcome->moment_count - 1]);
}

static void take_steps(struct running *running)
{
        const struct replay *replay = running->replay;
        unsigned int copies = running->plan->repeat;
        uint64_t start = sim_time();
        uint64_t now = 0;
        uint64_t moment = next_moment(running);
        unsigned int cpus = running->plan->cpus;
        unsigned int stride = replay->trace_cpus % cpus; /* from a copy's CPU to the next copy's */

        for (uint64_t i = 0; i < replay->steps_count; i++) {
                const struct step *step = &replay->steps[i];
                void **places = &running->objects[(size_t)step->place * copies];
                unsigned int cpu = step->cpu % cpus;

                if (step->time != now) {
                        now = step->time;
                        sim_time_set(start + now);
                }
                for (unsigned int copy = 0; copy < copies; copy++) {
                        if (sim_cpu() != cpu)
                                sim_set_cpu(cpu);
                        take_step(running, step, &places[copy]);
                        cpu += stride;
                        cpu -= cpu >= cpus ? cpus : 0;
                }
                if (unlikely(i + 1 == moment)) {
                        note_moment(running, i + 1, now);
                        moment = next_moment(running);
                }
        }
}

static double cpu_seconds(void)
{
        struct timespec now;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void replay_run(const struct replay *replay, const struct plan *plan, struct outcome *outcome)
{
        struct running running = {
                .replay = replay,
                .plan = plan,
                .outcome = outcome,
                .objects = need(calloc((size_t)replay->places * plan->repeat + 1, sizeof(void *))),
                .moments = min_of((uint64_t)plan->moments, replay->steps_count),
        };
        uint64_t last = replay->steps_count ? replay->steps[replay->steps_count - 1].time : 0;
        double started;

        if (last > UINT64_MAX - sim_time())
                die("the trace ends at %lu ns; expected at most %lu", (unsigned long)last,
                    (unsigned long)(UINT64_MAX - sim_time()));
        *outcome = (struct outcome){
                .moments = need(calloc(running.moments + 1, sizeof(*outcome->moments)))};
        resident_start(&running.resident);
        sim_reset();
        started = cpu_seconds();
        take_steps(&running);
        outcome->cpu_seconds = cpu_seconds() - started;
        sim_counts(&outcome->counts);
        resident_end(&running.resident);
        check_or_die(running.large_pages + slob_counts.big_pages == large_pages());
}
