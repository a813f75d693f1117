/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The lock of the library itself (machine/lock.h), which the explorer replaces everywhere else, and its
 * event (machine/event.h), on a futex whose sleepers wake only if somebody wakes them. So a wake-up that
 * is lost is a deadlock.
 */
#include "scenario.h"

/* The guard of the explorer's machine/lock.h: the files behind see the library's. */
#include "../../../src/machine/lock.h"

#include "machine/event.h"

/* A spin of a single round has each order of steps that longer spins have. */
#define cpu_relax_once() (round = SPIN_ROUNDS - 1)
#pragma push_macro("cpu_relax")
#undef cpu_relax
#define cpu_relax() cpu_relax_once()
#include "../../../src/machine/lock.c"
#pragma pop_macro("cpu_relax")

static struct lock lock;
static struct event event;
static unsigned int inside;
static unsigned int turns;   /* written by plain stores under the lock */
static unsigned int entered; /* turns that threads have made */
static uint32_t done;        /* what waiters of the event wait for */

static void setup_none(void)
{
}

static void critical(void)
{
        CHECK(load_relaxed(&inside) == 0);
        store_relaxed(&inside, 1);
        turns++;
        store_relaxed(&inside, 0);
}

static void enter(void)
{
        add_relaxed(&entered, 1);
        lock_take(&lock);
        critical();
        lock_drop(&lock);
}

static void enter_twice(void)
{
        enter();
        enter();
}

/* A thread that does not wait. */
static void try_once(void)
{
        if (!lock_try(&lock))
                return;
        add_relaxed(&entered, 1);
        critical();
        lock_drop(&lock);
}

static void check_free(void)
{
        CHECK(lock.word == 0);
        CHECK(turns == entered);
}

static void await_done(void)
{
        while (!load_acquire(&done)) {
                uint32_t sequence = event_announce(&event);

                if (load_acquire(&done))
                        event_retreat(&event);
                else
                        event_sleep(&event, sequence, 1000);
        }
}

static void make_done(void)
{
        store_release(&done, 1);
        event_wake(&event, UINT32_MAX);
}

/* Each wakes one waiter for what it has brought. */
static void bring_one(void)
{
        add_relaxed(&done, 1);
        event_wake(&event, 1);
}

static bool take_one(void)
{
        uint32_t found = load_acquire(&done);

        while (found)
                if (compare_swap_acquire(&done, &found, found - 1))
                        return true;
        return false;
}

static void await_one(void)
{
        while (!take_one()) {
                uint32_t sequence = event_announce(&event);

                if (take_one()) {
                        event_retreat(&event);
                        return;
                }
                event_sleep(&event, sequence, 1000);
        }
}

static void check_nobody_waits(void)
{
        CHECK(event.waiters == 0);
}

const struct scenario lock_scenarios[] = {
        {.name = "lock_two",
         .about = "two threads take the library's lock twice",
         .setup = setup_none,
         .thread = {enter_twice, enter_twice},
         .cpu = {0, 1},
         .check = check_free},
        {.name = "lock_three",
         .about = "three threads take the library's lock, two may sleep on it",
         .setup = setup_none,
         .thread = {enter, enter, enter},
         .cpu = {0, 1, 2},
         .check = check_free},
        {.name = "lock_same_cpu",
         .about = "two threads of a CPU take the library's lock, another tries to",
         .setup = setup_none,
         .thread = {enter, enter, try_once},
         .cpu = {0, 0, 1},
         .check = check_free},
        {.name = "event_one",
         .about = "a thread waits for what another does",
         .setup = setup_none,
         .thread = {await_done, make_done},
         .cpu = {0, 1},
         .check = check_nobody_waits,
         .woken = true},
        {.name = "event_all",
         .about = "two threads wait for what a third does",
         .setup = setup_none,
         .thread = {await_done, await_done, make_done},
         .cpu = {0, 1, 2},
         .check = check_nobody_waits,
         .woken = true},
        {.name = "event_each",
         .about = "two threads wait for a thing each, which two others bring and wake one for",
         .setup = setup_none,
         .thread = {await_one, await_one, bring_one, bring_one},
         .cpu = {0, 1, 2, 3},
         .check = check_nobody_waits,
         .woken = true},
        {0},
};
