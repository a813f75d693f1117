/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The figures of a replay as a document: the heap at the end of a trace, and the counts on the way.
 * No figure comes from a clock: equal traces and options give equal texts, byte for byte.
 */
#include "tools/replay/replay.h"

#include <stdio.h>

static void print_counts(const struct replay *replay, const struct plan *plan,
                         const struct outcome *outcome)
{
        static const char *const kinds[SIM_LOCK_KINDS] = {
                [SIM_LOCK_SLOT] = "slot",         [SIM_LOCK_LIST] = "list",
                [SIM_LOCK_BARN] = "barn",         [SIM_LOCK_ALIEN] = "alien",
                [SIM_LOCK_SLOB] = "slob",         [SIM_LOCK_PAGE] = "page",
                [SIM_LOCK_METADATA] = "metadata", [SIM_LOCK_OTHER] = "other",
        };
        const struct sim_counts *counts = &outcome->counts;

        printf(" \"counts\": {");
        print_number("calls", (replay->allocations + replay->frees) * plan->repeat, ", ");
        print_number("slow_calls", outcome->slow_calls, ", ");
        /*
         * Steps into the per-CPU layer's slow half; a call that no sheaf may serve takes no such
         * step.
         */
        print_number("slow_paths", counts->slow_paths, ",\n  ");
        print_number("moved_objects", moved_objects(), ", ");
        print_number("compare_swaps", counts->compare_swaps, ", ");
        print_number("atomic_adds", counts->atomic_adds, ", ");
        print_number("exchanges", counts->exchanges, ", ");
        print_number("remote_words", counts->remote_words, ", ");
        print_number("remote_words_node", counts->remote_words_node, ", ");
        print_number("fences", counts->fences, "");
        for (int kind = 0; kind < SIM_LOCK_KINDS; kind++) {
                const struct sim_lock_counts *lock = &counts->locks[kind];

                printf(",\n  \"%s_locks\": %lu, \"%s_handed_over\": %lu, "
                       "\"%s_handed_over_node\": %lu",
                       kinds[kind], (unsigned long)lock->taken, kinds[kind],
                       (unsigned long)lock->handed_over, kinds[kind],
                       (unsigned long)lock->handed_over_node);
        }
        printf("},\n");
}

static void print_peak(const struct outcome *outcome)
{
        printf(" \"peak\": {");
        print_number("pages", outcome->peak_pages, ", ");
        print_number("slab_pages", outcome->peak_pages - outcome->peak_large_pages, ", ");
        print_number("large_pages", outcome->peak_large_pages, ", ");
        print_number("asked_bytes", outcome->peak_asked_bytes, ", ");
        print_number("allocated_bytes",
                     slob_list_count ? outcome->peak_allocated_bytes : outcome->peak_asked_bytes,
                     ", ");
        print_number("resident_pages", outcome->peak_resident_pages, ", ");
        print_number("record_bytes", outcome->peak_record_bytes, ", ");
        print_number("step", outcome->peak_event, "},\n");
}

void replay_print(const struct replay *replay, const struct plan *plan,
                  const struct outcome *outcome, const struct trace *trace)
{
        print_trace(replay, trace);
        printf(" \"machine\": {");
        print_number("cpus", plan->cpus, ", ");
        print_number("nodes", plan->nodes, ", ");
        print_number("repeat", plan->repeat, ", ");
        print_number("page_bytes", PAGE_SIZE, ", \"options\": ");
        print_text(plan->options);
        printf("},\n");
        print_heap_end(&outcome->asked);
        print_peak(outcome);
        moments_print(outcome);
        print_counts(replay, plan, outcome);
        print_heap_statistics();
        print_heap(&outcome->asked);
        /* The last member shows readers that the document is whole. */
        printf(" \"whole\": true}\n");
}
