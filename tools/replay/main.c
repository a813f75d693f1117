/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Replays a trace on a simulated machine, for `kmem replay`. It writes a JSON document to standard
 * output; equal arguments give equal documents, byte for byte. A line on standard error says how
 * many events went through in a second of CPU time, loading left out.
 *
 *   replay TRACE [NAME=VALUE]...
 *
 *   cpus=N      CPUs of the machine; as many as the trace has, 1 for a program of a single thread
 *   nodes=M     nodes, 1
 *   repeat=K    copies of the trace that run at once, 1
 *   moments=N   the heap at N moments, equally many steps apart; none
 *   options=T   as in KMEM_OPTIONS; may be given once, and ends in anything
 */
#include "tools/replay/replay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { REPEAT_MOST = 65536, MOMENTS_MOST = 100000 };

static void read_argument(struct plan *plan, const char *argument)
{
        const char *value = strchr(argument, '=');
        size_t length = value ? (size_t)(value++ - argument) : 0;

        if (length == 4 && !strncmp(argument, "cpus", length))
                plan->cpus = number_of("cpus", value, SIM_CPUS_MAX);
        else if (length == 5 && !strncmp(argument, "nodes", length))
                plan->nodes = number_of("nodes", value, SIM_NODES_MAX);
        else if (length == 6 && !strncmp(argument, "repeat", length))
                plan->repeat = number_of("repeat", value, REPEAT_MOST);
        else if (length == 7 && !strncmp(argument, "moments", length))
                plan->moments = number_of("moments", value, MOMENTS_MOST);
        else if (length == 7 && !strncmp(argument, "options", length))
                plan->options = value;
        else
                refuse("expected cpus=N, nodes=M, repeat=K, moments=N or options=TEXT, not %s",
                       argument);
}

/*
 * A program's slots are its concurrency ids (percpu/slot.h), and a single thread has the same one
 * on every CPU: it leaves nothing behind where it was. A kernel's tasks have the CPU's.
 */
static unsigned int slots_of(const struct trace *trace)
{
        if (!trace_is_of_program(trace))
                return max_of(trace->cpus, 1u);
        for (uint64_t i = 1; i < trace->records; i++)
                if (trace->thread[i] != trace->thread[0])
                        return max_of(trace->cpus, 1u);
        return 1;
}

/* The memory of a single copy. */
static const struct trace_demand demand = {
        .record = STEPS_RECORD_BYTES,
        .object = STEPS_OBJECT_BYTES + sizeof(void *),
};

/*
 * Copies have places of their own, which the file's bytes say nothing about: they count as its memory
 * too, once it is known how many places a copy has.
 */
static void check_copies(const char *path, const struct trace *trace, const struct replay *replay,
                         unsigned int copies)
{
        struct trace_contents contents = {
                .records = trace->records,
                .objects = trace->objects,
                .others = (uint64_t)replay->places * (copies - 1) * sizeof(void *),
        };
        struct trace_error error;

        if (copies > 1 && !trace_memory_allows(&contents, &demand, trace->file_bytes, &error))
                die("%s: repeat=%u: %s", path, copies, error.text);
}

int main(int argc, char **argv)
{
        struct plan plan = {.nodes = 1, .repeat = 1, .options = ""};
        struct sim_machine machine;
        struct trace trace;
        struct replay replay;
        struct outcome outcome;
        int error;

        if (argc < 2)
                refuse("expected a trace, then NAME=VALUE");
        for (int i = 2; i < argc; i++)
                read_argument(&plan, argv[i]);
        load_or_die(argv[1], &demand, &trace);
        if (!plan.cpus)
                plan.cpus = min_of(slots_of(&trace), SIM_CPUS_MAX);
        machine = (struct sim_machine){
                .cpus_online = plan.cpus, .nodes = plan.nodes, .options = plan.options};
        if ((error = sim_start(&machine)))
                return error == EINVAL ? 2 : 1;
        replay_prepare(&replay, &trace, PLACES_REUSED);
        check_copies(argv[1], &trace, &replay, plan.repeat);
        replay_run(&replay, &plan, &outcome);
        replay_print(&replay, &plan, &outcome, &trace);
        if (fflush(stdout) || ferror(stdout))
                die("cannot write the document");
        fprintf(stderr, "%.1f million events a second of CPU time, loading left out\n",
                (double)(replay.steps_count * plan.repeat) / outcome.cpu_seconds / 1e6);
        return 0;
}
