/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The heap at moments on the way: its pages and their content, and for engine slob the figures of
 * the mail that split its list.
 */
#include "tools/replay/replay.h"

#include <stdio.h>

/* Without slob_lock: there is a single thread, and taking the lock would be counted. */
void moment_note(struct moment *moment)
{
        moment->slob = slob_counts;
        for (unsigned int list = 0; list < slob_list_count; list++) {
                struct slob_list_figures figures;

                slob_list_figures_locked(list, &figures);
                moment->lists.pages += figures.pages;
                moment->lists.unused += figures.unused;
                moment->lists.fragments += figures.fragments;
                moment->lists.biggest = max_of(moment->lists.biggest, figures.biggest);
        }
}

static void print_slob(const struct moment *moment)
{
        printf(", \"full_pages\": %lu, \"unused_bytes\": %lu, \"fragments\": %lu, "
               "\"biggest_bytes\": %lu, \"page_scans\": %lu, \"block_scans\": %lu",
               (unsigned long)(moment->slob.pages - moment->lists.pages),
               (unsigned long)moment->lists.unused, (unsigned long)moment->lists.fragments,
               (unsigned long)moment->lists.biggest, (unsigned long)moment->slob.page_scans,
               (unsigned long)moment->slob.block_scans);
}

static void print_moment(const struct moment *moment)
{
        /* The bytes that even an optimum has to hold, as at the end. */
        uint64_t allocated = slob_list_count ? moment->slob.allocated : moment->asked_bytes;

        printf("{\"steps\": %lu, \"time_ns\": %lu, \"pages\": %lu, \"large_pages\": %lu, "
               "\"asked_bytes\": %lu, \"asked_large_bytes\": %lu, \"allocated_bytes\": %lu",
               (unsigned long)moment->steps, (unsigned long)moment->time,
               (unsigned long)moment->pages, (unsigned long)moment->large_pages,
               (unsigned long)moment->asked_bytes, (unsigned long)moment->asked_large_bytes,
               (unsigned long)allocated);
        if (slob_list_count)
                print_slob(moment);
        putchar('}');
}

void moments_print(const struct outcome *outcome)
{
        if (!outcome->moment_count)
                return;
        printf(" \"moments\": [");
        for (size_t i = 0; i < outcome->moment_count; i++) {
                printf(i ? ",\n  " : "\n  ");
                print_moment(&outcome->moments[i]);
        }
        printf("\n ],\n");
}
