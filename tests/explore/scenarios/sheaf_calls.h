/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What threads do in scenarios of sheaves: sheaves.c has slots by restartable sequences, locked.c
 * locked ones.
 */
#ifndef KMEM_EXPLORE_SCENARIOS_SHEAF_CALLS_H
#define KMEM_EXPLORE_SCENARIOS_SHEAF_CALLS_H

#include "scenario.h"

static void *held[4];

/* Slots have records and sheaves: scenarios begin where the first calls end. */
static void fill(unsigned int objects)
{
        void *object[8];

        make_cache(64);
        for (unsigned int i = 0; i < objects; i++)
                object[i] = take();
        for (unsigned int i = 0; i < objects; i++)
                give(object[i]);
}

static void fill_two(void)
{
        fill(2);
}

static void fill_three(void)
{
        fill(3);
}

static void fill_and_hold(void)
{
        fill(3);
        for (unsigned int i = 0; i < 4; i++)
                held[i] = take();
}

static void pop_and_push(void)
{
        give(take());
}

static void pop_two(void)
{
        void *first = take();

        give(take());
        give(first);
}

static void push_first(void)
{
        give(held[0]);
        give(held[1]);
}

static void push_second(void)
{
        give(held[2]);
        give(held[3]);
}

static void push_all(void)
{
        push_first();
        push_second();
}

static void drain(void)
{
        kmem_cache_shrink(cache);
}

static void drain_then_push(void)
{
        kmem_cache_shrink(cache);
        push_second();
}

#endif
