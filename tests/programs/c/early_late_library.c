/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A library with a constructor that runs before all others, and a destructor that runs after all
 * others.
 */
#include "early_late.h"

static struct stage kept;

__attribute__((constructor(101))) static void first_constructor(void)
{
        stage_run(&kept);
        stage_report("library constructor\n");
}

__attribute__((destructor(101))) static void last_destructor(void)
{
        struct stage own;

        stage_allocate(&own);
        stage_free(&kept);
        stage_free(&own);
        stage_report("library destructor\n");
}

struct stage *library_stage(void)
{
        return &kept;
}
