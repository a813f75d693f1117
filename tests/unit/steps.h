/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Runs a callback between two instructions of a function, at each place in turn: the processor
 * traps behind every instruction, and the handler of the chosen trap calls it.
 */
#ifndef TESTS_UNIT_STEPS_H
#define TESTS_UNIT_STEPS_H

#include "../exec.h"

#include <signal.h>

#ifdef __x86_64__
#include <ucontext.h>
#include <x86intrin.h>

static struct {
        unsigned int left; /* instructions until act is called */
        void (*act)(void); /* NULL: it was called */
} steps;

static const unsigned long TRAP_FLAG = 0x100;

static void step_taken(int number, siginfo_t *info, void *interrupted)
{
        ucontext_t *context = interrupted;

        if (steps.left--)
                return;
        context->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
        steps.act();
        steps.act = NULL;
}

/*
 * Barriers on both sides: the compiler moves loads and stores over the instruction that sets the flag,
 * as it does not know that the handler runs from there on.
 */
static inline __attribute__((always_inline)) void set_trap_flag(unsigned long flag)
{
        __asm__ volatile("" : : : "memory");
        __writeeflags((__readeflags() & ~TRAP_FLAG) | flag);
        __asm__ volatile("" : : : "memory");
}

/*
 * Calls @run; behind @count of its instructions, in a signal handler, @act. False if @run was over
 * before.
 */
static bool run_with_act_at(unsigned int count, void (*run)(void), void (*act)(void))
{
        struct sigaction action = {.sa_sigaction = step_taken, .sa_flags = SA_SIGINFO};

        sigaction(SIGTRAP, &action, NULL);
        steps.left = count;
        steps.act = act;
        set_trap_flag(TRAP_FLAG);
        run();
        set_trap_flag(0);
        return !steps.act;
}
#else
static bool run_with_act_at(unsigned int count, void (*run)(void), void (*act)(void))
{
        return false;
}
#endif

/* NULL if it can be done here. */
static inline const char *why_no_steps(void)
{
#ifndef __x86_64__
        return "only x86-64 traps behind each instruction";
#else
        return emulated() ? "the traps would be the emulator's" : NULL;
#endif
}

/* For cmocka's cases, first of all; skip.h. */
#define skip_without_steps()                                                                       \
        do {                                                                                       \
                if (why_no_steps())                                                                \
                        skip_because(why_no_steps());                                              \
        } while (0)

#endif
